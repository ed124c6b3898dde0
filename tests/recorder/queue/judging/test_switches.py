"""When the other one of two judges scores: never for a few groups, never back and forth, surely where they differ."""

from __future__ import annotations

import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.judging.switches import CHEAP, STRONG, Judge, group_tau, mean_agreement, next_judge

TAUS = st.lists(st.floats(-1, 1), min_size=1, max_size=60)
BOUNDS = st.floats(-0.9, 0.9)
JUDGES: st.SearchStrategy[Judge] = st.sampled_from([CHEAP, STRONG])
ORDER = {"a": 0.1, "b": 0.5, "c": 0.9}
TURNED = {"a": 0.9, "b": 0.5, "c": 0.1}
TIED = dict.fromkeys(ORDER, 0.5)


@pytest.mark.parametrize(
    ("cheap", "strong", "found"),
    [
        (ORDER, ORDER, 1),
        (ORDER, TURNED, -1),
        (TIED, ORDER, 0),  # a judge that has lost all order agrees with none
        (ORDER, TIED, None),  # nothing to agree with
        (TIED, TIED, None),
        ({"a": 0.1, "b": 0.5}, ORDER, 1),  # a run that one of them said nothing of is in no pair
        ({"a": None, "b": 0.5}, ORDER, None),
    ],
)
def test_the_tau_of_two_judges(
    cheap: dict[str, float | None], strong: dict[str, float | None], found: float | None
) -> None:
    assert group_tau([cheap], [strong]) == found


def test_parts_are_compared_each_with_its_own() -> None:
    assert group_tau([ORDER, ORDER], [ORDER, TURNED]) == 0


@given(TAUS)
def test_the_interval_holds_the_mean_and_keeps_within_what_tau_can_be(taus: list[float]) -> None:
    found = mean_agreement(taus)
    assert found.mean is not None
    assert found.low is not None
    assert found.high is not None
    assert found.groups == len(taus)
    assert -1 <= found.low <= found.mean + 1e-12
    assert found.mean - 1e-12 <= found.high <= 1


def test_groups_that_all_agree_alike_prove_no_more_than_they_can() -> None:
    ten, hundred = mean_agreement([1.0] * 10), mean_agreement([1.0] * 100)
    assert ten.low is not None
    assert hundred.low is not None
    assert ten.low < hundred.low < 1


@given(JUDGES, TAUS, BOUNDS)
def test_before_a_full_window_nothing_changes(now: Judge, taus: list[float], bound: float) -> None:
    assert next_judge(now, mean_agreement(taus), bound, len(taus) + 1) == now


@given(JUDGES, TAUS, BOUNDS)
def test_the_turn_changes_only_where_the_mean_is_on_the_other_side(now: Judge, taus: list[float], bound: float) -> None:
    found = mean_agreement(taus)
    then = next_judge(now, found, bound, len(taus))
    assert found.mean is not None
    if then != now:
        assert then == (STRONG if found.mean < bound else CHEAP)
    assert next_judge(then, found, bound, len(taus)) == then  # looked at once more, nothing is new


@given(JUDGES)
def test_without_any_group_nothing_changes(now: Judge) -> None:
    assert next_judge(now, mean_agreement([]), 0.0, 0) == now


def test_a_surely_worse_judge_is_found_and_a_surely_good_one_is_not() -> None:
    draw = random.Random(15)
    for mean, then in ((0.8, CHEAP), (0.1, STRONG)):
        for _ in range(200):
            taus = [max(-1.0, min(1.0, draw.gauss(mean, 0.25))) for _ in range(20)]
            assert next_judge(CHEAP, mean_agreement(taus), 0.5, 20) == then, statistics.fmean(taus)
