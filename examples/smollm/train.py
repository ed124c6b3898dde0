"""The example as one command.

    python -m examples.smollm.train [--seed 7] [--short] [--out FOLDER] [--config gpu.toml] [--keep]

Owns: writing the base model and the instructions, the campaign around them, resuming it, and what the short form omits
and checks. A full run that was killed goes on where it was: run the same command again. Refuses: the base model
(`base`), the instructions (`tasks`), and reading the results (`results`).
"""

from __future__ import annotations

import argparse
import json
import resource
import shutil
import signal
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from examples.running.campaign import PAUSED, CampaignFailed, Project
from examples.running.command import ExampleRun, interrupted, settings
from examples.running.programs import ROOT, new_run
from examples.smollm import results
from examples.smollm.base import FOLDER as BASE
from examples.smollm.base import BaseUnavailable, make_base
from examples.smollm.tasks import SEED, write
from proxy.errors import ConfigError
from proxy.settings.loader import load_settings

EXAMPLE: Final = Path(__file__).parent
RUNS: Final = ROOT / "build" / "smollm" / "runs"
# The short form: enough steps that four versions go live even if one step has nothing to learn from.
SHORT_STEPS, SHORT_INSTRUCTIONS = 5, 4
LEAST_LIVE: Final = 4  # versions
MOST_GAP: Final = 1e-4  # nats, on every trained token, both sides in float32
SHORT_NOTE: Final = (
    "The short form makes no claim about learning: its steps are few and small, and nothing is held out."
)
SESSIONS: Final = "sessions.json"


def campaign_environment(wanted: ExampleRun) -> dict[str, str]:
    """Write the instructions of a seed; return the variables that name them, and what the short form changes."""
    parts = write(wanted.data / "tasks", wanted.seed)
    environment = {**settings(wanted), "HONE_CAMPAIGN__SCENARIOS": str(parts.learn)}
    if wanted.short:
        return {
            **environment,
            "HONE_CAMPAIGN__STEPS": str(SHORT_STEPS),
            "HONE_CAMPAIGN__SCENARIOS_PER_STEP": str(SHORT_INSTRUCTIONS),
        }
    return {
        **environment,
        "HONE_CAMPAIGN__VAL_SCENARIOS": str(parts.validation),
        "HONE_CAMPAIGN__TEST_SCENARIOS": str(parts.test),
    }


def run(wanted: ExampleRun) -> results.Result:
    """Run a campaign, or go on with one that was interrupted; write and return its result.

    Raises:
        CampaignFailed: `hone train` failed, or its report could not be read.
        BaseUnavailable: the base model could not be written.
        ConfigError: the settings file cannot be read.
    """
    wanted.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    config = wanted.config or EXAMPLE / "hone.toml"
    engine = load_settings(config, {}).settings.engine
    base = Path(engine.base or "")
    if base.resolve() == BASE.resolve():
        print(f"Base model: {make_base()}", flush=True)
    project = Project(config, wanted.data, campaign_environment(wanted))
    paused = False
    if not is_finished(project):
        with Session(wanted.data / SESSIONS):
            paused = project.train() == PAUSED
    report = project.report()
    result = results.summarize(
        report,
        results.read_attempts(wanted.data, config),
        seed=wanted.seed,
        short=wanted.short,
        model=engine.name or base.name,
        base=base,
        float32=engine.dtype == "float32",
        sessions=json.loads((wanted.data / SESSIONS).read_text(encoding="utf-8")),
        faults=["a health rule paused the campaign"] if paused else [],
    )
    (wanted.data / "result.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    return result


def is_finished(project: Project) -> bool:
    """Whether the data folder's campaign has ended, so that only its result is left to be read."""
    if not (project.data / SESSIONS).is_file():
        return False
    try:
        return bool(project.report()["state"] == "finished")
    except CampaignFailed:
        return False  # killed before a campaign began


class Session:
    """One start of the program, in a file of all of them: `[{"seconds", "cpu_minutes"}]`, null where unknown."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._earlier: list[Mapping[str, Any]] = json.loads(file.read_text("utf-8")) if file.is_file() else []

    def __enter__(self) -> None:
        """Write that it began."""
        self._began, self._cpu = time.monotonic(), _cpu_seconds()
        self._write({"seconds": None, "cpu_minutes": None})

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Write what it took. The CPU time of a killed program's own programs is not known."""
        cpu = None if failure else round((_cpu_seconds() - self._cpu) / 60, 2)
        self._write({"seconds": round(time.monotonic() - self._began, 1), "cpu_minutes": cpu})

    def _write(self, own: Mapping[str, Any]) -> None:
        self._file.write_text(json.dumps([*self._earlier, own]) + "\n", encoding="utf-8")


def _cpu_seconds() -> float:
    """Return the CPU seconds of the programs that this one started and that have ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def missing(result: results.Result) -> list[str]:
    """Return what a run does not show, one sentence each: the short form and a full run have claims of their own."""
    found = list(result["faults"])
    if result["versions_live"] < LEAST_LIVE:
        found.append(f"{result['versions_live']} versions went live, fewer than {LEAST_LIVE}")
    gap = result["logprob_gap_max"]
    if result["short"] and result["float32"] and (gap is None or gap > MOST_GAP):
        found.append(f"the largest |Δlogprob| to the engine is {gap}, not at most {MOST_GAP:g}")
    if not result["short"] and not result["rose"]:
        found.append("held-out success did not rise with certainty: the 95 % intervals overlap, or one is missing")
    return found


def told(result: results.Result, folder: Path) -> int:
    """Print a result; return the exit status: 1 if something is missing."""
    live, steps = result["versions_live"], len(result["curve"])
    print(f"\nsmollm, seed {result['seed']}: {live} versions went live in {steps} steps")
    print(
        f"  |Δlogprob| to the engine: at most {result['logprob_gap_max']} on {result['trained_tokens']} trained tokens"
    )
    print(f"  {result['tokens_per_s']} sampled tokens a second; {result['minutes']} minutes", end="")
    print(f", {result['cpu_minutes']} CPU minutes" if result["cpu_minutes"] is not None else "")
    for kinds, part in result["held_out"].items():
        for when in (results.BEFORE, results.AFTER):
            one = part[when]
            if one["success"] is not None:
                share = f"{one['success']:.1%} of {one['attempts']} ({one['low']:.1%} to {one['high']:.1%})"
                print(f"  {kinds} kinds, {when}: {share}, {one['tokens']} tokens an answer")
    if result["short"]:
        print(f"  {SHORT_NOTE}")
    print(f"  result: {folder / 'result.json'}")
    wrong = missing(result)
    for why in wrong:
        print(f"  failed: {why}", file=sys.stderr)
    return bool(wrong)


def main() -> int:
    """Run the example by its command line. The exit status is 1 for a fault or no certain rise; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(
        description="SmolLM2-135M-Instruct learns to follow instructions that code checks."
    )
    parser.add_argument("--seed", type=int, default=SEED, help=f"seed of instructions and campaign ({SEED})")
    parser.add_argument("--short", action="store_true", help="five small steps, without held-out measurements")
    parser.add_argument(
        "--out", type=Path, help="data folder (default: in build/smollm/runs; a full run's is its seed's)"
    )
    parser.add_argument("--config", default="hone.toml", help="settings file, in the example's folder (hone.toml)")
    parser.add_argument("--keep", action="store_true", help="copy the result to examples/smollm/results")
    given = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that the started programs are stopped
    full = RUNS / f"{Path(given.config).stem}-seed-{given.seed}"
    out = (given.out or (new_run(RUNS / "short") if given.short else full)).resolve()
    try:
        result = run(ExampleRun(out, given.seed, given.short, EXAMPLE / given.config))
    except (CampaignFailed, BaseUnavailable, ConfigError) as error:
        print(f"smollm: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted(out)
    status = told(result, out)
    if given.keep:
        kept = EXAMPLE / "results" / f"{'short' if given.short else 'seed'}-{given.seed}.json"
        kept.parent.mkdir(exist_ok=True)
        shutil.copyfile(out / "result.json", kept)
    return status


if __name__ == "__main__":
    sys.exit(main())
