"""Scoring one group: which members are judged, their parts, their rewards, and the row to be written.

Owns: the order of things, and when a group has too little to be scored. Refuses: claims and writing
(`judge.scoring.worker`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from judge.errors import CannotJudge, JudgeFailed, PartsMissing
from judge.llm.prompt import Prompt
from judge.llm.ruler import Ruling
from judge.rewards.kinds import REWARDS, Bench, Judged, is_one_step
from judge.rewards.part import Part
from judge.scoring.combine import combine, recipe_hash
from judge.settings import RewardSettings
from recorder.groups.readiness import MEASURED, one_is_enough, usable
from recorder.reading.views import GroupView, TrajectoryView
from recorder.states import TrajectoryState
from recorder.work.scores import REWARD, NewPart, NewScore

MAX_REASONS = 3
NEEDS_TWO = "ruler_needs_two"
NEEDS_TWO_WHY = (
    "RULER compares trajectories and this group has one. Name a reward that looks at each by itself (a function or "
    "feedback, in judge.rewards), or make at least two attempts at each task."
)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """A score ready to be written, and what it came from."""

    new: NewScore
    rewards: Mapping[str, Part]  # by trajectory id; without a value: why not
    prompt: Prompt | None
    ruling: Ruling | None


async def score_group(group: GroupView, bench: Bench) -> GroupScore:
    """Judge a group.

    At least two members must get a reward, or one where runs are compared with earlier ones of their alias; in a group
    that is only measured (validation, evaluation) one part of one member is enough. RULER, which compares, needs two
    everywhere.

    Raises:
        CannotJudge: the group never can be.
        JudgeFailed: it cannot be now.
    """
    members = judged_members(group)
    fewest = _fewest(group, members)
    rewards = bench.settings.in_force()
    found: dict[str, Judged] = {}
    for reward in sorted(rewards, key=lambda r: list(REWARDS).index(r.kind)):
        able = _still_able(members, rewards, found, bench)
        if len(able) < fewest:
            raise _too_few(members, rewards, found, bench)
        found[reward.name] = await REWARDS[reward.kind](reward, group, able, bench)
    combined = _combined(members, rewards, found, bench)
    rewarded = [member for member in members if combined[member.id].value is not None]
    if len(rewarded) < fewest and not _measured_somehow(members, found):
        raise _too_few(members, rewards, found, bench)
    return _as_score(rewards, found, combined, bench, step=is_one_step(members))


def judged_members(group: GroupView) -> list[TrajectoryView]:
    """The members that are judged.

    Raises:
        CannotJudge: they are too few.
    """
    members = [m for m in group.members if usable(m.state, m.purpose, m.selection) and m.messages]
    if len(members) < _fewest(group, members):
        raise CannotJudge(
            "too_few",
            f"group {group.id} has {len(members)} trajectories that can be judged, of {len(group.members)}: a group "
            "needs two, unless it is only measured (purpose val or eval)",
        )
    return members


def as_if_ended(group: GroupView) -> GroupView:
    """A group as it would be judged if all its runs ended now."""
    over = TrajectoryState.COMPLETED
    members = [replace(m, state=over) if m.state is TrajectoryState.OPEN else m for m in group.members]
    return replace(group, members=members)


def only_compares(rewards: Sequence[RewardSettings]) -> bool:
    """Whether nothing of a recipe can say anything about a trajectory by itself."""
    return bool(rewards) and all(_compares(reward) for reward in rewards if reward.weight > 0)


def _compares(reward: RewardSettings) -> bool:
    return reward.kind == "ruler"


def _measured(members: Sequence[TrajectoryView]) -> bool:
    return all(member.purpose in MEASURED for member in members)


def _fewest(group: GroupView, members: Sequence[TrajectoryView]) -> int:
    """How many members must have a reward."""
    enough = one_is_enough(group.baseline, group.campaign_id) or (members and _measured(members))
    return 1 if enough else 2


def _still_able(
    members: Sequence[TrajectoryView], rewards: Sequence[RewardSettings], found: Mapping[str, Judged], bench: Bench
) -> list[TrajectoryView]:
    """The members that what was found so far has not yet cost their reward; of a measured group, all."""
    if _measured(members):
        return list(members)
    missing = bench.settings.feedback.missing
    # A kind that was not asked yet is taken to be there.
    hoped = {reward.name: Part(0.0) for reward in rewards if reward.name not in found}
    return [m for m in members if combine(hoped | _parts_of(m, found), rewards, missing).value is not None]


def _parts_of(member: TrajectoryView, found: Mapping[str, Judged]) -> dict[str, Part]:
    return {name: judged.parts[member.id] for name, judged in found.items() if member.id in judged.parts}


def _combined(
    members: Sequence[TrajectoryView], rewards: Sequence[RewardSettings], found: Mapping[str, Judged], bench: Bench
) -> dict[str, Part]:
    return {m.id: combine(_parts_of(m, found), rewards, bench.settings.feedback.missing) for m in members}


def _measured_somehow(members: Sequence[TrajectoryView], found: Mapping[str, Judged]) -> bool:
    values = (part.value for judged in found.values() for part in judged.parts.values())
    return _measured(members) and any(value is not None for value in values)


def _too_few(
    members: Sequence[TrajectoryView], rewards: Sequence[RewardSettings], found: Mapping[str, Judged], bench: Bench
) -> CannotJudge | JudgeFailed:
    if len(members) == 1 and only_compares(rewards):
        return CannotJudge(NEEDS_TWO, NEEDS_TWO_WHY)
    combined = _combined(members, rewards, found, bench)
    reasons = [f"{name}: {part.explanation}" for name, part in combined.items() if part.value is None]
    ruling = _ruling(found)[1]
    more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
    return PartsMissing(
        "parts_missing",
        f"{len(reasons)} of {len(members)} trajectories have no reward: {'; '.join(reasons[:MAX_REASONS])}{more}",
        spent=ruling.spent if ruling else None,
    )


def _as_score(
    rewards: Sequence[RewardSettings],
    found: Mapping[str, Judged],
    combined: Mapping[str, Part],
    bench: Bench,
    *,
    step: bool,  # a reward of one step says nothing beside one of a whole run
) -> GroupScore:
    prompt, ruling = _ruling(found)
    rewarded = {id_ for id_, part in combined.items() if part.value is not None}
    new = NewScore(
        recipe_hash=recipe_hash(bench.settings, next((judged.code for judged in found.values() if judged.code), "")),
        absolute=not step and all(_absolute(r, found[r.name], rewarded) for r in rewards if r.weight > 0),
        parts=[*_reward_rows(combined), *(row for reward in rewards for row in _rows(reward, found[reward.name]))],
        judge_model=bench.settings.model if ruling else None,
        judge_version=ruling.version if ruling else None,
        prompt_hash=prompt.hash if prompt else None,
        order_seed=prompt.seed if prompt else None,
        reply=ruling.reply if ruling else None,
        tokens_in=ruling.spent.tokens_in if ruling else 0,
        tokens_out=ruling.spent.tokens_out if ruling else 0,
        cost_usd=ruling.spent.cost_usd if ruling else None,
        latency_s=ruling.spent.latency_s if ruling else None,
    )
    return GroupScore(new, combined, prompt, ruling)


def _absolute(reward: RewardSettings, judged: Judged, rewarded: Collection[str]) -> bool:
    """Whether what a part gave to the rewards holds outside the group: it is no ranking, and nobody lacks it."""
    if _compares(reward):
        return not judged.parts
    return all(part.value is not None for id_, part in judged.parts.items() if id_ in rewarded)


def _ruling(found: Mapping[str, Judged]) -> tuple[Prompt | None, Ruling | None]:
    return next(((judged.prompt, judged.ruling) for judged in found.values() if judged.ruling), (None, None))


def _reward_rows(combined: Mapping[str, Part]) -> Iterator[NewPart]:
    return (NewPart(id_, REWARD, part.value, None, part.explanation) for id_, part in combined.items())


def _rows(reward: RewardSettings, judged: Judged) -> Iterator[NewPart]:
    weight = -reward.weight if reward.penalty else reward.weight
    for id_, part in judged.parts.items():
        yield NewPart(id_, reward.name, part.value, weight, part.explanation)
        for name, value in part.extra.items():
            yield NewPart(id_, f"{reward.name}.{name}", value, None, part.reasons.get(name))
