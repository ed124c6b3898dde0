"""Attempts of a group, best first, and their turns in rows: the shapes, and how they come about.

Owns: the order of attempts, what a cell of a row says, the sentence that tells how advantages come about. Refuses:
queries (`recorder.views.comparison.loader`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from recorder.queue.judging.scores import NewPart, part_rewards, split_reward
from recorder.queue.training.baselines import ComparedReward
from recorder.states import GroupState
from recorder.stats.advantages import exclusion_from_mean, group_advantages
from recorder.views.comparison.alignment import (
    MOST_TURNS,
    ComparedCall,
    align_turns,
    compare_calls,
    list_differences,
    shared_beginning,
)
from recorder.views.comparison.turns import ConversationTurn
from recorder.views.trajectories.shapes import TrajectoryRow

ONLY_HERE: Final = "only here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(TrajectoryRow):
    """A run of a group as its row tells. `version`: its name."""

    version: str | None
    tags: Mapping[str, Any]
    call_count: int


@dataclass(frozen=True, slots=True)
class Part:
    """One number that a reward is made of, and why it is what it is. `value` None: it could not be had."""

    name: str
    value: float | None
    weight: float | None
    explanation: str | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One run in its place among the group's: `number` 1 has the highest reward; those without one come last.

    `explanation` is what the judge said of the whole reward. `no_advantage`: why it has none, where it has none.
    """

    number: int
    trajectory: Member
    reward: float | None
    explanation: str | None
    parts: tuple[Part, ...]
    advantage: float | None
    no_advantage: str | None


@dataclass(frozen=True, slots=True)
class GroupRank:
    """One attempt's place among the `of` of its group, and how the advantages come about there."""

    attempt: Attempt
    of: int
    rule: str


@dataclass(frozen=True, slots=True)
class Preference:
    """That somebody found one attempt better than another, or as good as it (`tie`); both by their numbers.

    `by`: who, as far as is known.
    """

    winner: int
    loser: int
    by: str | None
    comment: str | None
    at: float
    tie: bool = False

    def sentence(self) -> str:
        """What was said, in words."""
        if self.tie:
            return f"attempts {self.winner} and {self.loser} are as good as each other"
        return f"attempt {self.winner} is better than attempt {self.loser}"


@dataclass(frozen=True, slots=True)
class ComparisonCell:
    """What an attempt did in one row.

    `state`: `shared` (all columns did the same, and the first alone carries it), `same` (as the attempt numbered
    `against` on its left, which carries it), `differs` (by `words`, from `against`, the most alike on its left; None:
    it is the leftmost one here), `missing` (it has no turn here). `words` says in words what differs.
    """

    state: Literal["shared", "same", "differs", "missing"]
    against: int | None = None
    differences: tuple[str, ...] = ()
    role: str | None = None
    text: str = ""
    thinking: str = ""
    calls: tuple[ComparedCall, ...] = ()
    call_id: str | None = None  # of the model call that sampled it


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The group. `version` is the one that it is pinned to.

    `step` is the number of the newest step that took it, `step_version` what that made.
    """

    id: str
    external_id: str | None
    state: GroupState
    reason: str | None
    alias: str | None
    version: str | None
    campaign_id: str | None
    scenario: str | None
    declared_size: int | None
    members: int
    baseline: str | None
    score_id: str | None
    judge: str | None
    judged_at: float | None
    tokens_in: int | None  # that its score took, with those out and the money
    tokens_out: int | None
    cost_usd: float | None
    step_id: str | None
    step: int | None
    step_version: str | None
    agreement: float | None  # of several replies of judges: mean tau-b of each two
    try_after: float | None  # when a judge takes it again (unix seconds), where one is to


@dataclass(frozen=True, slots=True)
class Comparison:
    """Attempts side by side. `attempts` are all, best first; `columns` the numbers of those whose turns are compared.

    `rule` says how the advantages come about. `beginning` is what all columns begin with, `rows` what comes then, a
    cell a column; `turns_left`: of a longer column, how many turns are not compared.
    """

    group: GroupHead
    rule: str
    attempts: tuple[Attempt, ...]
    preferences: tuple[Preference, ...]
    columns: tuple[int, ...]
    beginning: tuple[ComparisonCell, ...]
    rows: tuple[tuple[ComparisonCell, ...], ...]
    turns_not_shown: tuple[int, ...]

    def attempt(self, number: int) -> Attempt:
        """One attempt by its number."""
        return self.attempts[number - 1]


def rank_attempts(
    members: Sequence[Member], parts: Sequence[NewPart], compared: Sequence[ComparedReward], baseline: str | None
) -> tuple[tuple[Attempt, ...], str]:
    """All attempts, best first, and how their advantages come about.

    `compared`: what the newest step on the group compared with, where that was no group's mean; `baseline`: what its
    alias compares with.
    """
    own: dict[str, list[NewPart]] = {}
    for part in parts:
        own.setdefault(part.trajectory_id, []).append(part)
    rewards = part_rewards(parts)
    advantages, why, rule = _advantages(members, rewards, compared, baseline)
    ordered = sorted(members, key=lambda one: (_last_without(rewards.get(one.id)), one.started_at, one.id))
    found = (
        _attempt(number, one, own.get(one.id, ()), advantages.get(one.id), why.get(one.id))
        for number, one in enumerate(ordered, 1)
    )
    return tuple(found), rule


def best_and_worst(attempts: Sequence[Attempt]) -> tuple[Attempt, Attempt]:
    """Of several attempts, best first, the best and the worst that has a reward: they say most of a group."""
    return attempts[0], next((one for one in attempts[:0:-1] if one.reward is not None), attempts[1])


def _last_without(reward: float | None) -> tuple[bool, float]:
    return (True, 0.0) if reward is None or math.isnan(reward) else (False, -reward)


def _attempt(
    number: int, member: Member, parts: Sequence[NewPart], advantage: float | None, why: str | None
) -> Attempt:
    reward, others = split_reward(parts)
    value, explanation = (reward.value, reward.explanation) if reward is not None else (None, None)
    reason = None if advantage is not None else why
    return Attempt(number, member, value, explanation, parts_shown(others), advantage, reason)


def parts_shown(parts: Iterable[NewPart]) -> tuple[Part, ...]:
    """Parts of a score as they are shown of one attempt."""
    return tuple(Part(part.part, part.value, part.weight, part.explanation) for part in parts)


def _advantages(
    members: Sequence[Member],
    rewards: Mapping[str, float | None],
    compared: Sequence[ComparedReward],
    baseline: str | None,
) -> tuple[Mapping[str, float], Mapping[str, str], str]:
    """Advantage by run, why there is none by run, and the rule."""
    if compared:
        over = {one.trajectory_id: one.reward - one.mean for one in compared}
        why = {one.id: "the step that trained on the group left it out" for one in members if one.id not in over}
        return over, why, f"reward − mean of earlier runs, as the step had it: {_means(compared)}"
    out = {
        one.id: code
        for one in members
        if (code := exclusion_from_mean(one.state, one.selection, one.purpose, rewards.get(one.id)))
    }
    if not rewards:
        return {}, out, "there are no rewards yet"
    if baseline == "running":
        why = {one.id: out.get(one.id, "known once a step takes the group") for one in members}
        return {}, why, "reward − mean of earlier runs of the alias: it is worked out when a step takes the group"
    counted = {id_: value for id_, value in rewards.items() if value is not None and id_ not in out}
    found = group_advantages(counted)
    if found is None:
        code = "too_few" if len(counted) < 2 else "zero_variance"
        return {}, dict.fromkeys(counted, code) | out, "reward − mean of the group: its rewards leave nothing to learn"
    mean = math.fsum(counted.values()) / len(counted)
    return found, out, f"reward − mean of the {len(counted)} rewards that count ({mean:.3g})"


def _means(compared: Sequence[ComparedReward]) -> str:
    means = sorted({round(one.mean, 6) for one in compared})
    return f"{means[0]:.3g}" if len(means) == 1 else f"{means[0]:.3g} to {means[-1]:.3g}"


def side_by_side(
    columns: Sequence[tuple[int, Sequence[ConversationTurn]]],
) -> tuple[tuple[ComparisonCell, ...], tuple[tuple[ComparisonCell, ...], ...], tuple[int, ...]]:
    """What numbered attempts begin with alike, the rows after it, and how many turns of each are left out of them."""
    numbers = [number for number, _ in columns]
    common = shared_beginning([turns for _, turns in columns])
    rest = [turns[common : common + MOST_TURNS] for _, turns in columns]
    beginning = tuple(_cell("shared", turn) for turn in columns[0][1][:common]) if columns else ()
    rows = tuple(
        _row([None if place is None else rest[at][place] for at, place in enumerate(places)], numbers)
        for places in align_turns(rest)
    )
    return beginning, rows, tuple(max(0, len(turns) - common - MOST_TURNS) for _, turns in columns)


def _row(turns: Sequence[ConversationTurn | None], numbers: Sequence[int]) -> tuple[ComparisonCell, ...]:
    there = [turn for turn in turns if turn is not None]
    if len(turns) > 1 and len(there) == len(turns) and all(turn == there[0] for turn in there):
        return _cell("shared", there[0]), *(ComparisonCell("shared") for _ in there[1:])
    return tuple(_in_row(at, turns, numbers) for at in range(len(turns)))


def _in_row(at: int, turns: Sequence[ConversationTurn | None], numbers: Sequence[int]) -> ComparisonCell:
    turn = turns[at]
    if turn is None:
        return ComparisonCell("missing")
    left = [(number, other) for number, other in zip(numbers[:at], turns[:at], strict=True) if other is not None]
    for number, other in left:
        if other == turn:
            return ComparisonCell("same", number, role=turn.role, call_id=turn.call_id)
    if left:
        number, other = max(left, key=lambda one: (one[1].act == turn.act, one[1].tools == turn.tools))
        return _cell("differs", turn, number, list_differences(turn, other), other)
    alone = len(turns) > 1 and all(other is None for place, other in enumerate(turns) if place != at)
    return _cell("differs", turn, words=(ONLY_HERE,) if alone else ())


def _cell(
    state: Literal["shared", "differs"],
    turn: ConversationTurn,
    against: int | None = None,
    words: tuple[str, ...] = (),
    other: ConversationTurn | None = None,
) -> ComparisonCell:
    calls = compare_calls(turn, other)
    return ComparisonCell(state, against, words, turn.role, turn.text, turn.thinking, calls, turn.call_id)
