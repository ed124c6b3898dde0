"""One seed of one kind of fault: load, the faults at random moments, and the comparison at the end."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.faults.kinds import FaultKind
from benchmarks.faults.ring import StoreKind, running
from benchmarks.faults.traffic import HeardAnswer, Traffic
from benchmarks.faults.verification import Findings, compare, until_settled

CLIENTS: Final = 12
SETTLE_S: Final = 180.0
_WRONG_SHOWN: Final = 5


@dataclass
class Outcome:
    """`moments`: when each fault was over, monotonic; `traffic`: what the clients heard; `seconds`: of all."""

    moments: Sequence[float]
    traffic: Traffic
    findings: Findings
    seconds: float

    def as_json(self) -> dict[str, Any]:
        """Return the record for the results' file. `recovered_s`: from a fault's end to the first answer after it."""
        found, wrong = self.findings, self.traffic.wrong
        recovered = recoveries(self.moments, self.traffic.heard)
        return {
            "times": len(self.moments),
            "answers": len(self.traffic.heard),
            "failed": dict(sorted(self.traffic.failed.items())),
            "lost": found.lost,
            "doubled": found.doubled,
            "wrong": found.wrong + len(wrong),
            "unfinished": found.unfinished,
            "broken": found.broken,
            "examples": [*found.examples, *wrong[:_WRONG_SHOWN]],
            "recorded": found.recorded,
            "superseded": found.superseded,
            "recovered_s": {"median": round(median(recovered), 3), "worst": round(max(recovered), 3)},
            "seconds": round(self.seconds, 1),
        }


async def run_session(kind: FaultKind, store_kind: StoreKind, folder: Path, times: int, seed: int) -> Outcome:
    """Run `times` faults in an empty folder."""
    began = time.monotonic()
    async with running(folder, store_kind) as ring:
        traffic = Traffic(ring.at)
        asking = asyncio.create_task(traffic.run(CLIENTS))
        chance, moments = random.Random(seed), list[float]()
        for _ in range(times):
            await asyncio.sleep(chance.uniform(*kind.between_s))
            if asking.done():
                asking.result()
            await kind.inject(ring, chance)
            moments.append(time.monotonic())
        traffic.end()
        await asking
        store = await ring.open_store()
        try:
            unfinished = await until_settled(store, SETTLE_S)
            await ring.stop_workers()
            findings = await compare(store, ring.data, traffic.heard, unfinished)
        finally:
            await store.close()
    return Outcome(moments, traffic, findings, time.monotonic() - began)


def recoveries(moments: Sequence[float], heard: Sequence[HeardAnswer]) -> list[float]:
    """Return, of each moment, the seconds to the first answer whose end a client saw after it.

    Conversations go on to their last turn, so there is one after the last moment, too.
    """
    ends = sorted(one.at for one in heard)
    found, at = [], 0
    for moment in sorted(moments):
        while at < len(ends) and ends[at] <= moment:
            at += 1
        if at < len(ends):
            found.append(ends[at] - moment)
    return found
