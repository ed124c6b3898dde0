"""The kind `function`: your own code looks at each trajectory by itself.

Refuses: running it, and what it sees (`judge.rewards.functions`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from judge.errors import JudgeMisconfigured
from judge.rewards.functions import for_function
from judge.rewards.kind import Bench, Judged
from judge.rewards.part import Part
from judge.settings import RewardSettings
from recorder.reading.views import GroupView, TrajectoryView


async def by_function(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """Your own code looks at each trajectory by itself."""
    if bench.functions is None:
        raise JudgeMisconfigured(f"there is no process to run {reward.function} in")
    code = await bench.functions.code()
    results = await asyncio.gather(*(bench.functions.call(reward.function, for_function(m)) for m in members))
    return Judged(
        {m.id: Part(r.score, r.explanation, r.extra) for m, r in zip(members, results, strict=True)}, code=code
    )
