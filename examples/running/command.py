"""The command line that the examples share: `python -m examples.NAME.run [--seed 7] [--short] [--out FOLDER]`.

Owns: the flags, the sequence (the programs around Hone, `hone train`, its report, summary.json and the picture), and
the exit status. Refuses: an example's own programs, which are `Example.surroundings`.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from examples.running.campaign import PAUSED, CampaignFailed, Project
from examples.running.programs import ROOT, free_ports, new_run
from examples.running.summary import Summary, missing, summarize

RUNS: Final = ROOT / "build" / "examples"
SEEDS: Final = (7, 11, 23)  # of the committed results
INTERRUPTED: Final = 128 + signal.SIGINT


@dataclass(frozen=True, slots=True)
class ExampleRun:
    """One run: data folder, seed, whether it is the short form, settings file (None: hone.toml)."""

    data: Path
    seed: int
    short: bool
    config: Path | None = None


# Runs the programs around Hone until the block ends; yields the variables that name them to Hone (HONE_CAMPAIGN__…).
Surroundings = Callable[[ExampleRun], AbstractContextManager[Mapping[str, str]]]


@dataclass(frozen=True, slots=True)
class Example:
    """An example: name, folder, a sentence on its success, the programs around Hone, whether a model judges."""

    name: str
    folder: Path
    measured: str
    surroundings: Surroundings
    judged: bool = True


def main(example: Example) -> int:
    """Run an example by its command line. Return the exit status: 0; 1 for a fault or no rise; 130 after Ctrl-C."""
    parser = argparse.ArgumentParser(description=f"The example {example.name}: a campaign from its start to its curve.")
    parser.add_argument("--seed", type=int, default=SEEDS[0], help=f"seed of world and campaign ({SEEDS[0]})")
    parser.add_argument("--short", action="store_true", help="fewer steps and a smaller test part")
    parser.add_argument(
        "--out", type=Path, help=f"data folder (default: a new folder in build/examples/{example.name})"
    )
    parser.add_argument("--config", default="hone.toml", help="settings file, in the example's folder (hone.toml)")
    given = parser.parse_args()
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    out = (given.out or new_run(RUNS / example.name)).resolve()
    try:
        summary = run(example, ExampleRun(out, given.seed, given.short, example.folder / given.config))
    except CampaignFailed as error:
        print(f"{example.name}: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return interrupted(out)
    return told(summary, out)


def run(example: Example, wanted: ExampleRun) -> Summary:
    """Run all of it. summary.json, curve.svg and Hone's own report.html are then in the data folder.

    Raises:
        CampaignFailed: `hone train` failed, or its report could not be read.
    """
    started = time.monotonic()
    wanted.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    with example.surroundings(wanted) as environment:
        project = Project(
            wanted.config or example.folder / "hone.toml", wanted.data, {**settings(wanted), **environment}
        )
        status = project.train()
        seconds = time.monotonic() - started
        report = project.report()
    faults = ["a health rule paused the campaign"] if status == PAUSED else []
    summary = summarize(
        report,
        example=example.name,
        seed=wanted.seed,
        short=wanted.short,
        measured=example.measured,
        seconds=seconds,
        faults=faults,
        judged=example.judged,
    )
    write(summary, wanted.data)
    return summary


def settings(wanted: ExampleRun) -> dict[str, str]:
    """Return the settings of every example: free ports, and the seed."""
    proxy, engine = free_ports(2)
    return {
        "HONE_PROXY__PORT": str(proxy),
        "HONE_ENGINE__PORT": str(engine),
        "HONE_CAMPAIGN__SEED": str(wanted.seed),
        "HONE_TRAINER__SEED": str(wanted.seed),
    }


def write(summary: Summary, folder: Path) -> None:
    """Write summary.json, and curve.svg if matplotlib is installed."""
    (folder / "summary.json").write_text(json.dumps(summary, indent=1) + "\n", encoding="utf-8")
    picture(summary, folder / "curve.svg")


def picture(summary: Summary, file: Path) -> None:
    """Draw the curve if matplotlib is installed: it is part of the development extra."""
    with contextlib.suppress(ModuleNotFoundError):
        from examples.running.picture import write as drawn

        drawn(summary, file)


def interrupted(folder: Path) -> int:
    """Print, after Ctrl-C, where the data is; return the exit status."""
    print(f"\nStopped. The recorded data is in {folder}.", file=sys.stderr)
    return INTERRUPTED


def told(summary: Summary, folder: Path) -> int:
    """Print the result of a run; return its exit status."""
    before, after = summary["before"], summary["after"]
    print(f"\n{summary['example']}, seed {summary['seed']}: {summary['measured']}")
    for name, one in (("before", before), *summary["baselines"].items(), ("after", after)):
        if one["success"] is not None:
            print(f"  {name}: {one['success']:.1%} of {one['attempts']} ({one['low']:.1%} to {one['high']:.1%})")
    judge = summary["judge"]
    print(f"  {summary['seconds']:.0f} s, {judge['requests']} judge requests, summary and picture in {folder}")
    wrong = missing(summary)
    for why in wrong:
        print(f"  failed: {why}", file=sys.stderr)
    return bool(wrong)
