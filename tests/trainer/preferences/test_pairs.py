"""Which two trajectories are a pair, and why a pair is not trained on."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.trainability import Exclusion
from recorder.queue.groups.disputes import PairChoice
from tests.trainer.building import trained_row
from trainer.batch.rows import SkippedChoice
from trainer.objectives.imitate_rows import Demonstration, ImitationExclusion
from trainer.preferences.pairs import PairCandidate, PairExclusion, choose_pairs, pair_trajectories, rank_pair


def candidate(chosen: str, rejected: str, source: str = "preference") -> PairCandidate:
    return PairCandidate(chosen, rejected, source)  # type: ignore[arg-type]  # one of the names


def side(name: str, last: int = 5, task: str = "t", **overrides: object) -> Demonstration:
    row = trained_row([1, 2, 3, last], [3], name=name)
    return replace(Demonstration(name, "trajectory", name, task, [row]), **overrides)  # type: ignore[arg-type]


def test_the_newest_choice_between_two_trajectories_counts_and_a_tie_gives_no_pair() -> None:
    choices = [PairChoice("a", "b"), PairChoice("c", "d"), PairChoice("b", "a"), PairChoice("c", "d", tie=True)]
    assert choose_pairs(choices, [], 0.5) == [candidate("b", "a")]
    newer = [PairChoice("a", "b"), PairChoice("c", "d")]
    assert [one.source_id for one in choose_pairs(newer, [], 0.5)] == ["c>d", "a>b"]


def test_a_persons_choice_counts_before_the_rewards_of_the_same_two() -> None:
    rewards = [{"a": 1.0, "b": 0.0}, {"c": 1.0, "d": 0.0}, {"e": 1.0, "f": 0.0}]
    choices = [PairChoice("b", "a"), PairChoice("c", "d", tie=True)]
    assert choose_pairs(choices, rewards, 0.5) == [candidate("b", "a"), candidate("e", "f", "ranking")]


@pytest.mark.parametrize(
    ("rewards", "margin", "pair"),
    [
        ({"a": 0.2, "b": 0.9, "c": 0.1}, 0.5, "b>c"),
        ({"a": 0.2, "b": 0.7}, 0.5, "b>a"),  # the margin, but for a float's rounding
        ({"a": 0.2, "b": 0.5, "c": 0.1}, 0.5, None),
        ({"d": 1.0, "c": 1.0, "b": 0.0, "a": 0.0}, 0.5, "c>a"),  # of equal ones the first by id
        ({"a": 0.5, "b": 0.5}, 0.0, None),
        ({"a": 1.0}, 0.0, None),
        ({}, 0.0, None),
    ],
)
def test_a_group_gives_its_best_against_its_worst_where_they_differ_enough(
    rewards: dict[str, float], margin: float, pair: str | None
) -> None:
    found = rank_pair(rewards, margin)
    assert (found.source_id if found is not None else None) == pair


@given(st.dictionaries(st.text("abcdef", min_size=1), st.floats(0, 1), max_size=6), st.floats(0, 1))
def test_no_other_pair_of_a_group_has_a_larger_difference(rewards: dict[str, float], margin: float) -> None:
    found = rank_pair(rewards, margin)
    widest = max(rewards.values(), default=0) - min(rewards.values(), default=0)
    if found is not None:
        assert rewards[found.chosen] - rewards[found.rejected] == widest > margin - 1e-6
    else:
        assert widest < max(margin, 1e-6)


def paired(chosen: Demonstration, rejected: Demonstration, *, same_group: bool = True) -> str | None:
    made = pair_trajectories(candidate("c", "r"), chosen, rejected, same_group=same_group)
    assert (made.source_id, made.name) == ("c>r", "c over r")
    return made.code


def test_a_pair_is_used_whole_or_not_at_all() -> None:
    good, bad = side("c"), side("r", last=6)
    assert paired(good, bad) is None

    def skipping(one: Demonstration, code: str) -> Demonstration:
        return replace(one, skipped=[SkippedChoice(one.source_id, "call", 0, code)])

    for code in (Exclusion.TRUNCATED, ImitationExclusion.TOOL_CALL_UNPARSED, ImitationExclusion.CANNOT_BE_SPLIT):
        assert paired(good, skipping(bad, code)) == code
        assert paired(skipping(good, code), bad) == code
    for code in (Exclusion.SUPERSEDED, Exclusion.AUXILIARY, Exclusion.NOT_SELECTED, Exclusion.NOT_COMPLETE):
        assert paired(skipping(good, code), skipping(bad, code)) is None
    assert paired(good, replace(bad, rows=[], code=Exclusion.MEDIA)) == Exclusion.MEDIA


def test_equal_sides_and_other_tasks_are_no_pair() -> None:
    assert paired(side("c"), side("r")) == PairExclusion.SAME_ANSWER
    other = side("r", last=6, task="another")
    assert paired(side("c"), other, same_group=False) == PairExclusion.DIFFERENT_TASKS
    assert paired(side("c"), other) is None  # a group says that its task is the same
    assert paired(side("c"), side("r", last=6), same_group=False) is None


def test_a_pair_has_the_rows_and_the_tokens_of_both_sides() -> None:
    made = pair_trajectories(candidate("c", "r"), side("c"), side("r", last=6), same_group=True)
    assert [row.trajectory_id for row in made.rows] == ["c", "r"]
    assert (made.tokens, made.trained_tokens, made.task) == (8, 2, "t")
