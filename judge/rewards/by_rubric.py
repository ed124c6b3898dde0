"""The kind `rubric`: which criteria of its scenario each trajectory meets.

Refuses: judging them (`judge.rewards.rubric`).
"""

from __future__ import annotations

from collections.abc import Sequence

from judge.errors import JudgeMisconfigured
from judge.llm.ruler import Ruling
from judge.llm.shown import run_of
from judge.rewards.kind import Bench, Judged
from judge.rewards.rubric import Subject
from judge.settings import RewardSettings
from recorder.reading.views import GroupView, TrajectoryView


async def by_rubric(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """The judge model, or code, says which criteria of its scenario each run meets: at most one request a run."""
    if bench.rubrics is None:
        raise JudgeMisconfigured("a rubric needs a judge model: set judge.model")
    runs = [_subject(member, group) for member in members]
    found = await bench.rubrics.judge(runs, evidence=reward.evidence)
    ruling = Ruling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return Judged(found.parts, ruling=ruling)


def _subject(member: TrajectoryView, group: GroupView) -> Subject:
    scenario = member.scenario or group.scenario
    return Subject(member.id, run_of(member), scenario and scenario.rubric, member)
