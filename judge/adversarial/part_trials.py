"""Try one part of a judge recipe on the adversarial set.

Owns: which parts a judge model decides and which parts code decides (functions, rules, criteria with a `check`), how
many groups are judged at once, and when a trial stops. Refuses: scoring (`judge.scoring.group_score`, with the prompt,
reader and context of the worker) and the tricks (`judge.adversarial.tricks`). Nothing is read from the record or
written to it.

A part decided by code is fooled if it rates a degenerate answer better than the honest failure at the same task: a
function by a higher value, a penalty or a veto by a lower one. If it gives either of them no value, it is not fooled.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judge.adversarial.groups import GroupTrial, order_seed
from judge.adversarial.tricks import KindOutcome, TrialResult, kind_outcome
from judge.errors import JudgeDown, JudgeFailed, JudgeUnanswered, JudgeUnavailable, JudgeUsage
from judge.rewards.judge_context import JudgeContext
from judge.rewards.kinds import REWARDS
from judge.rewards.part import RewardPart
from judge.scoring.group_score import foresee_score, score_group
from judge.scoring.reward_parts import clip_to_range
from judge.settings import JudgeSettings, RewardSettings
from recorder.llm import rubric
from recorder.views.trajectories.shapes import GroupView, TrajectoryView


def model_parts(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of a recipe that a judge model decides and that can raise a reward.

    A penalty or veto by a rubric raises no reward, and a weight of 0 changes none, so no trick gains by them. Without a
    judge model, a rubric is decided by code or not at all.
    """
    kinds = ("ruler", "rubric", "turns") if settings.model else ("ruler",)
    parts = [reward for reward in settings.in_force() if reward.kind in kinds]
    return [reward for reward in parts if reward.effect == "score" and reward.weight > 0]


def single_part_context(context: JudgeContext, reward: RewardSettings) -> JudgeContext:
    """The judge context of a recipe reduced to one part."""
    solo = reward.model_copy(update={"weight": 1.0, "missing": "exclude"})
    settings = context.settings.model_copy(update={"rewards": [solo], "missing": None})
    return replace(context, settings=settings, asked_of=None)


async def try_part(
    reward: RewardSettings,
    kinds: Iterable[Sequence[GroupTrial]],
    context: JudgeContext,
    seed: int,
    tell: Callable[[TrialResult], None],
) -> AsyncIterator[KindOutcome]:
    """Yield the outcome of each kind (given by its trials) as it is complete; `tell` is called for each group.

    Raises:
        JudgeDown: no group of a kind could be judged, because the judge was down each time.
    """
    solo = single_part_context(context, reward)
    room = asyncio.Semaphore(context.settings.concurrency)
    for trials in kinds:
        seen = await asyncio.gather(*(_try_group(one, solo, reward, seed, room, tell) for one in trials))
        if seen and all(isinstance(one, JudgeDown) for one in seen):
            raise next(one for one in seen if isinstance(one, JudgeDown))
        kind = trials[0].kind
        results = [
            _unjudged(trial, one) if isinstance(one, JudgeDown) else one
            for trial, one in zip(trials, seen, strict=True)
        ]
        yield kind_outcome(
            reward.name, kind.name, [(one, one.fooled(kind.bound, by_place=kind.by_place)) for one in results]
        )


async def foresee_part(reward: RewardSettings, trials: Iterable[GroupTrial], context: JudgeContext) -> None:
    """Run a trial without any answer, so that a judge that only counts sees each request."""
    solo = single_part_context(context, reward)
    for one in trials:
        await foresee_score(one.group, solo)


async def _try_group(
    one: GroupTrial,
    context: JudgeContext,
    reward: RewardSettings,
    seed: int,
    room: asyncio.Semaphore,
    tell: Callable[[TrialResult], None],
) -> TrialResult | JudgeDown:
    async with room:
        shown = order_seed(one, random.Random(f"{seed} {one.name}"))
        try:
            seen = await _judge_group(one, replace(context, order_seed=lambda: shown), reward)
        except JudgeDown as e:
            tell(_unjudged(one, e))
            return e
        except (JudgeFailed, JudgeUnavailable) as e:
            seen = _unjudged(one, e)
    tell(seen)
    return seen


async def _judge_group(one: GroupTrial, context: JudgeContext, reward: RewardSettings) -> TrialResult:
    scored = await score_group(one.group, context)
    rows = [row for row in scored.new.parts if row.part == reward.name and row.trajectory_id == one.trick]
    new = scored.new
    spent = JudgeUsage(new.tokens_in, new.tokens_cached, new.tokens_out, new.cost_usd, new.latency_s or 0.0)
    return TrialResult(
        one.name,
        scored.rewards[one.good].value,
        scored.rewards[one.failure].value,
        scored.rewards[one.trick].value,
        detail=next((row.explanation for row in rows), None),
        requests=scored.ruling.asked if scored.ruling else 0,
        spent=spent,
        version=new.judge_version,
    )


def _unjudged(one: GroupTrial, why: JudgeFailed | JudgeUnavailable) -> TrialResult:
    spent = why.spent if isinstance(why, JudgeFailed) else JudgeUsage()
    replies = [m for m in why.exchange if m["role"] == "assistant"] if isinstance(why, JudgeUnanswered) else []
    return TrialResult(one.name, None, None, None, str(why), why.code, requests=len(replies), spent=spent)


BY_CODE = ("function", "rule", "rubric")


@dataclass(frozen=True, slots=True)
class CodeCase:
    """One task with a degenerate answer and an honest failure, by the ids of their trajectories."""

    kind: str
    name: str
    group: GroupView
    failure: str
    trick: str


def coded_parts(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of a recipe that code decides, or may decide, depending on a rubric's criteria."""
    return [reward for reward in settings.in_force() if reward.kind in BY_CODE and reward.weight > 0]


def code_cases(trials: Iterable[GroupTrial]) -> Iterator[CodeCase]:
    """The cases of the set's own groups."""
    for one in trials:
        if one.kind.degenerate is not None:
            yield CodeCase(one.kind.name, one.name, one.group, one.failure, one.trick)


async def try_code(reward: RewardSettings, cases: Sequence[CodeCase], context: JudgeContext) -> list[KindOutcome]:
    """The outcome of each kind of degenerate answer; empty if code decides none of its tasks.

    Raises:
        FunctionsDown: the recipe's functions cannot be run.
    """
    seen: dict[str, list[tuple[TrialResult, bool | None]]] = {}
    for one in cases:
        group = _without_model(one.group) if reward.kind == "rubric" else one.group
        if group is not None:
            parts = await _parts(reward, group, context, (one.failure, one.trick))
            seen.setdefault(one.kind, []).append(_code_result(one, reward, parts))
    return [kind_outcome(reward.name, kind, results) for kind, results in seen.items()]


async def _parts(
    reward: RewardSettings, group: GroupView, context: JudgeContext, ids: Sequence[str]
) -> Mapping[str, RewardPart]:
    members = [member for member in group.members if member.id in ids]
    judged = await REWARDS[reward.kind](reward, group, members, context)
    return {id_: clip_to_range(reward, part) for id_, part in judged.parts.items()}


def _code_result(
    one: CodeCase, reward: RewardSettings, parts: Mapping[str, RewardPart]
) -> tuple[TrialResult, bool | None]:
    failure, trick = (parts[id_].value for id_ in (one.failure, one.trick))
    if failure is None or trick is None:
        missing = parts[one.trick] if trick is None else parts[one.failure]
        return TrialResult(one.name, None, failure, trick, missing.explanation, "no_value"), None
    pays = trick > failure if reward.effect == "score" else trick < failure
    return TrialResult(one.name, None, failure, trick, parts[one.trick].explanation), pays


def _without_model(group: GroupView) -> GroupView | None:
    """The group reduced to criteria that code decides; None if none of them can be earned."""
    assert group.scenario is not None
    coded = [entry for entry in group.scenario.rubric or () if _is_coded(entry)]
    if not any(one.weight > 0 for one in rubric.parse_criteria(coded)) if coded else True:
        return None
    scenario = replace(group.scenario, rubric=coded)
    members: list[TrajectoryView] = [replace(member, scenario=scenario) for member in group.members]
    return replace(group, scenario=scenario, members=members)


def _is_coded(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("check") is not None
