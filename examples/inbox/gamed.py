"""A campaign with a judge that can be gamed: it pauses by itself. With one more rule it resumes and recovers.

    python -m examples.inbox.gamed [--seed 7] [--out FOLDER] [--write]

Owns the sequence (`hone train` with exploitable.toml until it pauses; `hone score --all` and `hone train --resume` with
fixed.toml and the same data folder), the report, and the definition of recovery. The two halves differ only in the
settings file.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from examples.inbox import judge
from examples.inbox.run import named
from examples.inbox.scenarios import write
from examples.running.campaign import FINISHED, PAUSED, CampaignFailed, Project
from examples.running.command import RUNS, SEEDS, ExampleRun, interrupted, picture, settings
from examples.running.judges import scripted
from examples.running.programs import free_ports, new_run, program
from examples.running.summary import BASE, share

HERE: Final = Path(__file__).parent
EXPLOITABLE, FIXED = HERE / "exploitable.toml", HERE / "fixed.toml"
CAMPAIGN: Final = "inbox-gamed"
RULE: Final = "reward_hacking"
AGREEMENT: Final = {"pairs": "pairs", "turned": "reversed", "kept": "same_order"}  # the summary's name → `hone score`'s

Report = Mapping[str, Any]
Summary = dict[str, Any]


def run(wanted: ExampleRun) -> Summary:
    """Run both halves; return the summary.

    Raises:
        CampaignFailed: one of Hone's commands failed.
    """
    started = time.monotonic()
    wanted.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with surroundings(wanted) as environment:
        project = Project(EXPLOITABLE, wanted.data, {**settings(wanted), **environment})
        first = project.train()
        paused = project.report()
        if first != PAUSED:
            return summarize(wanted.seed, paused, None, [first], time.monotonic() - started)
        project = replace(project, config=FIXED)
        again = project.read("score", "--all")
        second = project.train("--resume", CAMPAIGN)
        report = project.report()
    told = summarize(wanted.seed, paused, report, [first, second], time.monotonic() - started)
    return {**told, "scored_again": {name: again["agreement"][key] for name, key in AGREEMENT.items()}}


@contextlib.contextmanager
def surroundings(wanted: ExampleRun) -> Iterator[Mapping[str, str]]:
    """Run mails, tools and the gullible judge until the block ends; yield the variables that name them to Hone."""
    files = write(wanted.data / "inbox", wanted.seed)
    tools_port, judge_port = free_ports(2)
    tools = ["-m", "examples.inbox.tools_server", "--database", str(files.database), "--port", str(tools_port)]
    judging = ["-m", "examples.inbox.judge", "--port", str(judge_port), "--gullible"]
    with program(tools, tools_port, wanted.data), program(judging, judge_port, wanted.data):
        yield {**named(files, tools_port), **scripted(judge.GULLIBLE, judge_port)}


def summarize(seed: int, paused: Report, after: Report | None, statuses: Sequence[int], seconds: float) -> Summary:
    """Return the summary of a run. `paused`: the report at the pause; `after`: at the end, None without a pause."""
    alarm = next((one["alarm"] for one in paused["alarms"] if one["alarm"]["rule"] == RULE), None)
    at = len(paused["validations"])
    last = after or paused
    validations = [{"step": one["step"], "version": one["version"], **share(one)} for one in last["validations"]]
    told: Summary = {
        "example": CAMPAIGN,
        "seed": seed,
        "seconds": round(seconds, 1),
        "exit_statuses": list(statuses),
        "paused": alarm and {"step": alarm["step"], "rule": alarm["rule"], "words": alarm["detail"]},
        "before": validations[0],
        "at_pause": validations[at - 1],
        "after": validations[-1],
        "validations": validations,
        "steps": [{"step": s["step"], "success": s["success"], "reward": s["reward"]} for s in last["steps"]],
        "alarms": [{name: one["alarm"][name] for name in ("step", "rule", "then", "detail")} for one in last["alarms"]],
        "changes": list(last["changes"]),
        "stopped": last["status"]["code"],
        "tests": {one["version"]: share(one) for one in last["tests"]},
    }
    return {**told, "missing": missing(told)}


def draw(told: Summary, file: Path) -> None:
    """Draw a run, with the held-out measurement at its end. Without matplotlib, draw nothing."""
    nothing = share(None)
    served = next((one for version, one in told["tests"].items() if version != BASE), nothing)
    picture({**told, "before": told["tests"].get(BASE, nothing), "after": served}, file)


def missing(told: Mapping[str, Any]) -> list[str]:
    """Return what is missing; nothing if the campaign paused by itself, resumed, and recovered."""
    if told["paused"] is None or told["exit_statuses"][0] != PAUSED:
        return [f"no pause by {RULE}: hone train ended with status {told['exit_statuses'][0]}"]
    wrong = []
    if told["exit_statuses"][-1] != FINISHED:
        wrong.append(f"it did not resume to its end: status {told['exit_statuses'][-1]}")
    worst, after = told["at_pause"], told["after"]
    if after["low"] <= worst["high"]:
        wrong.append(f"no recovery: validation {worst['success']:.1%} at the pause, {after['success']:.1%} at the end")
    if after["low"] <= told["before"]["success"]:
        wrong.append(
            f"nothing learned: validation {told['before']['success']:.1%} at first, {after['success']:.1%} now"
        )
    return wrong


def main() -> int:
    """Run it, write summary.json, and print the result. Return 1 if something is missing."""
    parser = argparse.ArgumentParser(
        description="A judge is gamed, Hone pauses the campaign, a rule is added, the campaign resumes."
    )
    parser.add_argument("--seed", type=int, default=SEEDS[0], help=f"seed of mailbox and campaign ({SEEDS[0]})")
    parser.add_argument("--out", type=Path, help="data folder (default: a new folder in build/examples/inbox-gamed)")
    parser.add_argument("--write", action="store_true", help="keep the summary in measured/ if nothing is missing")
    given = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    out = (given.out or new_run(RUNS / CAMPAIGN)).resolve()
    try:
        told = run(ExampleRun(out, given.seed, short=False))
    except CampaignFailed as error:
        print(f"{CAMPAIGN}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted(out)
    text = json.dumps(told, indent=1) + "\n"
    (out / "summary.json").write_text(text, encoding="utf-8")
    draw(told, out / "curve.svg")
    for one in told["validations"]:
        sure = f"{one['low']:.1%} to {one['high']:.1%}"
        print(f"  after {one['step']} steps: {one['success']:.1%} ({sure}), {one['version']}")
    if told["paused"]:
        print(f"  paused after {told['paused']['step']} steps: {told['paused']['words']}")
    for why in told["missing"]:
        print(f"  failed: {why}", file=sys.stderr)
    if given.write and not told["missing"]:
        (HERE / "measured").mkdir(exist_ok=True)
        (HERE / "measured" / f"gamed-{given.seed}.json").write_text(text, encoding="utf-8")
        draw(told, HERE / "gamed.svg")
    return bool(told["missing"])


if __name__ == "__main__":
    sys.exit(main())
