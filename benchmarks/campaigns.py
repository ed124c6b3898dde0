"""How much sooner a campaign learns that samples ahead and chooses its scenarios, where tools and judge are slow.

    python -m benchmarks.campaigns [--only lag1-choosing-7] [--data build/campaigns] [--save]

The demo's model and task, with tools that take 0.5 to 20 s and a judge that takes 5 s (`benchmarks.slow_helpdesk`).
Each case is a whole campaign of `STEPS` steps by the real programs, on orders that repeat, so that there is something
to choose. It is validated on the demo's held-out orders every `VAL_EVERY` steps; the clock stands still meanwhile.
Reported for each case: the seconds until the first validation with 95 % of success, the success at the end, each
validation, and which attempts were trained on. Of the cases with the same seed: how many times sooner, and what the lag
costs after the same number of steps.

A case whose result is in the data folder is not run again; one that was interrupted begins anew. With `--save`, the
results of all cases that are there are written to results/campaigns.json.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import signal
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, replace
from math import exp, log
from pathlib import Path
from typing import Any, Final

from rich.console import Console

from benchmarks.load import machine
from examples.helpdesk.demo import CONFIG
from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.surroundings import scripted
from examples.running.programs import free_ports, hone_up, program, run_to_its_end
from proxy.settings.loader import load_settings
from recorder.queue import campaigns
from recorder.settings import RecorderSettings
from recorder.store import ledger
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.views.campaigns.events import BEGUN, STEP, VALIDATION, StepDone, Validation, decode_event
from recorder.views.campaigns.lengths import AttemptLengths, read_lengths

RESULTS: Final = Path(__file__).parent / "results" / "campaigns.json"
DATA: Final = Path("build") / "campaigns"
PROJECT: Final = "default"
STEPS, VAL_EVERY = 16, 4
ORDERS: Final = 64  # to train on: eight steps go through them once
SUCCESS: Final = 0.95
SEEDS: Final = (7, 11, 23)
# The settings that choose scenarios, and those that do not, as environment variables.
CHOOSING: Final[Mapping[bool, Mapping[str, str]]] = {
    True: {"HONE_CAMPAIGN__CHOOSE": "learnability"},
    False: {},
}
SETTINGS: Final = {
    "HONE_CAMPAIGN__STEPS": str(STEPS),
    "HONE_CAMPAIGN__TARGET": "2",  # never: all cases have the same steps
    "HONE_CAMPAIGN__PLATEAU_STEPS": str(STEPS + 1),
    "HONE_CAMPAIGN__HEALTH": json.dumps({"converged": {"then": "off"}}),
    "HONE_CAMPAIGN__VAL_EVERY": str(VAL_EVERY),
}


@dataclass(frozen=True, slots=True)
class Case:
    """One campaign to measure."""

    lag: int
    choosing: bool
    seed: int

    @property
    def name(self) -> str:
        """Its name, as `--only` takes it."""
        return f"lag{self.lag}-{'choosing' if self.choosing else 'uniform'}-{self.seed}"

    @property
    def environment(self) -> dict[str, str]:
        """The settings that make the case."""
        return {
            **SETTINGS,
            **CHOOSING[self.choosing],
            "HONE_CAMPAIGN__MAX_LAG": str(self.lag),
            "HONE_CAMPAIGN__SEED": str(self.seed),
        }


CASES: Final = (
    *(Case(0, False, seed) for seed in SEEDS),
    *(Case(1, True, seed) for seed in SEEDS),
    Case(1, False, SEEDS[0]),
    Case(0, True, SEEDS[0]),
)


# --- what a campaign left behind


@dataclass(frozen=True, slots=True)
class EventAt:
    """An event of a campaign, and when it was recorded (unix seconds)."""

    at: float
    code: str
    event: StepDone | Validation | None


@dataclass(frozen=True, slots=True)
class ValidatedAt:
    """A validation, and the seconds of the campaign until it began, without earlier validations."""

    step: int
    seconds: float
    success: float
    attempts: int


@dataclass(frozen=True, slots=True)
class StepAt:
    """A step, and the seconds until it was over, without validations."""

    step: int
    seconds: float
    success: float | None
    trained: int
    stale_groups: float | None
    by_phase: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class CaseResult:
    """What a case measured. `lengths`: of its training attempts; None: it has none."""

    case: Case
    validations: Sequence[ValidatedAt]
    steps: Sequence[StepAt]
    excluded: Mapping[str, int]
    lengths: AttemptLengths | None

    @property
    def seconds(self) -> float | None:
        """The seconds to `SUCCESS`; None: it was not reached."""
        return next((one.seconds for one in self.validations if one.success >= SUCCESS), None)

    @property
    def final(self) -> float:
        """The success of the last validation."""
        return self.validations[-1].success


def read_clock(events: Sequence[EventAt]) -> tuple[list[StepAt], list[ValidatedAt]]:
    """The steps and validations of a campaign that was not interrupted, by a clock that validations stop."""
    began = next(one.at for one in events if one.code == BEGUN)
    stopped = 0.0
    steps: list[StepAt] = []
    validations: list[ValidatedAt] = []
    for one in events:
        if isinstance(one.event, Validation):
            stopped += one.event.seconds
            at = one.at - began - stopped
            validations.append(ValidatedAt(one.event.step, at, one.event.success or 0.0, one.event.attempts))
        elif isinstance(one.event, StepDone):
            done = one.event
            stale = done.metrics.get("stale_groups")
            seconds = one.at - began - stopped
            steps.append(StepAt(done.step, seconds, done.success, done.trained, stale, dict(done.seconds)))
    return steps, validations


async def read_case(case: Case, data: Path, recording: RecorderSettings) -> CaseResult:
    """Read what a case's campaign left in the store."""
    store = await open_store(data, recording, migrate=False)
    try:
        [campaign] = await campaigns.list_campaigns(Project(store, PROJECT))
        rows = await ledger.object_entries(store, "campaign", campaign.id)
        lengths = await read_lengths(store, campaign.id)
    finally:
        await store.close()
    events = []
    for row in rows:
        event = decode_event(row.code, row.detail or {}) if row.code in (STEP, VALIDATION) else None
        events.append(EventAt(row.at, row.code, event if isinstance(event, StepDone | Validation) else None))
    steps, validations = read_clock(events)
    excluded: dict[str, int] = {}
    for one in (each.event for each in events):
        for code, count in one.left_out.items() if isinstance(one, StepDone) else ():
            excluded[code] = excluded.get(code, 0) + count
    return CaseResult(case, validations, steps, excluded, lengths)


# --- comparing


def compare(results: Sequence[CaseResult], baseline: tuple[int, bool], other: tuple[int, bool]) -> dict[str, Any]:
    """Two kinds of case, (lag, choosing), over the seeds that both have: how many times sooner, and what it costs.

    `sooner`: the geometric mean of the ratios, over the seeds in which both reached `SUCCESS`. `final`: the mean
    difference at the end. `at_the_same_step`: the mean difference of the validations after each number of steps.
    """
    by_kind = {(one.case.lag, one.case.choosing, one.case.seed): one for one in results}
    pairs = [
        (by_kind[*baseline, seed], by_kind[*other, seed])
        for seed in sorted({one.case.seed for one in results})
        if (*baseline, seed) in by_kind and (*other, seed) in by_kind
    ]
    ratios = [a.seconds / b.seconds for a, b in pairs if a.seconds is not None and b.seconds is not None]
    steps = sorted({one.step for pair in pairs for result in pair for one in result.validations})
    lost = {str(step): gaps for step in steps if (gaps := _differences(pairs, step))}
    return {
        "seeds": [a.case.seed for a, _ in pairs],
        "reached": [sum(result[at].seconds is not None for result in pairs) for at in (0, 1)],
        "sooner": exp(statistics.fmean(map(log, ratios))) if ratios else None,
        "sooner_by_seed": ratios,
        "final": statistics.fmean(b.final - a.final for a, b in pairs) if pairs else None,
        "at_the_same_step": {step: statistics.fmean(gaps) for step, gaps in lost.items()},
        "seconds": [statistics.fmean(result[at].steps[-1].seconds for result in pairs) for at in (0, 1)]
        if pairs
        else None,
    }


def _differences(pairs: Sequence[tuple[CaseResult, CaseResult]], step: int) -> list[float]:
    found = []
    for pair in pairs:
        one, other = ({each.step: each.success for each in result.validations} for result in pair)
        if step in one and step in other:
            found.append(other[step] - one[step])
    return found


def summarize(results: Sequence[CaseResult]) -> dict[str, Any]:
    """All figures, as they are committed."""
    base = (0, False)
    return {
        "steps": STEPS,
        "val_every": VAL_EVERY,
        "orders": ORDERS,
        "success": SUCCESS,
        "lag_and_choosing": compare(results, base, (1, True)),
        "lag_alone": compare(results, base, (1, False)),
        "choosing_alone": compare(results, base, (0, True)),
        "cases": [encode_result(one) for one in results],
    }


def encode_result(result: CaseResult) -> dict[str, Any]:
    """A result as JSON, with what is computed from it."""
    return {**asdict(result), "seconds_to_success": result.seconds, "final": result.final}


def decode_result(stored: Mapping[str, Any]) -> CaseResult:
    """A result that `encode_result` wrote."""
    return CaseResult(
        Case(**stored["case"]),
        [ValidatedAt(**one) for one in stored["validations"]],
        [StepAt(**one) for one in stored["steps"]],
        stored["excluded"],
        AttemptLengths(**stored["lengths"]) if stored["lengths"] else None,
    )


# --- running


def few_orders(files: DemoFiles) -> DemoFiles:
    """The demo's files with `ORDERS` training scenarios."""
    lines = files.scenarios.read_text(encoding="utf-8").splitlines()[:ORDERS]
    few = files.scenarios.with_name("few.jsonl")
    few.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    return replace(files, scenarios=few)


@contextmanager
def slow_surroundings(data: Path, seed: int) -> Iterator[dict[str, str]]:
    """Run the slow tools and the slow judge; yield the variables that name them, and the files, to Hone."""
    with ExitStack() as programs:
        tools, judge, proxy, engine = free_ports(4)
        files = few_orders(write_demo(data / "helpdesk", seed))
        slow = ["-m", "benchmarks.slow_helpdesk"]
        serve = [*slow, "tools", "--database", str(files.database), "--port", str(tools)]
        programs.enter_context(program(serve, tools, data / "tools"))
        programs.enter_context(program([*slow, "judge", "--port", str(judge)], judge, data / "judge"))
        yield {
            "HELPDESK_MCP_URL": f"http://127.0.0.1:{tools}/mcp",
            "HONE_PROXY__PORT": str(proxy),
            "HONE_ENGINE__PORT": str(engine),
            "HONE_CAMPAIGN__SCENARIOS": str(files.scenarios),
            "HONE_CAMPAIGN__VAL_SCENARIOS": str(files.heldout),
            **scripted(judge),
        }


def run_case(case: Case, data: Path, console: Console) -> CaseResult:
    """Run one campaign from its beginning, and read it.

    Raises `RuntimeError` if it did not come to its end.
    """
    shutil.rmtree(data, ignore_errors=True)
    data.mkdir(parents=True, mode=0o700)
    options = ["--config", str(CONFIG), "--data", str(data)]
    with slow_surroundings(data, case.seed) as around:
        environment = {**around, **case.environment}
        with hone_up(["--no-learn", *options], environment, data, console):
            status = run_to_its_end([sys.executable, "-m", "proxy.cli", "train", *options], environment)
    if status != 0:
        raise RuntimeError(f"{case.name}: hone train ended with exit status {status}; its files are in {data}")
    return asyncio.run(read_case(case, data, load_settings(CONFIG, {}).settings.recorder))


def result_path(folder: Path, case: Case) -> Path:
    """Where a case's result lies."""
    return folder / f"{case.name}.json"


def load_results(folder: Path) -> list[CaseResult]:
    """The results that are there, in the order of `CASES`."""
    paths = [path for case in CASES if (path := result_path(folder, case)).is_file()]
    return [decode_result(json.loads(path.read_text(encoding="utf-8"))) for path in paths]


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the cases that have no result yet."""
    parser = argparse.ArgumentParser(description="Campaigns that sample ahead and choose, beside those that do not.")
    parser.add_argument("--only", action="append", metavar="CASE", help="a case, repeatable (all)")
    parser.add_argument("--data", type=Path, default=DATA, help=f"folder of campaigns and results ({DATA})")
    parser.add_argument("--list", action="store_true", help="print the names of the cases, and run none")
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    given = parser.parse_args(arguments)
    if unknown := set(given.only or ()) - {case.name for case in CASES}:
        parser.error(f"no case {', '.join(sorted(unknown))}; there is {', '.join(case.name for case in CASES)}")
    if given.list:
        print("\n".join(case.name for case in CASES))
        return
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that started programs are stopped too
    folder, console = given.data.resolve(), Console(highlight=False)
    before = machine()
    for case in CASES:
        path = result_path(folder, case)
        if path.is_file() or (given.only and case.name not in given.only):
            continue
        console.print(f"{case.name}")
        result = run_case(case, folder / case.name, console)
        unfinished = path.with_suffix(".part")
        unfinished.write_text(json.dumps(encode_result(result), indent=1) + "\n", encoding="utf-8")
        unfinished.replace(path)
    told = summarize(load_results(folder))
    console.print_json(data={name: value for name, value in told.items() if name != "cases"})
    if given.save:
        RESULTS.write_text(json.dumps({**before, **told}, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
