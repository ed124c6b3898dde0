"""The draw: every turn is as likely as any other, and so is every run; nobody's draw depends on who draws or when."""

from __future__ import annotations

import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.shadow.shadower import draw_call, is_drawn

IDS = st.lists(st.text(min_size=1, max_size=8), min_size=1, max_size=12, unique=True)


def made(random: Random) -> str:
    return f"call_{random.getrandbits(80):020x}"


@pytest.mark.parametrize("length", [2, 3, 7, 12])
def test_every_turn_is_as_likely_as_any_other(length: int) -> None:
    """Over runs with ids like real ones; five standard deviations, so that one in a million of such tests fails."""
    random, runs = Random(length), 4000
    drawn: Counter[int] = Counter()
    for _ in range(runs):
        turns = [made(random) for _ in range(length)]
        drawn[turns.index(draw_call(turns, "any") or "")] += 1
    expected = runs / length
    spread = math.sqrt(runs * (1 / length) * (1 - 1 / length))
    assert all(abs(drawn[at] - expected) < 5 * spread for at in range(length))


@given(IDS, st.randoms(use_true_random=False))
def test_the_draw_needs_no_length_and_no_order(turns: list[str], random: Random) -> None:
    """It is a reservoir: the turn drawn of a longer run is the one drawn before, or the new one."""
    best: str | None = None
    for at, turn in enumerate(turns):
        now = draw_call(turns[: at + 1], "any")
        assert now in (best, turn)
        best = now
    shuffled = list(turns)
    random.shuffle(shuffled)
    assert draw_call(iter(shuffled), "any") == best


@given(IDS)
def test_the_first_turn_can_be_asked_for(turns: list[str]) -> None:
    assert draw_call(turns, "first") == turns[0]


def test_of_no_turns_none_is_drawn() -> None:
    assert draw_call([], "any") is None
    assert draw_call([], "first") is None


@pytest.mark.parametrize("share", [0.0, 0.1, 0.5, 1.0])
def test_a_share_of_the_runs_is_drawn(share: float) -> None:
    random, runs = Random(1), 4000
    count = sum(is_drawn(f"traj_{random.getrandbits(80):020x}", share) for _ in range(runs))
    assert abs(count - share * runs) <= 5 * math.sqrt(runs * share * (1 - share))


@given(IDS, st.floats(0, 1), st.floats(0, 1))
def test_a_larger_share_draws_all_of_a_smaller_one(runs: list[str], one: float, other: float) -> None:
    few, many = sorted((one, other))
    assert {run for run in runs if is_drawn(run, few)} <= {run for run in runs if is_drawn(run, many)}
