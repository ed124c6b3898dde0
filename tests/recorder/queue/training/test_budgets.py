"""Budgets over the last hour and day: how long until something may go on."""

from __future__ import annotations

from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.training.budgets import (
    DAY_S,
    HOUR_S,
    BudgetHold,
    JudgeUsage,
    judging_holds,
    seconds_until_free,
    training_holds,
)
from recorder.settings import LearnSettings

NOON = datetime(2026, 11, 22, 12)
AT, WINDOW_S = 10_000, 1_000
amounts = st.lists(st.tuples(st.integers(0, AT), st.integers(0, 50)), max_size=30)
limits = st.integers(1, 200)


def within(spent: list[tuple[int, int]], at: float) -> int:
    return sum(amount for when, amount in spent if at - WINDOW_S < when <= at)


@given(amounts, limits)
def test_nothing_waits_while_less_than_the_limit_is_spent(spent: list[tuple[int, int]], limit: int) -> None:
    assert (seconds_until_free(spent, limit, WINDOW_S, AT) == 0) == (within(spent, AT) < limit)


@given(amounts, limits)
def test_what_waited_may_go_on_and_not_a_second_earlier(spent: list[tuple[int, int]], limit: int) -> None:
    wait_s = seconds_until_free(spent, limit, WINDOW_S, AT)
    assert 0 <= wait_s <= WINDOW_S
    assert within(spent, AT + wait_s) < limit
    if wait_s > 0:
        assert within(spent, AT + wait_s - 1) >= limit


@given(amounts, limits, limits)
def test_a_higher_limit_never_waits_longer(spent: list[tuple[int, int]], one: int, other: int) -> None:
    waits = [seconds_until_free(spent, limit, WINDOW_S, AT) for limit in sorted((one, other))]
    assert waits[0] >= waits[1]


def test_without_limits_nothing_is_held() -> None:
    spent = [JudgeUsage(AT, 10**9, 1e6)]
    assert judging_holds(LearnSettings(), spent, AT, NOON) is None
    assert training_holds(LearnSettings(), [AT] * 1000, AT, NOON) is None


def told(held: BudgetHold | None) -> tuple[float, str]:
    assert held is not None
    return held.for_s, held.sentence("Judging")


def test_the_judge_waits_for_the_budget_that_takes_longest_and_says_which() -> None:
    learn = LearnSettings(judge_tokens_per_day=1000, judge_usd_per_day=0.5)
    at = NOON.timestamp()
    spent = [JudgeUsage(at - DAY_S + 60, 800, 0.1), JudgeUsage(at - 3600, 100, 0.45)]
    assert told(judging_holds(learn, spent, at, NOON)) == (
        60,
        "Judging is paused: the judge spent its $0.50 of the last 24 hours. It resumes at about 12:01. "
        "Raise learn.judge_usd_per_day to continue now.",
    )
    assert judging_holds(learn, spent, at + 61, NOON) is None
    assert told(judging_holds(learn, [*spent, JudgeUsage(at - 60, 900, 0.0)], at, NOON)) == (
        23 * HOUR_S,
        "Judging is paused: the judge used its 1,000 tokens of the last 24 hours, and the judge spent its $0.50 of the "
        "last 24 hours. It resumes at about 11:00. "
        "Raise learn.judge_tokens_per_day and learn.judge_usd_per_day to continue now.",
    )


def test_steps_are_counted_by_the_hour() -> None:
    learn = LearnSettings(steps_per_hour=2)
    assert training_holds(learn, [AT - HOUR_S, AT - 600], AT, NOON) is None
    held = training_holds(learn, [AT - 600, AT], AT, NOON)
    assert held is not None
    assert (held.for_s, held.until, held.code) == (3000, AT + 3000, "steps_per_hour")
    assert held.why == "the alias took its 2 steps of the last hour"


@pytest.mark.parametrize(("hours", "from_to"), [("09:00-11:00", "09:00 to 11:00"), ("13:00-11:59", "13:00 to 11:59")])
def test_outside_its_hours_both_wait(hours: str, from_to: str) -> None:
    learn = LearnSettings(hours=hours)
    for held in (judging_holds(learn, [], AT, NOON), training_holds(learn, [], AT, NOON)):
        assert held is not None
        assert held.why == f"[learn] hours allow it from {from_to}"
    assert judging_holds(LearnSettings(hours="11:00-13:00"), [], AT, NOON) is None


def test_a_budget_that_is_free_while_hours_are_closed_waits_for_them() -> None:
    learn = LearnSettings(judge_tokens_per_day=10, hours="11:00-13:00")
    at = NOON.timestamp()
    held = judging_holds(learn, [JudgeUsage(at - DAY_S + 2 * HOUR_S, 10, 0.0)], at, NOON)
    assert told(held) == (
        23 * HOUR_S,
        "Judging is paused: the judge used its 10 tokens of the last 24 hours. It resumes at 11:00. "
        "Raise learn.judge_tokens_per_day to continue now.",
    )


def test_closed_hours_and_a_spent_budget_are_both_told_and_raising_one_is_not_advised() -> None:
    learn = LearnSettings(judge_tokens_per_day=10, hours="22:00-06:00")
    at = NOON.timestamp()
    held = judging_holds(learn, [JudgeUsage(at - 7 * HOUR_S, 10, 0.0)], at, NOON)
    assert told(held) == (
        17 * HOUR_S,
        "Judging is paused: the judge used its 10 tokens of the last 24 hours, and [learn] hours allow it from 22:00 "
        "to 06:00. It resumes at about 05:00.",
    )


@given(
    # whole seconds: else the hours may close in the millisecond after a budget's hold ends
    st.lists(st.tuples(st.integers(0, int(DAY_S)), st.integers(1, 50)), max_size=6),
    st.integers(0, 23),
    st.none() | st.sampled_from(["22:00-06:00", "09:00-17:00", "12:00-12:30"]),
)
def test_a_hold_ends_when_it_says_and_not_earlier(spent: list[tuple[int, int]], hour: int, hours: str | None) -> None:
    learn, local = LearnSettings(judge_tokens_per_day=60, hours=hours), NOON.replace(hour=hour)
    at = 2 * DAY_S
    costs = [JudgeUsage(at - ago_s, tokens, 0.0) for ago_s, tokens in spent]

    def held_after(wait_s: float) -> BudgetHold | None:
        return judging_holds(learn, costs, at + wait_s, local + timedelta(seconds=wait_s))

    held = held_after(0)
    if held is not None:
        assert held_after(held.for_s + 0.001) is None
        assert held_after(held.for_s - 0.001) is not None


def test_hours_that_nobody_can_read_are_refused_where_they_are_set() -> None:
    with pytest.raises(ValueError, match="22:00-06:00"):
        LearnSettings(hours="at night")
