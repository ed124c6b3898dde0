"""Success on the held-out orders over time, and the time to a target.

Owns: when it is measured, and the first time at which it reached a share. Refuses: asking (`examples.live.users`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from examples.live.summary import Share

EVERY_S: Final = 120.0
TARGET: Final = 0.85
AT_ONCE: Final = 16  # held-out questions at a time: users go on asking meanwhile


@dataclass(frozen=True, slots=True)
class HeldOutPoint:
    """One measurement. `second`: of its middle, since the first user came; 0: before."""

    second: float
    share: Share

    def as_json(self) -> dict[str, Any]:
        """Return it in the result's format."""
        return {"second": round(self.second, 1), **asdict(self.share)}


async def measure_over_time(
    measure: Callable[[], Awaitable[Share]],
    began: float,
    until: float,
    points: list[HeldOutPoint],
    every_s: float = EVERY_S,
) -> None:
    """Measure every so many seconds and append to `points`; the end itself is not measured. Times: unix seconds."""
    due = began + every_s
    while due < until:
        await asyncio.sleep(max(0.0, due - time.time()))
        points.append(await measure_now(measure, began))
        due = max(due + every_s, time.time())


async def measure_now(measure: Callable[[], Awaitable[Share]], began: float) -> HeldOutPoint:
    """Measure once."""
    first = time.time()
    found = await measure()
    return HeldOutPoint((first + time.time()) / 2 - began, found)


def seconds_to(points: Sequence[HeldOutPoint], target: float = TARGET) -> float | None:
    """Return when success first reached the target, as far as it was measured; None: it did not."""
    reached = (one.second for one in points if one.share.success is not None and one.share.success >= target)
    return next((round(second, 1) for second in reached), None)
