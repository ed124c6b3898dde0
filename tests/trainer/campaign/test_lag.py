"""How far a campaign samples ahead, and which groups a step takes: whatever ends first, none is lost or taken twice."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recorder.queue.entered_steps import PlannedGroup
from trainer.campaign.lag import LagRule, choose_groups, main_version, stale_share
from trainer.campaign_settings import CampaignSettings


def group(name: str, step: int, ended_at: float | None) -> PlannedGroup:
    return PlannedGroup(name, "scenario", step, ended_at, 0)


def test_without_a_lag_a_step_waits_for_its_own_groups_and_takes_them_all() -> None:
    rule = LagRule(0, 10, None)
    assert [rule.last_sampled(step, held=False) for step in (1, 5, 10)] == [1, 5, 10]
    own = [group("a", 1, 3.0), group("b", 1, None)]
    assert choose_groups(own, 1, 2, takes_all=rule.takes_all(1)) is None
    assert choose_groups([own[0], group("b", 1, 9.0)], 1, 2, takes_all=rule.takes_all(1)) == ["a", "b"]


def test_a_lag_reaches_so_many_steps_ahead_and_never_beyond_the_last() -> None:
    rule = LagRule(2, 5, None)
    assert [rule.last_sampled(step, held=False) for step in range(1, 6)] == [3, 4, 5, 5, 5]
    assert [rule.takes_all(step) for step in range(1, 6)] == [False, False, False, False, True]


def test_nothing_is_sampled_ahead_of_a_validation() -> None:
    rule = LagRule(2, 10, 4)
    assert [rule.last_sampled(step, held=False) for step in range(1, 10)] == [3, 4, 4, 4, 7, 8, 8, 8, 10]
    assert [step for step in range(1, 11) if rule.takes_all(step)] == [4, 8, 10]


def test_validation_after_every_step_leaves_no_lag() -> None:
    rule = LagRule(3, 10, 1)
    assert all(rule.last_sampled(step, held=False) == step and rule.takes_all(step) for step in range(1, 11))


def test_after_a_failed_step_nothing_new_begins() -> None:
    assert LagRule(2, 10, None).last_sampled(3, held=True) == 3


def test_a_step_takes_the_groups_that_ended_first_whichever_step_they_were_planned_for() -> None:
    waiting = [group("slow", 1, None), group("late", 1, 9.0), group("soon", 2, 4.0), group("next", 2, None)]
    assert choose_groups(waiting, 1, 2, takes_all=False) == ["soon", "late"]
    assert choose_groups(waiting, 1, 3, takes_all=False) is None


def test_a_step_that_takes_all_waits_for_the_slow_ones_and_leaves_what_is_planned_for_later() -> None:
    waiting = [group("slow", 1, None), group("own", 2, 4.0), group("later", 3, 3.0)]
    assert choose_groups(waiting, 2, 1, takes_all=True) is None
    waiting[0] = group("slow", 1, 12.0)
    assert choose_groups(waiting, 2, 1, takes_all=True) == ["slow", "own"]


@given(
    lag=st.integers(0, 3),
    last=st.integers(1, 8),
    every=st.none() | st.integers(1, 4),
    size=st.integers(1, 4),
    failed=st.sets(st.integers(1, 8)),
    seed=st.integers(0, 2**32),
)
def test_each_group_enters_one_step_and_no_step_waits_for_what_cannot_come(
    lag: int, last: int, every: int | None, size: int, failed: set[int], seed: int
) -> None:
    """A campaign in which groups end in any order."""
    chance = random.Random(seed)
    rule = LagRule(lag, last, every)
    waiting: dict[str, PlannedGroup] = {}
    taken: dict[str, int] = {}
    planned, clock = 0, 0.0
    for step in range(1, last + 1):
        limit = rule.last_sampled(step, held=step - 1 in failed)
        assert step <= limit <= last
        while (chosen := choose_groups(list(waiting.values()), step, size, takes_all=rule.takes_all(step))) is None or (
            planned < step
        ):
            if planned < limit and chance.random() < 0.5:
                planned += 1
                waiting |= {name: group(name, planned, None) for name in (f"{planned}.{i}" for i in range(size))}
                continue
            running = [name for name, one in waiting.items() if one.ended_at is None]
            if not running:
                assert planned < limit, "the step would wait for ever"
                continue
            name = chance.choice(running)
            clock += 1
            waiting[name] = group(name, waiting[name].planned_step, clock)
        assert len(chosen) == size
        for name in chosen:
            assert name not in taken
            taken[name] = step
            del waiting[name]
        if rule.takes_all(step) and lag:  # a validation or the end follows
            assert not waiting
    assert len(taken) == last * size
    assert not waiting


def test_the_version_that_sampled_most_groups_made_a_steps_attempts() -> None:
    assert main_version(["one", "two", None, "two"]) == "two"
    assert main_version(["one", "two"]) == "one"
    assert main_version([None]) is None


def test_the_share_of_stale_groups_counts_those_with_a_version() -> None:
    assert stale_share(["parent", "old", "old", None], "parent") == pytest.approx(2 / 3)
    assert stale_share([None], "parent") == 0


def test_a_step_that_replaces_groups_waits_for_its_own() -> None:
    with pytest.raises(ValidationError, match=r"campaign\.refill .* campaign\.max_lag"):
        CampaignSettings(agent="agent:run", max_lag=1, refill=0.5)
    assert CampaignSettings(agent="agent:run", max_lag=1, choose="learnability").max_lag == 1
