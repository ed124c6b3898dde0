"""Run every example with every seed, and rewrite its committed summaries and picture. Needs two idle cores for long.

    python -m examples.running.seeds                  # all examples, seeds 7, 11 and 23
    python -m examples.running.seeds inbox --seed 7   # one of them

Owns: the sequence, and which files are committed. Refuses: committing a result with a fault or without a rise.
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
    """Return the examples with a `run.py`."""
    return sorted(path.parent.name for path in EXAMPLES.glob("*/run.py"))


def run(name: str, seed: int) -> bool:
    """Run one example; keep its summary, and the picture of the first seed. False: it failed, and nothing is kept."""
    out = new_run(RUNS / name)
    command = [sys.executable, "-m", f"examples.{name}.run", "--seed", str(seed), "--out", str(out)]
    if run_to_its_end(command, {}) != 0:
        print(f"{name}, seed {seed}: failed; its files are in {out}", file=sys.stderr)
        return False
    keep(out, EXAMPLES / name, seed)
    return True


def keep(out: Path, folder: Path, seed: int) -> None:
    """Copy the committed files of a run into an example's folder."""
    kept = folder / "measured"
    kept.mkdir(exist_ok=True)
    shutil.copyfile(out / "summary.json", kept / f"{seed}.json")
    if seed == SEEDS[0]:
        shutil.copyfile(out / "curve.svg", folder / "curve.svg")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the named examples, and write the tables. Return 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run the examples with every seed and keep their summaries.")
    parser.add_argument("examples", nargs="*", help="names of folders in examples/ (all that have a run.py)")
    parser.add_argument("--seed", type=int, action="append", help="a seed, repeatable (7, 11 and 23)")
    given = parser.parse_args(arguments)
    signal.signal(
        signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM)
    )  # so that the started programs are stopped too
    done = [run(name, seed) for name in given.examples or named() for seed in given.seed or SEEDS]
    subprocess.run([sys.executable, "-m", "examples.running.table", "--write"], cwd=ROOT, check=True)
    return not all(done)


if __name__ == "__main__":
    sys.exit(main())
