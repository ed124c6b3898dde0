"""From an MCP server's URL to a better agent, in one program.

    python -m examples.mcp_rl.run                                  # the committed server
    python -m examples.mcp_rl.run --url http://127.0.0.1:9000/mcp  # another; then name a judge: HONE_JUDGE__MODEL

`hone scenarios generate` writes the tasks from the server's list of tools. `hone train` attempts them, has them judged,
trains, and compares with version 0 at the end. Owns: this sequence, and the additional figures of the summary. Refuses:
giving the campaign the right answers; for the committed server they are checked afterwards.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.mcp_rl.measuring import CheckResult, checked
from examples.mcp_rl.warehouse import reservations
from examples.mcp_rl.world import World, world
from examples.running.campaign import PAUSED, CampaignFailed, Project
from examples.running.command import RUNS, SEEDS, ExampleRun, interrupted, settings, told, write
from examples.running.programs import new_run
from examples.running.summary import Summary, summarize
from proxy.settings.loader import load_settings

NAME: Final = "mcp_rl"
FOLDER: Final = Path(__file__).parent
TASKS, TASKS_SHORT = 280, 76
EACH: Final = "HONE_CAMPAIGN__VAL_ATTEMPTS"
# Fewer tasks remain for the end, so each is attempted more often, and each step makes two updates, so that the rise is
# still certain. The few validation attempts cannot decide which version is best, so the last one serves.
SHORT: Final = {
    "HONE_CAMPAIGN__STEPS": "7",
    "HONE_TRAINER__SUBSTEPS": "2",
    "HONE_CAMPAIGN__VAL_EVERY": "7",
    "HONE_CAMPAIGN__SERVE": "last",
    EACH: "3",
}
WINS: Final = "win rate against version 0, of one judged group a held-out task"
FACTS: Final = (
    "answers that are right by the warehouse's database, at held-out tasks (a check beside the campaign, which is "
    "measured by its win rate against version 0 and never saw it)"
)


@dataclass(frozen=True, slots=True)
class CampaignResult:
    """The results of generator and campaign. `each`: a version's own attempts in a group of the test part."""

    generated: Mapping[str, Any]
    report: Mapping[str, Any]
    status: int
    seconds: float
    each: int


def main() -> int:
    """Run the command line. Return 0, or 1 for a fault or no rise."""
    given = _arguments()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    out = (given.out or new_run(RUNS / NAME)).resolve()
    out.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        summary = run(ExampleRun(out, given.seed, given.short), FOLDER / given.config, given.url)
    except CampaignFailed as error:
        print(f"{NAME}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted(out)
    write(summary, out)
    status = told(summary, out)
    wins = summary["wins"]
    print(f"  {WINS}: {wins['before']['success']} → {wins['after']['success']} of {wins['after']['attempts']}")
    return status


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="From an MCP server's URL to a better agent.")
    parser.add_argument("--url", help="URL of an MCP server (streamable HTTP); default: start the committed one")
    parser.add_argument("--seed", type=int, default=SEEDS[0], help=f"seed of world, tasks and campaign ({SEEDS[0]})")
    parser.add_argument("--short", action="store_true", help="fewer steps and fewer tasks")
    parser.add_argument("--out", type=Path, help=f"data folder (default: a new folder in build/examples/{NAME})")
    parser.add_argument("--config", default="hone.toml", help="settings file, in this folder (hone.toml)")
    return parser.parse_args()


def run(wanted: ExampleRun, config: Path, url: str | None) -> Summary:
    """Run all of it.

    Raises:
        CampaignFailed: a command of Hone's failed.
    """
    began = time.monotonic()
    with world(wanted.data, wanted.seed, url, config) as around:
        told = _campaign(wanted, config, around, began)
        return _summary(wanted, config, around, told)


def _campaign(wanted: ExampleRun, config: Path, around: World, began: float) -> CampaignResult:
    """Let Hone generate tasks, attempt, judge, train and compare."""
    tasks = wanted.data / "tasks.jsonl"
    environment = {**settings(wanted), **around.environment, **(SHORT if wanted.short else {})}
    number = str(TASKS_SHORT if wanted.short else TASKS)
    asked = ["--mcp", around.url, "-n", number, "--seed", str(wanted.seed), "--out", str(tasks), *around.generator]
    generated = Project(config, wanted.data, environment).read("scenarios", "generate", *asked)
    project = Project(config, wanted.data, {**environment, "HONE_CAMPAIGN__SCENARIOS": str(tasks)})
    status = project.train()
    seconds = time.monotonic() - began
    each = environment.get(EACH) or load_settings(config, {}).settings.campaign.val_attempts
    return CampaignResult(generated, project.report(), status, seconds, int(each))


def _summary(wanted: ExampleRun, config: Path, around: World, told: CampaignResult) -> Summary:
    faults = ["a health rule paused the campaign"] if told.status == PAUSED else []
    if around.database is not None and (writes := reservations(around.database)):
        faults.append(f"the tool that writes was called {writes} times")
    known = bool(around.items)
    summary = summarize(
        told.report,
        example=NAME,
        seed=wanted.seed,
        short=wanted.short,
        measured=FACTS if known else WINS,
        seconds=told.seconds,
        faults=faults,
    )
    summary["wins"] = {"before": summary["before"], "after": summary["after"]}
    summary["generated"] = {
        key: told.generated[key] for key in ("wanted", "of_kind", "dropped", "missing", "tools_left_out", "spent")
    }
    return beside(summary, asyncio.run(_checked(wanted.data, config, around, told))) if known else summary


async def _checked(data: Path, config: Path, around: World, told: CampaignResult) -> CheckResult:
    recording = load_settings(config, {}).settings.recorder
    steps = [step["step"] for step in told.report["steps"]]
    return await checked(data, recording, told.report["name"], around.items, steps=steps, each=told.each)


def beside(summary: Summary, found: CheckResult) -> Summary:
    """Return a summary with the check's success: before, after, and for each step's attempts."""
    steps = [{**step, "success": found.steps[step["step"]].told()["success"]} for step in summary["steps"]]
    return {**summary, "before": found.before.told(), "after": found.after.told(), "steps": steps}


if __name__ == "__main__":
    sys.exit(main())
