"""Score one group: which members are judged, their parts, their rewards, and the row to write.

Owns: the order of these steps, and when a group has too little to be scored. Refuses: claims and writing
(`judge.scoring.worker`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

from judge.errors import (
    CheckUndecided,
    JudgeFailed,
    JudgeUnavailable,
    JudgeUsage,
    NoFollowUp,
    PartsMissing,
    RequestNotSent,
)
from judge.llm.panel import PanelReply
from judge.llm.prompt import GroupPrompt
from judge.llm.ruler import GroupRuling
from judge.rewards.judge_context import JudgeContext, KindResult
from judge.rewards.kinds import BY_MODEL, REWARDS, is_one_step
from judge.rewards.part import RewardPart
from judge.scoring.reward_parts import (
    RewardParts,
    clip_to_range,
    combine_parts,
    judge_hash,
    recipe_hash,
    select_parts,
)
from judge.settings import DEFAULT, JudgeSettings, RewardSettings
from recorder.queue.groups.readiness import MEASURED, GroupCode, is_one_enough, is_usable
from recorder.queue.judging.records import JudgePrompt, NewReply, ReplyVerdict
from recorder.queue.judging.scores import REWARD, NewPart, NewScore
from recorder.states import TrajectoryState
from recorder.views.trajectories.shapes import GroupView, TrajectoryView

MAX_REASONS = 3
NEEDS_TWO = "ruler_needs_two"
NEEDS_TWO_WHY = (
    "RULER compares trajectories and this group has one. Name a reward that looks at each by itself (a function or "
    "feedback, in judge.rewards), or make at least two attempts at each task."
)


@dataclass(frozen=True, slots=True)
class GroupScore:
    """A score ready to write, and its origin."""

    new: NewScore
    rewards: Mapping[str, RewardPart]  # by trajectory id; without a value: why not
    prompt: GroupPrompt | None
    ruling: GroupRuling | None
    recipe: str = DEFAULT  # that judged it
    chosen: bool = False  # by people, because judges disagreed


async def score_group(group: GroupView, context: JudgeContext) -> GroupScore:
    """Judge a group by the recipe that its campaign or alias names.

    At least two members must get a reward, or one if trajectories are compared with earlier ones of their alias. In a
    group that is only measured (validation, evaluation) one part of one member is enough. RULER compares, and always
    needs two.

    Raises:
        JudgeUnavailable: the group can never be scored.
        JudgeFailed: it cannot be scored now.
    """
    context = context.of(group)
    members = judged_members(group)
    found = await _found(group, members, context)
    return _as_score(members, found, context, _enough(group, members, found, context))


async def foresee_score(group: GroupView, context: JudgeContext) -> None:
    """Run the scoring of a group without any answer of the judge; its judges raise RequestNotSent.

    Raises JudgeUnavailable and JudgeFailed if they are foreseeable.
    """
    context = context.of(group)
    members = judged_members(group)
    _enough(group, members, await _found(group, members, context), context, hoped=True)


def _enough(
    group: GroupView,
    members: Sequence[TrajectoryView],
    found: Mapping[str, KindResult],
    context: JudgeContext,
    *,
    hoped: bool = False,
) -> RewardParts:
    """The composition of the rewards, if enough members have one; `hoped`: as in `_made`."""
    made = _made(members, found, context.settings, hoped=hoped)
    rewarded = [member for member in members if member.id not in made.lacking]
    if made.waits or (len(rewarded) < _fewest(group, members) and not _measured_somehow(members, found)):
        raise _too_few(group, members, found, context, made)
    return made


async def _found(group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext) -> dict[str, KindResult]:
    """Each reward's parts, without those whose request was only counted."""
    fewest = _fewest(group, members)
    found: dict[str, KindResult] = {}
    for reward in sorted(context.settings.in_force(), key=lambda r: list(REWARDS).index(r.kind)):
        so_far = _made(members, found, context.settings, hoped=True)
        everybody = so_far.waits or _measured(members)
        able = [member for member in members if everybody or member.id not in so_far.lacking]
        # No judge is asked about a group that cannot be scored yet.
        if len(able) < fewest or (so_far.waits and _compares(reward)):
            raise _too_few(group, members, found, context, so_far)
        with suppress(RequestNotSent):
            found[reward.name] = await _part_of(reward, group, able, context)
    return found


async def _part_of(
    reward: RewardSettings, group: GroupView, members: Sequence[TrajectoryView], context: JudgeContext
) -> KindResult:
    """One part for each member, as far as there is one. A part that may be dropped is dropped if it fails."""
    try:
        judged = await REWARDS[reward.kind](reward, group, members, context)
    except PartsMissing:  # the part may still arrive
        raise
    except JudgeFailed as e:
        if context.settings.when_missing(reward) != "drop_part":
            raise
        return KindResult({member.id: RewardPart(None, str(e), of_run=False) for member in members}, failed=e)
    return replace(judged, parts={id_: clip_to_range(reward, part) for id_, part in judged.parts.items()})


def judged_members(group: GroupView) -> list[TrajectoryView]:
    """The members that are judged.

    Raises:
        JudgeUnavailable: there are too few.
    """
    members = [m for m in group.members if is_usable(m.state, m.purpose, m.selection) and m.messages]
    if len(members) < _fewest(group, members):
        raise JudgeUnavailable(
            "too_few",
            f"group {group.id} has {len(members)} trajectories that can be judged, of {len(group.members)}: a group "
            "needs two, unless it is only measured (purpose val or eval)",
        )
    return members


def assume_ended(group: GroupView) -> GroupView:
    """A group as it would be judged if all its trajectories ended now."""
    over = TrajectoryState.COMPLETED
    members = [replace(m, state=over) if m.state is TrajectoryState.OPEN else m for m in group.members]
    return replace(group, members=members)


def is_comparison_only(rewards: Sequence[RewardSettings]) -> bool:
    """Whether no part of a recipe rates a trajectory by itself."""
    return bool(rewards) and all(_compares(reward) for reward in rewards if reward.weight > 0)


def _compares(reward: RewardSettings) -> bool:
    return reward.kind == "ruler"


def _measured(members: Sequence[TrajectoryView]) -> bool:
    return all(member.purpose in MEASURED for member in members)


def _fewest(group: GroupView, members: Sequence[TrajectoryView]) -> int:
    """The number of members that need a reward."""
    enough = is_one_enough(group.baseline, group.campaign_id) or (members and _measured(members))
    return 1 if enough else 2


def _made(
    members: Sequence[TrajectoryView], found: Mapping[str, KindResult], settings: JudgeSettings, *, hoped: bool = False
) -> RewardParts:
    """The composition of the rewards; `hoped`: parts not requested yet are assumed to be there."""
    ids = [member.id for member in members]
    there = dict.fromkeys(ids, RewardPart(0.0))
    unasked = [reward.name for reward in settings.in_force() if hoped and reward.name not in found]
    return select_parts(ids, _parts(found) | dict.fromkeys(unasked, there), settings)


def _parts(found: Mapping[str, KindResult]) -> dict[str, Mapping[str, RewardPart]]:
    return {name: judged.parts for name, judged in found.items()}


def _measured_somehow(members: Sequence[TrajectoryView], found: Mapping[str, KindResult]) -> bool:
    values = (part.value for judged in found.values() for part in judged.parts.values())
    return _measured(members) and any(value is not None for value in values)


def _too_few(
    group: GroupView,
    members: Sequence[TrajectoryView],
    found: Mapping[str, KindResult],
    context: JudgeContext,
    made: RewardParts,
) -> JudgeUnavailable | JudgeFailed:
    scores = [reward for reward in context.settings.in_force() if reward.effect == "score"]
    if len(members) == 1 and is_comparison_only(scores):
        return JudgeUnavailable(NEEDS_TWO, NEEDS_TWO_WHY)
    failed = next((judged.failed for judged in found.values() if judged.failed), None)
    if failed is not None:
        return failed
    undecided = {} if made.waits else _undecided(found, context.settings)
    if len(members) - len(undecided) < _fewest(group, members):
        id_, why = next(iter(undecided.items()))
        return CheckUndecided(
            GroupCode.CHECK_UNDECIDED,
            f"a check cannot be decided on {len(undecided)} of {len(members)} trajectories: {why} (on {id_})",
            spent=_spent(found),
        )
    absent = {} if made.waits else _absent(members, found, made)
    if len(members) - len(absent) < _fewest(group, members):
        id_, why = next(iter(absent.items()))
        return NoFollowUp(
            GroupCode.NO_FOLLOW_UP,
            f"{len(absent)} of {len(members)} trajectories have no reward, and none is expected: {why} (on {id_})",
            spent=_spent(found),
        )
    reasons = [f"{id_}: no reward: {why}" for id_, why in made.lacking.items()]
    more = f" and {len(reasons) - MAX_REASONS} more" if len(reasons) > MAX_REASONS else ""
    return PartsMissing(
        "parts_missing",
        f"{len(reasons)} of {len(members)} trajectories have no reward: {'; '.join(reasons[:MAX_REASONS])}{more}",
        spent=_spent(found),
    )


def _undecided(found: Mapping[str, KindResult], settings: JudgeSettings) -> dict[str, str]:
    """The trajectories that have no reward because code could not decide a part, each with the part and why."""
    counting = [reward.name for reward in settings.in_force() if reward.weight > 0 and reward.name in found]
    return {
        id_: f"{name}: {part.explanation}"
        for name in counting
        for id_, part in found[name].parts.items()
        if part.value is None and part.undecided
    }


def _absent(members: Sequence[TrajectoryView], found: Mapping[str, KindResult], made: RewardParts) -> dict[str, str]:
    """The trajectories that have no reward only because users gave none, each with the part and why."""
    names = [reward.name for reward in made.counting if reward.name in found]
    gaps = {
        member.id: {
            name: part
            for name in names
            if (part := found[name].parts.get(member.id)) is not None and part.value is None
        }
        for member in members
    }
    return {
        id_: "; ".join(f"{name}: {part.explanation}" for name, part in parts.items())
        for id_, parts in gaps.items()
        if parts and all(part.absent for part in parts.values())
    }


def _as_score(
    members: Sequence[TrajectoryView], found: Mapping[str, KindResult], context: JudgeContext, made: RewardParts
) -> GroupScore:
    prompt, ruling = _ruling(found)
    compared = _compared(found)
    spent = _spent(found)
    combined = combine_parts([member.id for member in members], _parts(found), made)
    rows = (row for reward in context.settings.in_force() for row in _rows(reward, found[reward.name], made))
    new = NewScore(
        recipe_hash=recipe_hash(context.settings, *(judged.code for judged in found.values())),
        absolute=_absolute(made, found, combined) and not is_one_step(members),
        judge_hash=judge_hash(context.settings) if _is_judged(made, found) else None,
        follow_up=any(reward.kind == "follow_up" for reward in made.counting),
        parts=[*_reward_rows(combined), *rows],
        judge_model=_judged_by(context.settings, found),
        judge_version=ruling.version if ruling else None,
        prompt_hash=prompt.hash if prompt else None,
        order_seed=prompt.seed if prompt else None,
        prompt=prompt.messages if prompt and ruling and ruling.asked and not compared.replies else None,
        prompts=[_asked(one.prompt) for one in compared.replies] if ruling and ruling.asked else (),
        run_prompts={id_: messages for judged in found.values() for id_, messages in judged.run_prompts.items()},
        reply=ruling.reply if ruling else None,
        tokens_in=spent.tokens_in,
        tokens_cached=spent.tokens_cached,
        tokens_out=spent.tokens_out,
        cost_usd=spent.cost_usd,
        latency_s=spent.latency_s if ruling else None,
        agreement=compared.agreement,
        disputed=compared.disputed if any(_compares(reward) for reward in made.counting) else None,
        replies=[_reply(one) for one in compared.replies],
    )
    return GroupScore(new, combined, prompt, ruling, context.recipe, compared.chosen)


def _absolute(made: RewardParts, found: Mapping[str, KindResult], combined: Mapping[str, RewardPart]) -> bool:
    """Whether the rewards are valid outside the group: no ranking, no dropped part, no veto that used other members.

    The reward of a single step is not comparable with those of whole trajectories.
    """
    by_others = any(
        (part.value or 0.0) > 0 and (combined[id_].value or 0.0) < 0  # below 0: the reward of another trajectory
        for reward in made.counting
        if reward.effect == "veto"
        for id_, part in found[reward.name].parts.items()
    )
    return not (made.left or by_others or any(_compares(reward) for reward in made.counting))


def _is_judged(made: RewardParts, found: Mapping[str, KindResult]) -> bool:
    """Whether a model's verdict is in the rewards: not only measured, and not replaced by a person's choice."""
    by_model = (found[reward.name] for reward in made.counting if reward.kind in BY_MODEL)
    return any(judged.ruling is not None and not judged.chosen for judged in by_model)


def _spent(found: Mapping[str, KindResult]) -> JudgeUsage:
    """The total cost, including judges without a result."""
    paid = [judged.ruling.spent for judged in found.values() if judged.ruling]
    paid += [judged.failed.spent for judged in found.values() if judged.failed]
    return sum(paid, JudgeUsage())


def _ruling(found: Mapping[str, KindResult]) -> tuple[GroupPrompt | None, GroupRuling | None]:
    return next(((judged.prompt, judged.ruling) for judged in found.values() if judged.ruling), (None, None))


def _compared(found: Mapping[str, KindResult]) -> KindResult:
    """The result of comparing the group; empty if there was none."""
    return next((judged for judged in found.values() if judged.prompt), KindResult({}))


def _judged_by(settings: JudgeSettings, found: Mapping[str, KindResult]) -> str | None:
    """The models that took part in the score: RULER's, and a rubric's."""
    models = [settings.ranked_by for judged in found.values() if judged.ruling and judged.prompt]
    models += [settings.model for judged in found.values() if judged.ruling and not judged.prompt]
    return " + ".join(dict.fromkeys(models)) or None


def _asked(prompt: GroupPrompt) -> JudgePrompt:
    """One of several requests about the group."""
    return JudgePrompt(None, prompt.messages, prompt.turn.number, prompt.words)


def _reply(reply: PanelReply) -> NewReply:
    """One of several replies as it is stored."""
    ruling, spent = reply.ruling, reply.spent
    return NewReply(
        number=reply.prompt.turn.number,
        judge_model=reply.judge,
        judge_version=ruling.version if ruling else None,
        weight=reply.weight,
        reply=ruling.reply if ruling else None,
        failed=f"{reply.failed.code}: {reply.failed}" if reply.failed else None,
        verdicts=[_words(reply, run) for run in ruling.verdicts] if ruling else [],
        tokens_in=spent.tokens_in,
        tokens_cached=spent.tokens_cached,
        tokens_out=spent.tokens_out,
        cost_usd=spent.cost_usd,
        latency_s=spent.latency_s,
    )


def _words(reply: PanelReply, run: str) -> ReplyVerdict:
    assert reply.ruling is not None
    verdict = reply.ruling.verdicts[run]
    return ReplyVerdict(
        run, verdict.score, verdict.explanation, {name: sub.score for name, sub in verdict.subs.items()}
    )


def _reward_rows(combined: Mapping[str, RewardPart]) -> Iterator[NewPart]:
    return (NewPart(id_, REWARD, part.value, None, part.explanation, part.unasked) for id_, part in combined.items())


def _rows(reward: RewardSettings, judged: KindResult, made: RewardParts) -> Iterator[NewPart]:
    """A reward's parts and their extra values. A part dropped from the group has the weight 0; a veto has none.

    A reward of kind `turns` without a weight changes no reward. Then its turns' values have the weight 1 themselves.
    """
    own = 1.0 if reward.kind == "turns" and not reward.weight else None
    sign = {"score": 1.0, "penalty": -1.0, "veto": None}[reward.effect]
    weight = sign if sign is None else sign * reward.weight * (reward.name not in made.left)
    for id_, part in judged.parts.items():
        yield NewPart(id_, reward.name, part.value, weight, part.explanation, part.unasked)
        for name, value in part.extra.items():
            yield NewPart(id_, f"{reward.name}.{name}", value, own, part.reasons.get(name))
