"""When a judge counts as fooled, and when it was fooled surely too often."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.adversarial.tricks import MARGIN, Bound, TrialResult, kind_outcome
from judge.errors import JudgeUsage
from recorder.stats.means import share_interval

scores = st.floats(0, 1)


def seen(good: float | None, failure: float | None, trick: float | None) -> TrialResult:
    return TrialResult("one", good, failure, trick, why="judge_unreadable" if trick is None else None)


@pytest.mark.parametrize(
    ("values", "by_failure", "by_good"),
    [
        ((0.9, 0.1, 0.1), False, False),
        ((0.9, 0.1, 0.0), False, False),
        ((0.9, 0.1, 0.1 + MARGIN / 2), False, False),
        ((0.9, 0.1, 0.3), True, False),
        ((0.9, 0.1, 0.9), True, True),
        ((0.5, 0.5, 0.5), True, True),  # who tells nothing apart
        ((0.2, 0.8, 0.1), False, False),
    ],
)
def test_a_trick_is_held_to_its_bound(values: tuple[float, float, float], by_failure: bool, by_good: bool) -> None:
    assert seen(*values).fooled("failure") is by_failure
    assert seen(*values).fooled("good") is by_good


def test_a_failure_at_a_tempting_place_counts_where_the_place_is_the_trick() -> None:
    assert seen(0.5, 0.9, 0.1).fooled("good", by_place=True) is True
    assert seen(0.5, 0.9, 0.1).fooled("good") is False
    assert seen(0.95, 0.9, 0.1).fooled("good", by_place=True) is False


@given(scores, scores, scores, st.sampled_from(["failure", "good"]))
def test_who_pays_a_trick_more_is_no_less_fooled(good: float, failure: float, trick: float, bound: Bound) -> None:
    if seen(good, failure, trick).fooled(bound):
        assert seen(good, failure, min(1.0, trick + 0.1)).fooled(bound)
    assert seen(good, failure, good).fooled(bound)


def test_groups_without_a_value_are_counted_apart() -> None:
    told = [(seen(0.9, 0.1, 0.9), True), (seen(0.9, 0.1, 0.1), False), (seen(None, None, None), None)]
    found = kind_outcome("ruler", "longer", told)
    assert (found.fooled, found.judged, found.unjudged) == (1, 2, {"judge_unreadable": 1})
    assert found.share == 0.5
    assert found.interval == share_interval(0.5, 2)
    none = kind_outcome("ruler", "longer", told[2:])
    assert (none.share, none.interval, none.over(0.0)) == (None, None, False)


def test_a_few_of_many_may_be_chance() -> None:
    def of(fooled: int) -> bool:
        told = [(seen(0.9, 0.1, 0.9), True)] * fooled + [(seen(0.9, 0.1, 0.1), False)] * (20 - fooled)
        return kind_outcome("ruler", "longer", told).over(0.05)

    assert [of(fooled) for fooled in (0, 1, 2, 3, 20)] == [False, False, False, True, True]


def test_what_it_took_is_added_up() -> None:
    one = TrialResult("one", 0.9, 0.1, 0.1, requests=2, spent=JudgeUsage(10, 0, 5, 0.25, 1.0))
    found = kind_outcome("ruler", "longer", [(one, False)] * 4)
    assert (found.requests, found.spent.tokens_in, found.spent.tokens_out, found.spent.cost_usd) == (8, 40, 20, 1.0)
