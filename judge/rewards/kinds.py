"""The registry of reward kinds, in the order in which they are evaluated; and the kinds without a judge model.

`feedback` is what users reported through the feedback API, `function` is the user's code, `rule` is a check of Hone's.
A new kind is a function, one line in the registry, and one word in the `kind` of `judge.settings`. Refuses: storing
feedback (`recorder.queue.feedback`), running functions (`judge.rewards.functions`), the rules (`judge.rewards.rules`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from typing import Final

from judge.errors import JudgeMisconfigured, PartsMissing
from judge.rewards.functions import function_input
from judge.rewards.judge_context import JudgeContext, Kind, KindResult
from judge.rewards.model_kinds import by_rubric, by_ruler
from judge.rewards.part import RewardPart
from judge.rewards.rules import check_rule
from judge.settings import RewardSettings
from recorder.views.trajectories.shapes import FeedbackView, GroupView, TrajectoryView


async def by_feedback(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """Feedback from users through the API: the newest value of that name.

    Raises:
        PartsMissing: feedback is missing, and `judge.feedback.wait_s` is not over.
    """
    parts = {member.id: feedback_part(reward.name, member.feedback) for member in members}
    left_s = max(m.ended_at or m.last_call_at for m in members) + context.settings.feedback.wait_s - time.time()
    if reward.weight > 0 and left_s > 0 and any(part.value is None for part in parts.values()):
        raise PartsMissing("waiting_for_feedback", f"feedback {reward.name!r} is still awaited", wait_s=left_s)
    return KindResult(parts)


def feedback_part(name: str, feedback: Sequence[FeedbackView]) -> RewardPart:
    """The newest feedback of a name as a number; true is 1, false is 0. Its absence is not the trajectory's fault."""
    named = [said for said in feedback if said.name == name]
    if not named:
        return RewardPart(None, f"no feedback {name!r}", of_run=False)
    newest = max(named, key=lambda said: said.created_at)
    if not isinstance(newest.value, bool | int | float):
        return RewardPart(None, f"feedback {name!r} is not a number", of_run=False)
    return RewardPart(float(newest.value), newest.comment, of_run=False)


async def by_function(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """The user's code rates each trajectory by itself."""
    if context.functions is None:
        raise JudgeMisconfigured(f"there is no process to run {reward.function} in")
    code = await context.functions.code()
    results = await asyncio.gather(*(context.functions.call(reward.function, function_input(m)) for m in members))
    return KindResult(
        {m.id: RewardPart(r.score, r.explanation, r.extra) for m, r in zip(members, results, strict=True)}, code=code
    )


async def by_rule(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """Hone's own checks."""
    assert reward.rule is not None
    checked = [await asyncio.to_thread(check_rule, reward.rule, reward.value, member) for member in members]
    return KindResult({member.id: part for member, part in zip(members, checked, strict=True)})


# Cheap kinds come first: the judge is not paid for a group that cannot be scored anyway.
REWARDS: Mapping[str, Kind] = {
    "rule": by_rule,
    "feedback": by_feedback,
    "function": by_function,
    "ruler": by_ruler,
    "rubric": by_rubric,
}
BY_MODEL: Final = frozenset({"ruler", "rubric"})  # of these a judge model decides
