"""A part of a recipe that a judge model decides, tried on the set.

Owns: which parts these are, judging the set's groups by one of them, how many at once, and when to give up. Refuses:
how a group is judged: that is `judge.scoring.score`, by the same prompt, reader and bench as the worker's. Nothing is
read from the record or written there.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from dataclasses import replace

from judge.errors import CannotJudge, JudgeDown, JudgeFailed, JudgeUnanswered, Spent
from judge.rewards.kind import Bench
from judge.scoring.score import foresee, score_group
from judge.settings import JudgeSettings, RewardSettings
from judge.tricks.groups import Trial, order_seed
from judge.tricks.tally import Outcome, Seen, outcome


def by_model(settings: JudgeSettings) -> list[RewardSettings]:
    """The parts of a recipe that a judge model decides and that pay.

    A penalty or veto by a rubric pays nobody, and a weight of 0 moves nothing: no trick gains by them. Without a model
    code decides a rubric, or nobody.
    """
    kinds = ("ruler", "rubric") if settings.model else ("ruler",)
    parts = [reward for reward in settings.in_force() if reward.kind in kinds]
    return [reward for reward in parts if reward.effect == "score" and reward.weight > 0]


def alone(bench: Bench, reward: RewardSettings) -> Bench:
    """The bench of a recipe, as if the part were all of it."""
    solo = reward.model_copy(update={"weight": 1.0, "missing": "exclude"})
    settings = bench.settings.model_copy(update={"rewards": [solo], "missing": None})
    return replace(bench, settings=settings, asked_of=None)


async def try_part(
    reward: RewardSettings, kinds: Iterable[Sequence[Trial]], bench: Bench, seed: int, tell: Callable[[Seen], None]
) -> AsyncIterator[Outcome]:
    """What came of each kind (its trials), as it comes; `tell` hears of each group.

    Raises:
        JudgeDown: of a whole kind no group could be judged, and the judge was down each time.
    """
    solo = alone(bench, reward)
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
        yield outcome(reward.name, kind.name, [(one, one.fooled(kind.bound, by_place=kind.by_place)) for one in told])


async def foresee_part(reward: RewardSettings, trials: Iterable[Trial], bench: Bench) -> None:
    """Go as far as trying goes without an answer: whoever is asked counts."""
    solo = alone(bench, reward)
    for one in trials:
        await foresee(one.group, solo)


async def _tried(
    one: Trial, bench: Bench, reward: RewardSettings, seed: int, room: asyncio.Semaphore, tell: Callable[[Seen], None]
) -> Seen | JudgeDown:
    async with room:
        shown = order_seed(one, random.Random(f"{seed} {one.name}"))
        try:
            seen = await _judged(one, replace(bench, order_seed=lambda: shown), reward)
        except JudgeDown as e:
            tell(_unjudged(one, e))
            return e
        except (JudgeFailed, CannotJudge) as e:
            seen = _unjudged(one, e)
    tell(seen)
    return seen


async def _judged(one: Trial, bench: Bench, reward: RewardSettings) -> Seen:
    scored = await score_group(one.group, bench)
    rows = [row for row in scored.new.parts if row.part == reward.name and row.trajectory_id == one.trick]
    new = scored.new
    spent = Spent(new.tokens_in, new.tokens_cached, new.tokens_out, new.cost_usd, new.latency_s or 0.0)
    return Seen(
        one.name,
        scored.rewards[one.good].value,
        scored.rewards[one.failure].value,
        scored.rewards[one.trick].value,
        said=next((row.explanation for row in rows), None),
        requests=scored.ruling.asked if scored.ruling else 0,
        spent=spent,
        version=new.judge_version,
    )


def _unjudged(one: Trial, why: JudgeFailed | CannotJudge) -> Seen:
    spent = why.spent if isinstance(why, JudgeFailed) else Spent()
    replies = [m for m in why.exchange if m["role"] == "assistant"] if isinstance(why, JudgeUnanswered) else []
    return Seen(one.name, None, None, None, str(why), why.code, requests=len(replies), spent=spent)
