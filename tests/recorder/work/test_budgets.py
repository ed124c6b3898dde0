"""Budgets over the last hour and day: how long until something may go on."""

from __future__ import annotations

from datetime import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.settings import LearnSettings
from recorder.work.budgets import DAY_S, HOUR_S, Spent, free_in_s, judging, training

NOON = datetime(2026, 11, 22, 12)
AT, WINDOW_S = 10_000, 1_000
amounts = st.lists(st.tuples(st.integers(0, AT), st.integers(0, 50)), max_size=30)
limits = st.integers(1, 200)


def within(spent: list[tuple[int, int]], at: float) -> int:
    return sum(amount for when, amount in spent if at - WINDOW_S < when <= at)


@given(amounts, limits)
def test_nothing_waits_while_less_than_the_limit_is_spent(spent: list[tuple[int, int]], limit: int) -> None:
    assert (free_in_s(spent, limit, WINDOW_S, AT) == 0) == (within(spent, AT) < limit)


@given(amounts, limits)
def test_what_waited_may_go_on_and_not_a_second_earlier(spent: list[tuple[int, int]], limit: int) -> None:
    wait_s = free_in_s(spent, limit, WINDOW_S, AT)
    assert 0 <= wait_s <= WINDOW_S
    assert within(spent, AT + wait_s) < limit
    if wait_s > 0:
        assert within(spent, AT + wait_s - 1) >= limit


@given(amounts, limits, limits)
def test_a_higher_limit_never_waits_longer(spent: list[tuple[int, int]], one: int, other: int) -> None:
    waits = [free_in_s(spent, limit, WINDOW_S, AT) for limit in sorted((one, other))]
    assert waits[0] >= waits[1]


def test_without_limits_nothing_is_held() -> None:
    spent = [Spent(AT, 10**9, 1e6)]
    assert judging(LearnSettings(), spent, AT, NOON) is None
    assert training(LearnSettings(), [AT] * 1000, AT, NOON) is None


def test_the_judge_waits_for_the_budget_that_takes_longest_and_says_which() -> None:
    learn = LearnSettings(judge_tokens_per_day=1000, judge_usd_per_day=0.5)
    at = 2 * DAY_S
    spent = [Spent(at - DAY_S + 60, 800, 0.1), Spent(at - 3600, 100, 0.45)]
    held = judging(learn, spent, at, NOON)
    assert held is not None
    assert str(held) == "learn.judge_usd_per_day ($0.50) is spent; on in 01:00"
    assert judging(learn, spent, at + 61, NOON) is None
    more = judging(learn, [*spent, Spent(at - 60, 900, 0.0)], at, NOON)
    assert more is not None
    assert str(more) == "learn.judge_tokens_per_day (1,000) is spent; on in 23:00:00"


def test_steps_are_counted_by_the_hour() -> None:
    learn = LearnSettings(steps_per_hour=2)
    assert training(learn, [AT - HOUR_S, AT - 600], AT, NOON) is None
    held = training(learn, [AT - 600, AT], AT, NOON)
    assert held is not None
    assert (held.for_s, str(held)) == (3000, "learn.steps_per_hour (2) is reached; on in 50:00")


@pytest.mark.parametrize("hours", ["09:00-11:00", "13:00-11:59"])
def test_outside_its_hours_both_wait(hours: str) -> None:
    learn = LearnSettings(hours=hours)
    for held in (judging(learn, [], AT, NOON), training(learn, [], AT, NOON)):
        assert held is not None
        assert held.why == f"learn.hours are {hours}"
    assert judging(LearnSettings(hours="11:00-13:00"), [], AT, NOON) is None


def test_hours_that_nobody_can_read_are_refused_where_they_are_set() -> None:
    with pytest.raises(ValueError, match="22:00-06:00"):
        LearnSettings(hours="at night")
