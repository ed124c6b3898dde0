"""Runs every example with every seed and rewrites its committed summaries and picture: long, for two idle cores.

    python -m examples.running.seeds                  # all examples, seeds 7, 11 and 23
    python -m examples.running.seeds inbox --seed 7   # one of them

Owns: the order, and which files are committed. Refuses: committing a result with a fault or without a rise.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from examples.running.command import RUNS, SEEDS
from examples.running.programs import ROOT, new_run, run_to_its_end
from examples.running.table import EXAMPLES


def named() -> list[str]:
    """The examples that have a run of this form: those with a `run.py`."""
    return sorted(path.parent.name for path in EXAMPLES.glob("*/run.py"))


def run(name: str, seed: int) -> bool:
    """Run one and keep its summary (and, of the first seed, its picture); False: it failed, nothing is kept."""
    out = new_run(RUNS / name)
    command = [sys.executable, "-m", f"examples.{name}.run", "--seed", str(seed), "--out", str(out)]
    if run_to_its_end(command, {}) != 0:
        print(f"{name}, seed {seed}: failed; everything lies in {out}", file=sys.stderr)
        return False
    keep(out, EXAMPLES / name, seed)
    return True


def keep(out: Path, folder: Path, seed: int) -> None:
    """Put what is committed of a run into an example's folder."""
    kept = folder / "measured"
    kept.mkdir(exist_ok=True)
    shutil.copyfile(out / "summary.json", kept / f"{seed}.json")
    if seed == SEEDS[0]:
        shutil.copyfile(out / "curve.svg", folder / "curve.svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run what was named, and write the tables; returns 1 where one failed."""
    parser = argparse.ArgumentParser(description="Run the examples with every seed and keep what was measured.")
    parser.add_argument("examples", nargs="*", help="names of folders in examples/ (all that have a run.py)")
    parser.add_argument("--seed", type=int, action="append", help="a seed, repeatable (7, 11 and 23)")
    given = parser.parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))  # so that what was started is ended too
    done = [run(name, seed) for name in given.examples or named() for seed in given.seed or SEEDS]
    subprocess.run([sys.executable, "-m", "examples.running.table", "--write"], cwd=ROOT, check=True)
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
