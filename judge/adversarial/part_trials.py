"""A part of a recipe that a judge model decides, tried on the set.

Owns: which parts these are, judging the set's groups by one of them, how many at once, and when to give up. Refuses:
how a group is judged: that is `judge.scoring.group_score`, by the same prompt, reader and bench as the worker's.
Nothing is read from the record or written there.

Degenerate answers before the parts of a recipe that code decides: functions, rules, criteria with a `check`.

Owns: which parts these are, asking them about an honest failure and the degenerate answer to the same task, and what it
means that the second got more. Refuses: asking a judge model, ever; what the answers are
(`judge.adversarial.trick_kinds`).

A part pays for an answer where it gives it more than it gives the honest failure: a function more, a penalty or a veto
less. A part that gives either of them no value pays for nothing.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from judge.adversarial.groups import GroupTrial, order_seed
from judge.adversarial.trick_kinds import KindOutcome, TrialResult, kind_outcome
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
    """The parts of a recipe that a judge model decides and that pay.

    A penalty or veto by a rubric pays nobody, and a weight of 0 moves nothing: no trick gains by them. Without a model
    code decides a rubric, or nobody.
    """
    kinds = ("ruler", "rubric") if settings.model else ("ruler",)
    parts = [reward for reward in settings.in_force() if reward.kind in kinds]
    return [reward for reward in parts if reward.effect == "score" and reward.weight > 0]


def single_part_context(bench: JudgeContext, reward: RewardSettings) -> JudgeContext:
    """The bench of a recipe, as if the part were all of it."""
    solo = reward.model_copy(update={"weight": 1.0, "missing": "exclude"})
    settings = bench.settings.model_copy(update={"rewards": [solo], "missing": None})
    return replace(bench, settings=settings, asked_of=None)


async def try_part(
    reward: RewardSettings,
    kinds: Iterable[Sequence[GroupTrial]],
    bench: JudgeContext,
    seed: int,
    tell: Callable[[TrialResult], None],
) -> AsyncIterator[KindOutcome]:
    """What came of each kind (its trials), as it comes; `tell` hears of each group.

    Raises:
        JudgeDown: of a whole kind no group could be judged, and the judge was down each time.
    """
    solo = single_part_context(bench, reward)
    room = asyncio.Semaphore(bench.settings.concurrency)
    for trials in kinds:
        seen = await asyncio.gather(*(_tried(one, solo, reward, seed, room, tell) for one in trials))
        if seen and all(isinstance(one, JudgeDown) for one in seen):
            raise next(one for one in seen if isinstance(one, JudgeDown))
        kind = trials[0].kind
        told = [
            _unjudged(trial, one) if isinstance(one, JudgeDown) else one
            for trial, one in zip(trials, seen, strict=True)
        ]
        yield kind_outcome(
            reward.name, kind.name, [(one, one.fooled(kind.bound, by_place=kind.by_place)) for one in told]
        )


async def foresee_part(reward: RewardSettings, trials: Iterable[GroupTrial], bench: JudgeContext) -> None:
    """Go as far as trying goes without an answer: whoever is asked counts."""
    solo = single_part_context(bench, reward)
    for one in trials:
        await foresee_score(one.group, solo)


async def _tried(
    one: GroupTrial,
    bench: JudgeContext,
    reward: RewardSettings,
    seed: int,
    room: asyncio.Semaphore,
    tell: Callable[[TrialResult], None],
) -> TrialResult | JudgeDown:
    async with room:
        shown = order_seed(one, random.Random(f"{seed} {one.name}"))
        try:
            seen = await _judged(one, replace(bench, order_seed=lambda: shown), reward)
        except JudgeDown as e:
            tell(_unjudged(one, e))
            return e
        except (JudgeFailed, JudgeUnavailable) as e:
            seen = _unjudged(one, e)
    tell(seen)
    return seen


async def _judged(one: GroupTrial, bench: JudgeContext, reward: RewardSettings) -> TrialResult:
    scored = await score_group(one.group, bench)
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
    """One task with a degenerate answer to it, and the honest failure, by their runs' ids."""

    kind: str
    name: str
    group: GroupView
    failure: str
    trick: str


def coded_parts(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of a recipe that code decides, or may: that depends on a rubric's criteria."""
    return [reward for reward in settings.in_force() if reward.kind in BY_CODE and reward.weight > 0]


def code_cases(trials: Iterable[GroupTrial]) -> Iterator[CodeCase]:
    """Those of the set's own groups."""
    for one in trials:
        if one.kind.degenerate is not None:
            yield CodeCase(one.kind.name, one.name, one.group, one.failure, one.trick)


async def try_code(reward: RewardSettings, cases: Sequence[CodeCase], bench: JudgeContext) -> list[KindOutcome]:
    """What came of each kind of degenerate answer; none where no code decides any of its tasks.

    Raises:
        FunctionsDown: the recipe's functions cannot be run.
    """
    seen: dict[str, list[tuple[TrialResult, bool | None]]] = {}
    for one in cases:
        group = _without_model(one.group) if reward.kind == "rubric" else one.group
        if group is not None:
            parts = await _parts(reward, group, bench, (one.failure, one.trick))
            seen.setdefault(one.kind, []).append(_seen(one, reward, parts))
    return [kind_outcome(reward.name, kind, told) for kind, told in seen.items()]


async def _parts(
    reward: RewardSettings, group: GroupView, bench: JudgeContext, ids: Sequence[str]
) -> Mapping[str, RewardPart]:
    members = [member for member in group.members if member.id in ids]
    judged = await REWARDS[reward.kind](reward, group, members, bench)
    return {id_: clip_to_range(reward, part) for id_, part in judged.parts.items()}


def _seen(one: CodeCase, reward: RewardSettings, parts: Mapping[str, RewardPart]) -> tuple[TrialResult, bool | None]:
    failure, trick = (parts[id_].value for id_ in (one.failure, one.trick))
    if failure is None or trick is None:
        missing = parts[one.trick] if trick is None else parts[one.failure]
        return TrialResult(one.name, None, failure, trick, missing.explanation, "no_value"), None
    pays = trick > failure if reward.effect == "score" else trick < failure
    return TrialResult(one.name, None, failure, trick, parts[one.trick].explanation), pays


def _without_model(group: GroupView) -> GroupView | None:
    """The group with those criteria alone that code decides; None: there is none that could be earned."""
    assert group.scenario is not None
    coded = [entry for entry in group.scenario.rubric or () if _is_coded(entry)]
    if not any(one.weight > 0 for one in rubric.parse_criteria(coded)) if coded else True:
        return None
    scenario = replace(group.scenario, rubric=coded)
    members: list[TrajectoryView] = [replace(member, scenario=scenario) for member in group.members]
    return replace(group, scenario=scenario, members=members)


def _is_coded(entry: Any) -> bool:
    return isinstance(entry, Mapping) and entry.get("check") is not None
