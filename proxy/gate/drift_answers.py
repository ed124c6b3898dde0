"""Measure what a version has forgotten: it answers first turns of its alias's drift set, and a judge scores them.

Owns: asking, one value for each member, and the test against the version's ancestors. Refuses: who is in the set
(`recorder.queue.training.drift_set`), how answers become rows (`proxy.gate.behaviour`), and the verdict
(`proxy.gate.examination`).

The answers are scored as the members were. Where the members' rewards hold outside their groups, each answer is judged
alone, and its reward counts. Where a judge only compares, each is judged beside the recorded answer, and wins count.

An ancestor's values are those of its own gate, on the members that both answered. Each ancestor gets its share of the
test's error rate, so many ancestors do not make a false rejection more likely.
"""

from __future__ import annotations

import asyncio
import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final

from proxy.engine.answers import EngineAnswer, EngineQuestion
from proxy.errors import EngineError, EngineUnreachable
from proxy.gate.behaviour import ALPHA, BATCH, BehaviourArms, has_judge, judge_alone, judge_pairs, judging_hold
from proxy.gate.sanity import AnswerPair
from recorder.registry import kept_versions
from recorder.registry.drift_scores import DriftScores, load_drift_scores, record_drift_scores
from recorder.registry.versions import get_version
from recorder.stats.significance_tests import test_mean
from recorder.views.trajectories.drift_turns import DriftTurn, DriftTurns, load_drift_turns

FORGETTING: Final = "forgetting"  # code of a version that is shown to have forgotten
ANCESTORS: Final = 8  # newest ones with values that a version is compared with
LOOKED_AT: Final = 64  # newest ancestors among which these are sought


@dataclass(frozen=True, slots=True)
class ScoreFall:
    """A version is shown to score lower than its ancestor `earlier`: the two means over `members` of the drift set."""

    earlier: str  # its name
    before: float
    now: float
    members: int


@dataclass
class ForgettingResult:
    """What is measured. `why`: in words, why answers are missing; "": none is."""

    scores: DriftScores | None = None
    fall: ScoreFall | None = None
    why: str = ""

    @property
    def figures(self) -> dict[str, float]:
        """The figures for the version's row."""
        if self.scores is None:
            return {}
        before = {"drift.score_before": self.fall.before} if self.fall is not None else {}
        return {**self.scores.metrics, **before}

    def describe_fall(self, most: float) -> str:
        """What shows that the version has forgotten, in words. `most`: `gate.forgetting_max`."""
        assert self.fall is not None
        return (
            f"it scores {self.fall.now:.3g} on {self.fall.members} tasks of the drift set, where {self.fall.earlier} "
            f"scored {self.fall.before:.3g}; {most:g} lower is allowed (gate.forgetting_max)"
        )


async def measure_forgetting(arms: BehaviourArms, into: ForgettingResult, answers: int, most: float | None) -> None:
    """Ask a version at most `answers` first turns of the drift set, and write what they are worth, also to `into`.

    `most`: the mean difference to an ancestor above which it has forgotten; None: measured only. Raises
    EngineUnreachable, StoreError.
    """
    found = await load_drift_turns(arms.store, arms.alias, answers)
    if not found.turns:
        into.why = "there is no drift set yet (trainer.drift_trajectories)"
        return
    if not await has_judge(arms):
        into.why = "no judge is running to score answers to the drift set (`hone judge`)"
        return
    values, into.why = await _values(arms, found)
    if not values:
        into.why = into.why or "no answer to the drift set got a score"
        return
    into.scores = DriftScores("reward" if found.absolute else "win", values)
    await record_drift_scores(arms.store, arms.version.id, into.scores)
    if most is not None:
        into.fall = find_fall(into.scores, await _earlier(arms, into.scores), most)


def find_fall(own: DriftScores, earlier: Mapping[str, DriftScores], most: float) -> ScoreFall | None:
    """Return the largest fall that is shown, below an ancestor by more than `most`; None: none is.

    `earlier`: the values of ancestors, by name.
    """
    falls = [
        fall
        for name, before in earlier.items()
        if (fall := _fall(name, own.values, before.values, most, ALPHA / len(earlier))) is not None
    ]
    return max(falls, key=lambda fall: fall.before - fall.now, default=None)


def _fall(
    name: str, own: Mapping[str, float], before: Mapping[str, float], most: float, alpha: float
) -> ScoreFall | None:
    shared = sorted(own.keys() & before.keys())
    if not shared:
        return None
    now, then = [own[member] for member in shared], [before[member] for member in shared]
    width = max(1.0, *now, *then) - min(0.0, *now, *then)  # rewards are in 0..1, or else as far apart as those seen
    claim = (1 - most / width) / 2
    differences = [(1 + (a - b) / width) / 2 for a, b in zip(now, then, strict=True)]
    if claim <= 0 or not test_mean(differences, at_least=claim, alpha=alpha).shown_worse:
        return None
    return ScoreFall(name, fmean(then), fmean(now), len(shared))


async def _earlier(arms: BehaviourArms, scores: DriftScores) -> dict[str, DriftScores]:
    """The values of the newest measured versions in the line of the live one, by name."""
    async with arms.store.read() as conn:
        line = await kept_versions.read_line(conn, arms.live.id)
    names = {one.id: f"{arms.alias.name}@{one.number}" for one in line[:LOOKED_AT]}
    found = await load_drift_scores(arms.store, list(names), scores.kind)
    return {names[id_]: found[id_] for id_ in list(found)[:ANCESTORS]}


async def _values(arms: BehaviourArms, found: DriftTurns) -> tuple[dict[str, float], str]:
    """The value of each member whose answer was scored, and why others were not asked."""
    values: dict[str, float] = {}
    for at in range(0, len(found.turns), BATCH):
        if (held := await judging_hold(arms)) is not None:
            return values, f"judging of answers to the drift set has stopped: {held.why}"
        asked = await _ask(arms, found.turns[at : at + BATCH])
        answered = [(turn, answer) for turn, answer in asked if answer is not None]
        judged = await (_alone(arms, answered) if found.absolute else _beside_recorded(arms, answered))
        values |= {member: value for member, value in judged.items() if value is not None}
    return values, ""


async def _ask(arms: BehaviourArms, turns: Sequence[DriftTurn]) -> list[tuple[DriftTurn, EngineAnswer | None]]:
    """The version's answers, at the temperatures of the recorded ones; None where the engine could not answer."""

    async def ask(turn: DriftTurn) -> tuple[DriftTurn, EngineAnswer | None]:
        try:
            return turn, await arms.replica.answer(arms.version.engine_name, _question(turn))
        except EngineUnreachable:
            raise
        except EngineError:  # for example too long for the engine
            return turn, None

    tasks = [asyncio.create_task(ask(turn)) for turn in turns]
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()


def _question(turn: DriftTurn) -> EngineQuestion:
    sampling = turn.call.sampling
    return EngineQuestion(turn.call.messages, turn.call.tools, sampling.max_tokens, sampling.temperature)


Answered = Sequence[tuple[DriftTurn, EngineAnswer]]


async def _alone(arms: BehaviourArms, answered: Answered) -> dict[str, float | None]:
    rewards = await judge_alone(arms, [(_question(turn), answer) for turn, answer in answered])
    return {turn.member: reward for (turn, _), reward in zip(answered, rewards, strict=True)}


async def _beside_recorded(arms: BehaviourArms, answered: Answered) -> dict[str, float | None]:
    """The pairs of one version's recorded answers are judged at once: each is recorded under its own version."""
    of_version: defaultdict[str, list[tuple[DriftTurn, EngineAnswer]]] = defaultdict(list)
    for turn, answer in answered:
        of_version[turn.version_id].append((turn, answer))

    async def judge(version_id: str, own: Answered) -> dict[str, float | None]:
        beside = replace(arms, live=await get_version(arms.store, version_id))
        pairs = [AnswerPair(_question(turn), answer, _recorded(turn)) for turn, answer in own]
        return dict(zip((turn.member for turn, _ in own), await judge_pairs(beside, pairs), strict=True))

    found = await asyncio.gather(*(judge(version_id, own) for version_id, own in of_version.items()))
    return {member: value for one in found for member, value in one.items()}


def _recorded(turn: DriftTurn) -> EngineAnswer:
    answer = turn.answer
    assert answer.message is not None
    assert answer.token_ids is not None
    return EngineAnswer(
        answer.message,
        list(turn.call.prompt_token_ids or ()),
        list(answer.token_ids),
        list(answer.logprobs or [math.nan] * len(answer.token_ids)),
        answer.finish_reason,
    )
