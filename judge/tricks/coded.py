"""Degenerate answers before the parts of a recipe that code decides: functions, rules, criteria with a `check`.

Owns: which parts these are, asking them about an honest failure and the degenerate answer to the same task, and what it
means that the second got more. Refuses: asking a judge model, ever; what the answers are (`judge.tricks.kinds`).

A part pays for an answer where it gives it more than it gives the honest failure: a function more, a penalty or a veto
less. A part that gives either of them no value pays for nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judge.rewards.kind import Bench
from judge.rewards.kinds import REWARDS
from judge.rewards.part import Part
from judge.scoring.makeup import in_range
from judge.settings import JudgeSettings, RewardSettings
from judge.tricks.groups import Trial
from judge.tricks.tally import Outcome, Seen, outcome
from recorder import rubric
from recorder.reading.views import GroupView, TrajectoryView

BY_CODE = ("function", "rule", "rubric")


@dataclass(frozen=True, slots=True)
class Case:
    """One task with a degenerate answer to it, and the honest failure, by their runs' ids."""

    kind: str
    name: str
    group: GroupView
    failure: str
    trick: str


def by_code(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of a recipe that code decides, or may: that depends on a rubric's criteria."""
    return [reward for reward in settings.in_force() if reward.kind in BY_CODE and reward.weight > 0]


def cases(trials: Iterable[Trial]) -> Iterator[Case]:
    """Those of the set's own groups."""
    for one in trials:
        if one.kind.degenerate is not None:
            yield Case(one.kind.name, one.name, one.group, one.failure, one.trick)


async def try_code(reward: RewardSettings, cases: Sequence[Case], bench: Bench) -> list[Outcome]:
    """What came of each kind of degenerate answer; none where no code decides any of its tasks.

    Raises:
        FunctionsDown: the recipe's functions cannot be run.
    """
    seen: dict[str, list[tuple[Seen, bool | None]]] = {}
    for one in cases:
        group = _without_model(one.group) if reward.kind == "rubric" else one.group
        if group is not None:
            parts = await _parts(reward, group, bench, (one.failure, one.trick))
            seen.setdefault(one.kind, []).append(_seen(one, reward, parts))
    return [outcome(reward.name, kind, told) for kind, told in seen.items()]


async def _parts(reward: RewardSettings, group: GroupView, bench: Bench, ids: Sequence[str]) -> Mapping[str, Part]:
    members = [member for member in group.members if member.id in ids]
    judged = await REWARDS[reward.kind](reward, group, members, bench)
    return {id_: in_range(reward, part) for id_, part in judged.parts.items()}


def _seen(one: Case, reward: RewardSettings, parts: Mapping[str, Part]) -> tuple[Seen, bool | None]:
    failure, trick = (parts[id_].value for id_ in (one.failure, one.trick))
    if failure is None or trick is None:
        missing = parts[one.trick] if trick is None else parts[one.failure]
        return Seen(one.name, None, failure, trick, missing.explanation, "no_value"), None
    pays = trick > failure if reward.effect == "score" else trick < failure
    return Seen(one.name, None, failure, trick, parts[one.trick].explanation), pays


def _without_model(group: GroupView) -> GroupView | None:
    """The group with those criteria alone that code decides; None: there is none that could be earned."""
    assert group.scenario is not None
    coded = [entry for entry in group.scenario.rubric or () if _is_coded(entry)]
    if not any(one.weight > 0 for one in rubric.criteria(coded)) if coded else True:
        return None
    scenario = replace(group.scenario, rubric=coded)
    members: list[TrajectoryView] = [replace(member, scenario=scenario) for member in group.members]
    return replace(group, scenario=scenario, members=members)


def _is_coded(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("check") is not None
