"""The kind `feedback`: what users said through the feedback API.

Owns: which of what was said counts, and how long a group waits for it. Refuses: storing it (`recorder.work.feedback`).
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from judge.errors import PartsMissing
from judge.rewards.kind import Bench, Judged
from judge.rewards.part import Part
from judge.settings import RewardSettings
from recorder.reading.views import FeedbackView, GroupView, TrajectoryView


async def by_feedback(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """What users said through the feedback API: the newest value of that name.

    Raises:
        PartsMissing: somebody said nothing yet, and `judge.feedback.wait_s` is not over.
    """
    parts = {member.id: feedback_part(reward.name, member.feedback) for member in members}
    left_s = max(m.ended_at or m.last_call_at for m in members) + bench.settings.feedback.wait_s - time.time()
    if reward.weight > 0 and left_s > 0 and any(part.value is None for part in parts.values()):
        raise PartsMissing("waiting_for_feedback", f"feedback {reward.name!r} may still come", wait_s=left_s)
    return Judged(parts)


def feedback_part(name: str, feedback: Sequence[FeedbackView]) -> Part:
    """The newest feedback of a name as a number; true is 1, false is 0. That it is missing is no run's doing."""
    named = [said for said in feedback if said.name == name]
    if not named:
        return Part(None, f"no feedback {name!r}", of_run=False)
    newest = max(named, key=lambda said: said.created_at)
    if not isinstance(newest.value, bool | int | float):
        return Part(None, f"feedback {name!r} is no number", of_run=False)
    return Part(float(newest.value), newest.comment, of_run=False)
