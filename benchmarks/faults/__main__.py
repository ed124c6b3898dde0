"""Run parts of the faults, or list them.

    python -m benchmarks.faults --list
    python -m benchmarks.faults [KIND …] [--store sqlite|postgresql] [--seeds N] [--times N] [--save]

Without a kind: all. With --save, what has a saved result is not run again: the same command goes on after a stop.
Exit status 1: something was lost, doubled, wrong, unfinished or broken.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import shutil
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.faults.kinds import KINDS
from benchmarks.faults.results import BAD, has_result, save_result, write_page
from benchmarks.faults.ring import StoreKind
from benchmarks.faults.session import run_session
from benchmarks.load import machine


def main() -> None:
    """Run what was asked for, one seed after the other."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("kinds", nargs="*", metavar="KIND", help="all, if none is named")
    parser.add_argument("--list", action="store_true", help="list the kinds, with seeds and faults a seed")
    parser.add_argument("--store", choices=("sqlite", "postgresql"), help="on this store only")
    parser.add_argument("--seeds", type=int, help="at most so many seeds of each kind")
    parser.add_argument("--times", type=int, help="so many faults a seed; not saved")
    parser.add_argument("--save", action="store_true", help="save the results, and write docs/faults.md")
    asked = parser.parse_args()
    if unknown := [name for name in asked.kinds if name not in KINDS]:
        parser.error(f"no kind {unknown[0]!r}; there are: {', '.join(KINDS)}")
    if asked.save and asked.times:
        parser.error("--save keeps whole parts only: leave --times out")
    bad = False
    for name in asked.kinds or KINDS:
        for store, (seeds, times) in KINDS[name].stores.items():
            if asked.list:
                print(f"{name} on {store}: {seeds} × {times}: {KINDS[name].title}")
            elif asked.store in (None, store):
                for seed in range(1, min(seeds, asked.seeds or seeds) + 1):
                    if not (asked.save and has_result(name, store, seed)):
                        bad |= _run(name, store, seed, asked.times or times, save=asked.save)
    if asked.save:
        write_page()
    if bad:
        raise SystemExit(1)


def _run(name: str, store: StoreKind, seed: int, times: int, *, save: bool) -> bool:
    """Run a seed, print its result; return whether it found something. Its folder is kept if it did."""
    folder, about = Path(tempfile.mkdtemp(prefix="hone-faults-")), machine()
    outcome = asyncio.run(run_session(KINDS[name], store, folder, times, seed))
    result: dict[str, Any] = {"kind": name, "store": store, "seed": seed, "machine": about, **outcome.as_json()}
    print(json.dumps(result), flush=True)
    if save:
        save_result(result)
    found = any(result[key] for key in BAD)
    if found:
        print(f"the programs' folder: {folder}", flush=True)
    else:
        shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    main()
