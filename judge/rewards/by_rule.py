"""The kind `rule`: what Hone checks of each trajectory by itself.

Refuses: the rules (`judge.rewards.rule`), and what breaking one costs (`judge.scoring.combine`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from judge.rewards.kind import Bench, Judged
from judge.rewards.rule import check
from judge.settings import RewardSettings
from recorder.reading.views import GroupView, TrajectoryView


async def by_rule(reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench) -> Judged:
    """What Hone checks by itself."""
    assert reward.rule is not None
    checked = [await asyncio.to_thread(check, reward.rule, reward.value, member) for member in members]
    return Judged({member.id: part for member, part in zip(members, checked, strict=True)})
