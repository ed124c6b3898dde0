"""Run all programs under load while they are killed at random, and count what went wrong.

    python -m benchmarks.several [--minutes 10] [--seed 7] [--save]

Exit status 1: something was lost, doubled or wrong, or 1 of 100 moves of an alias took longer than two seconds.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import shutil
import tempfile
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from statistics import median, quantiles
from typing import Any, Final

from benchmarks.load import machine
from benchmarks.several.clients import GroupTraffic
from benchmarks.several.findings import Findings, compare
from benchmarks.several.moves import Moves
from benchmarks.several.parts import LIVES_S, Programs, running

RESULTS: Final = Path(__file__).parent.parent / "results" / "several.json"
GROUPS_AT_ONCE: Final = 3
MOVE_S: Final = 2.0  # p99
SETTLE_S: Final = 45.0  # longer than any lease: the work of the last killed program is taken over


async def soak(folder: Path, minutes: float, seed: int) -> dict[str, Any]:
    """Run for this long; return the result."""
    killed: Counter[str] = Counter()
    async with running(folder) as programs:
        store = await programs.open_store()
        traffic, moves, over = GroupTraffic(programs.at), Moves(store, programs.at), asyncio.Event()
        watching = asyncio.create_task(moves.watch(over))
        asking = asyncio.create_task(traffic.run(GROUPS_AT_ONCE))
        killing = [
            asyncio.create_task(_kill(programs, kind, lives_s, random.Random(f"{seed} {kind}"), killed, over))
            for kind, lives_s in LIVES_S.items()
        ]
        try:
            done, _ = await asyncio.wait(
                {asking, watching, *killing}, timeout=60 * minutes, return_when="FIRST_COMPLETED"
            )
            for one in done:  # only a failure ends one early
                one.result()
            over.set()
            await asyncio.gather(*killing)
            traffic.end()
            await asking
            await watching
            await asyncio.sleep(SETTLE_S)
            for program in programs.programs[::-1]:
                await program.stop()
            findings = await compare(store, programs.data, traffic)
        finally:
            await store.close()
    return _result(findings, traffic, moves, killed)


async def _kill(
    programs: Programs, kind: str, lives_s: float, chance: random.Random, killed: Counter[str], over: asyncio.Event
) -> None:
    while not await _passes(over, chance.uniform(0.5, 1.5) * lives_s):
        await programs.kill_one(kind, chance)
        killed[kind] += 1


async def _passes(over: asyncio.Event, seconds: float) -> bool:
    try:
        async with asyncio.timeout(seconds):
            await over.wait()
    except TimeoutError:
        return False
    return True


def _result(findings: Findings, traffic: GroupTraffic, moves: Moves, killed: Counter[str]) -> dict[str, Any]:
    took = sorted(moves.took_s)
    p99 = quantiles(took, n=100, method="inclusive")[98] if len(took) > 1 else None
    return {
        "kills": dict(killed),
        "answers": len(traffic.heard),
        "groups_asked": len(traffic.groups),
        "failed": dict(sorted(traffic.failed.items())),
        **asdict(findings),
        "moves": {
            "seen": len(took),
            "while_a_proxy_was_down": moves.unseen,
            "median_s": round(median(took), 3) if took else None,
            "p99_s": round(p99, 3) if p99 is not None else None,
            "longest_s": round(took[-1], 3) if took else None,
        },
        "passed": findings.clean and p99 is not None and p99 <= MOVE_S,
    }


def main() -> None:
    """Run, and print the result."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--seed", type=int, default=7)
    parser.add_argument("--save", action="store_true", help=f"write {RESULTS.name}")
    asked = parser.parse_args()
    folder, about = Path(tempfile.mkdtemp(prefix="hone-several-")), machine()
    result = {"machine": about, "minutes": asked.minutes, "seed": asked.seed}
    result |= asyncio.run(soak(folder, asked.minutes, asked.seed))
    print(json.dumps(result, indent=1))
    if asked.save:
        RESULTS.write_text(json.dumps(result, indent=1) + "\n")
    if not result["passed"]:
        raise SystemExit(f"the programs' folder: {folder}")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
