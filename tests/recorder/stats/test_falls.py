"""A fall of what a policy earns: found by scenarios' own earlier attempts, not by the draw of a round."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import fmean

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.falls import ROUNDS, Fall, Round, ScenarioFigure, find_fall

EIGHT = [f"s{n}" for n in range(8)]


def of(wins: Sequence[int], each: int = 8, names: Sequence[str] = EIGHT) -> Round:
    """A round of attempts that succeed or fail."""
    shares = [(name, won / each) for name, won in zip(names, wins, strict=True)]
    return {name: ScenarioFigure(each, share, (share * (1 - share)) ** 0.5) for name, share in shares}


def fresh(number: int, wins: Sequence[int], each: int = 8) -> Round:
    """A round of scenarios that no other has."""
    return of(wins, each, [f"{number}.{n}" for n in range(len(wins))])


GOOD = (7, 5, 8, 6, 7, 5, 6, 5)  # of eight: 0.77
BAD = (2, 1, 3, 1, 2, 0, 2, 2)  # 0.20


def found(rounds: Sequence[Round], at: float = 0.2) -> Fall:
    fall = find_fall(rounds, at)
    assert fall is not None
    return fall


def test_scenarios_are_compared_with_their_own_earlier_attempts() -> None:
    fall = found([of(GOOD), of(BAD)])
    assert (fall.paired, fall.rounds, fall.scenarios) == (True, 1, 8)
    assert (fall.before, fall.now) == pytest.approx((0.766, 0.203), abs=0.001)
    assert fall.interval.low < fall.by < fall.interval.high
    assert fall.interval.low > 0.3


def test_scenarios_that_never_come_again_are_compared_by_three_rounds() -> None:
    good, bad = [fresh(n, GOOD) for n in range(4)], [fresh(n, BAD) for n in range(4, 7)]
    fall = found([*good, *bad])
    assert (fall.paired, fall.scenarios) == (False, 8 * fall.rounds)
    assert (fall.before, fall.now) == pytest.approx((0.766, 0.203), abs=0.001)


def test_a_campaign_that_goes_from_half_to_a_fifth_by_the_draw_alone_has_no_fall() -> None:
    """Of 0.531, 0.188, 0.547 and 0.203 with scenarios that are nearly always or hardly ever solved."""
    high, low = (8, 0, 8, 8, 1, 0, 8, 1), (0, 8, 0, 1, 0, 0, 2, 1)
    shown = [fresh(n, low if n % 2 else high) for n in range(12)]
    assert fmean(one.mean for one in shown[0].values()) == pytest.approx(0.531, abs=0.001)
    assert fmean(one.mean for one in shown[1].values()) == pytest.approx(0.188, abs=0.001)
    assert [find_fall(shown[:n], 0.2) for n in range(len(shown) + 1)] == [None] * 13


def test_a_round_of_scenarios_that_nobody_solves_is_a_draw_and_no_fall() -> None:
    half = [fresh(n, (8, 8, 8, 8, 0, 0, 0, 0)) for n in range(3)]
    assert find_fall([*half, fresh(3, (0,) * 8)], 0.2) is None


def test_other_scenarios_say_nothing_where_the_newest_were_attempted_before() -> None:
    """The newest are hard ones, and no harder than when they were attempted before."""
    hard, easy = of((0, 1, 0, 1, 0, 0, 1, 0)), fresh(0, (8, 8, 7, 8, 8, 8, 7, 8))
    assert find_fall([hard, easy, fresh(1, (8,) * 8), fresh(2, (8,) * 8), hard], 0.2) is None


def test_a_fall_below_the_bound_is_none() -> None:
    lower = [tuple(won - 2 for won in GOOD)] * 3
    rounds = [of(GOOD), of(GOOD), of(GOOD), *map(of, lower)]
    assert find_fall(rounds, 0.3) is None
    assert found(rounds).by == pytest.approx(0.25)


def test_few_attempts_that_fall_alike_by_chance_are_no_fall() -> None:
    three = ["a", "b", "c"]
    assert find_fall([of((2, 2, 2), 4, three), of((1, 1, 1), 4, three)], 0.2) is None
    assert find_fall([of((1, 1, 1), 1, three), of((0, 0, 0), 1, three)], 0.2) is None


def test_what_has_risen_or_stands_still_has_not_fallen() -> None:
    assert find_fall([of(BAD), of(GOOD)], 0.2) is None
    assert find_fall([of((8,) * 8)] * 5, 0.2) is None
    assert find_fall([of(GOOD)], 0.2) is None
    assert find_fall([], 0.2) is None


def test_a_total_collapse_is_found_though_nothing_scatters() -> None:
    assert found([of((8,) * 8), of((0,) * 8)]).by == 1.0


def test_rewards_need_not_be_shares() -> None:
    draw = random.Random(1)
    rounds = [
        {name: ScenarioFigure(8, level + draw.uniform(-1, 1), 2.0) for name in EIGHT} for level in (50, 51, 52, 20)
    ]
    assert found(rounds).by == pytest.approx(31, abs=2)


wins = st.lists(st.integers(0, 8), min_size=8, max_size=8)


@given(st.lists(st.tuples(wins, st.integers(0, 3)), max_size=8))
def test_whatever_the_rounds_a_fall_is_one(given_: list[tuple[list[int], int]]) -> None:
    rounds = [of(won, names=[f"{part}.{n}" for n in range(8)]) for won, part in given_]
    fall = find_fall(rounds, 0.2)
    if fall is not None:
        assert fall.before - fall.now == fall.by >= 0.2
        assert 1 <= fall.rounds <= ROUNDS
        assert fall.scenarios >= 3
        assert fall.interval.low > 0
