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
from recorder.rubric import functions


async def by_rubric(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], bench: Bench
) -> Judged:
    """The judge model, or code, says which criteria of its scenario each run meets: at most one request a run."""
    if bench.rubrics is None:
        raise JudgeMisconfigured("this bench was opened without a reward of kind rubric")
    runs = [_subject(member, group) for member in members]
    found = await bench.rubrics.judge(runs, checks_of(group), evidence=reward.evidence)
    ruling = Ruling({}, "", found.version, found.spent, found.asked) if found.judged else None
    return Judged(found.parts, ruling=ruling, code=found.code, run_prompts=found.prompts)


def checks_of(group: GroupView) -> frozenset[str]:
    """The functions that decide criteria of a group, whichever of its members are judged."""
    scenarios = (group.scenario, *(member.scenario for member in group.members))
    return functions(scenario.rubric for scenario in scenarios if scenario is not None)


def _subject(member: TrajectoryView, group: GroupView) -> Subject:
    scenario = member.scenario or group.scenario
    return Subject(member.id, run_of(member), scenario and scenario.rubric, member)
