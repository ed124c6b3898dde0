"""Rank the attempts of a group, best first, and compare their turns in rows.

Owns: the types of a comparison, the order of attempts, the content of a cell, and the sentence that explains how the
advantages are computed. Pure. Refuses: queries (`recorder.views.comparison.loader`).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from recorder.queue.judging.scores import NewPart, part_rewards, split_reward
from recorder.queue.judging.turn_values import read_turn_values
from recorder.queue.training.baselines import ComparedReward
from recorder.states import GroupState
from recorder.stats.advantages import exclusion_from_mean, group_advantages
from recorder.stats.turn_credit import turn_differences
from recorder.views.comparison.alignment import (
    MOST_TURNS,
    ComparedCall,
    ConversationTurn,
    align_turns,
    compare_calls,
    list_differences,
    shared_beginning,
)
from recorder.views.comparison.word_changes import TextPart, compare_small_change
from recorder.views.trajectories.shapes import TrajectoryRow

ONLY_HERE: Final = "only here"


@dataclass(frozen=True, slots=True, kw_only=True)
class Member(TrajectoryRow):
    """A trajectory of a group, from its row. `version`: the name of its version."""

    version: str | None
    tags: Mapping[str, Any]
    call_count: int


@dataclass(frozen=True, slots=True)
class Part:
    """One part of a reward, with its explanation. `value` is None if it could not be computed."""

    name: str
    value: float | None
    weight: float | None
    explanation: str | None


@dataclass(frozen=True, slots=True)
class TurnCredit:
    """A turn with a value of its own. `number`: of the turn on the main path, from 1.

    `difference`: from the mean over the group's turns of the same number; None: no other has a value, or the attempt
    does not count. A step with `trainer.turn_weight` adds that times the difference to the turn's advantage.
    """

    number: int
    value: float
    difference: float | None


@dataclass(frozen=True, slots=True)
class Attempt:
    """One attempt with its rank: `number` 1 has the highest reward, attempts without a reward come last.

    `explanation` is the judge's, of the whole reward. `no_advantage`: why it has no advantage, if it has none.
    """

    number: int
    trajectory: Member
    reward: float | None
    explanation: str | None
    parts: tuple[Part, ...]
    advantage: float | None
    no_advantage: str | None
    turns: tuple[TurnCredit, ...] = ()

    def turn(self, number: int) -> TurnCredit | None:
        """Return the credit of a turn; None: it has no value of its own."""
        return next((one for one in self.turns if one.number == number), None)


@dataclass(frozen=True, slots=True)
class GroupRank:
    """One attempt's rank among the `of` attempts of its group, and how advantages are computed there."""

    attempt: Attempt
    of: int
    rule: str


@dataclass(frozen=True, slots=True)
class Preference:
    """A person's choice between two attempts, by their numbers: one is better, or both are equally good (`tie`).

    `by`: the person, if known.
    """

    winner: int
    loser: int
    by: str | None
    comment: str | None
    at: float
    tie: bool = False

    def sentence(self) -> str:
        """Return the choice as a sentence."""
        if self.tie:
            return f"attempts {self.winner} and {self.loser} are equally good"
        return f"attempt {self.winner} is better than attempt {self.loser}"


@dataclass(frozen=True, slots=True)
class ComparisonCell:
    """One attempt's turn in a row.

    `state`: `shared` (the turn is equal in all columns, only the first column has the text), `same` (equal to the
    attempt number `against` to the left, which has the text), `differs` (from `against`, the most similar to the left;
    None for the leftmost), `missing` (no turn in this row). `differences` names what differs, and `changes` says how
    the text differs, by words (`compare_small_change`).
    """

    state: Literal["shared", "same", "differs", "missing"]
    against: int | None = None
    differences: tuple[str, ...] = ()
    role: str | None = None
    text: str = ""
    thinking: str = ""
    calls: tuple[ComparedCall, ...] = ()
    call_id: str | None = None  # the model call that sampled it
    changes: tuple[TextPart, ...] = ()


@dataclass(frozen=True, slots=True)
class GroupHead:
    """The group of a comparison. `version` is the one that it is pinned to.

    `step` is the number of the newest step that trained on it, `step_version` the version which that step made.
    """

    id: str
    external_id: str | None
    task: str | None  # the beginning of its first trajectory's first user message
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
    tokens_in: int | None  # the cost of its score, as `tokens_out` and `cost_usd`
    tokens_out: int | None
    cost_usd: float | None
    step_id: str | None
    step: int | None
    step_version: str | None
    agreement: float | None  # mean Kendall's tau-b over pairs of judges' replies
    try_after: float | None  # when it is judged again (unix seconds), if at all


@dataclass(frozen=True, slots=True)
class Comparison:
    """Attempts compared in columns. `attempts` has all, best first; `columns` the numbers of the compared ones.

    `identical`: for each column, the numbers of further attempts with the same turns, which have no column.
    `rule` says how the advantages are computed. `beginning` has the turns that all columns share, `rows` the turns
    after them with one cell for each column. `turns_not_shown`: for each column, the number of turns not compared.
    """

    group: GroupHead
    rule: str
    attempts: tuple[Attempt, ...]
    preferences: tuple[Preference, ...]
    columns: tuple[int, ...]
    beginning: tuple[ComparisonCell, ...]
    rows: tuple[tuple[ComparisonCell, ...], ...]
    turns_not_shown: tuple[int, ...]
    identical: tuple[tuple[int, ...], ...] = ()

    def attempt(self, number: int) -> Attempt:
        """Return the attempt with that number."""
        return self.attempts[number - 1]


def rank_attempts(
    members: Sequence[Member], parts: Sequence[NewPart], compared: Sequence[ComparedReward], baseline: str | None
) -> tuple[tuple[Attempt, ...], str]:
    """Return all attempts, best first, and the sentence that says how their advantages are computed.

    `compared`: the running baselines that the newest step on the group used, empty if it used the group's mean;
    `baseline`: the alias's setting.
    """
    parts_of: dict[str, list[NewPart]] = {}
    for part in parts:
        parts_of.setdefault(part.trajectory_id, []).append(part)
    rewards = part_rewards(parts)
    advantages, why, rule = _advantages(members, rewards, compared, baseline)
    ordered = sorted(members, key=lambda one: (_last_without(rewards.get(one.id)), one.started_at, one.id))
    turns = _turn_credits(members, parts, rewards)
    attempts = (
        _attempt(number, one, parts_of.get(one.id, ()), advantages.get(one.id), why.get(one.id), turns.get(one.id, ()))
        for number, one in enumerate(ordered, 1)
    )
    return tuple(attempts), rule


def _turn_credits(
    members: Sequence[Member], parts: Sequence[NewPart], rewards: Mapping[str, float | None]
) -> dict[str, tuple[TurnCredit, ...]]:
    values = read_turn_values(parts)
    counting = {
        one.id for one in members
        if exclusion_from_mean(one.state, one.selection, one.purpose, rewards.get(one.id)) is None
    }  # fmt: skip
    differences = turn_differences({id_: own for id_, own in values.items() if id_ in counting})
    return {
        id_: tuple(TurnCredit(number, value, differences.get(id_, {}).get(number)) for number, value in own.items())
        for id_, own in values.items()
    }


def best_and_worst(attempts: Sequence[Attempt]) -> tuple[Attempt, Attempt]:
    """Return the best attempt and the worst one that has a reward. `attempts` is in order, with at least two."""
    return attempts[0], next((one for one in attempts[:0:-1] if one.reward is not None), attempts[1])


def fold_identical(
    attempts: Sequence[Attempt], turns: Mapping[str, Sequence[ConversationTurn]], most: int
) -> tuple[list[Attempt], tuple[tuple[int, ...], ...]]:
    """Return at most `most` attempts for columns, the best first and the worst second, and those folded into each.

    `turns`: by trajectory id. Attempts with equal turns and rewards are one column.
    """
    alike: dict[tuple[float | None, tuple[ConversationTurn, ...]], list[Attempt]] = {}
    for one in attempts:
        alike.setdefault((one.reward, tuple(turns[one.trajectory.id])), []).append(one)
    kinds = list(alike.values())
    if len(kinds) > 2:
        best, worst = best_and_worst([kind[0] for kind in kinds])
        kinds.sort(key=lambda kind: (kind[0] is not best, kind[0] is not worst))  # stable: the others keep their order
    kinds = kinds[:most]
    return [kind[0] for kind in kinds], tuple(tuple(one.number for one in kind[1:]) for kind in kinds)


def _last_without(reward: float | None) -> tuple[bool, float]:
    return (True, 0.0) if reward is None or math.isnan(reward) else (False, -reward)


def _attempt(
    number: int,
    member: Member,
    parts: Sequence[NewPart],
    advantage: float | None,
    why: str | None,
    turns: tuple[TurnCredit, ...],
) -> Attempt:
    reward, others = split_reward(parts)
    value, explanation = (reward.value, reward.explanation) if reward is not None else (None, None)
    reason = None if advantage is not None else why
    return Attempt(number, member, value, explanation, parts_shown(others), advantage, reason, turns)


def parts_shown(parts: Iterable[NewPart]) -> tuple[Part, ...]:
    """Return the parts of a score as an attempt shows them."""
    return tuple(Part(part.part, part.value, part.weight, part.explanation) for part in parts)


def _advantages(
    members: Sequence[Member],
    rewards: Mapping[str, float | None],
    compared: Sequence[ComparedReward],
    baseline: str | None,
) -> tuple[Mapping[str, float], Mapping[str, str], str]:
    """Return the advantages by trajectory, the reasons of those without one, and the rule as a sentence."""
    if compared:
        advantages = {one.trajectory_id: one.reward - one.mean for one in compared}
        why = {one.id: "excluded by the step that trained on the group" for one in members if one.id not in advantages}
        return advantages, why, f"reward − mean of earlier trajectories, as the step computed it: {_means(compared)}"
    excluded = {
        one.id: code
        for one in members
        if (code := exclusion_from_mean(one.state, one.selection, one.purpose, rewards.get(one.id)))
    }
    if not rewards:
        return {}, excluded, "there are no rewards yet"
    if baseline == "running":
        why = {one.id: excluded.get(one.id, "known once a step takes the group") for one in members}
        return {}, why, "reward − mean of earlier trajectories of the alias, computed when a step takes the group"
    counted = {id_: value for id_, value in rewards.items() if value is not None and id_ not in excluded}
    found = group_advantages(counted)
    if found is None:
        code = "too_few" if len(counted) < 2 else "zero_variance"
        return {}, dict.fromkeys(counted, code) | excluded, "reward − mean of the group: its rewards give no advantages"
    mean = math.fsum(counted.values()) / len(counted)
    return found, excluded, f"reward − mean of the {len(counted)} rewards that count ({mean:.3g})"


def _means(compared: Sequence[ComparedReward]) -> str:
    means = sorted({round(one.mean, 6) for one in compared})
    return f"{means[0]:.3g}" if len(means) == 1 else f"{means[0]:.3g} to {means[-1]:.3g}"


def side_by_side(
    columns: Sequence[tuple[int, Sequence[ConversationTurn]]],
) -> tuple[tuple[ComparisonCell, ...], tuple[tuple[ComparisonCell, ...], ...], tuple[int, ...]]:
    """Return the turns that numbered attempts share at the beginning, the rows after them, and for each attempt the
    number of turns beyond `MOST_TURNS`, which are in no row."""
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
    present = [turn for turn in turns if turn is not None]
    if len(turns) > 1 and len(present) == len(turns) and all(turn == present[0] for turn in present):
        return _cell("shared", present[0]), *(ComparisonCell("shared") for _ in present[1:])
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
    only_here = len(turns) > 1 and all(other is None for place, other in enumerate(turns) if place != at)
    return _cell("differs", turn, words=(ONLY_HERE,) if only_here else ())


def _cell(
    state: Literal["shared", "differs"],
    turn: ConversationTurn,
    against: int | None = None,
    words: tuple[str, ...] = (),
    other: ConversationTurn | None = None,
) -> ComparisonCell:
    calls = compare_calls(turn, other)
    changes = () if other is None else compare_small_change(other.text, turn.text)
    return ComparisonCell(state, against, words, turn.role, turn.text, turn.thinking, calls, turn.call_id, changes)
