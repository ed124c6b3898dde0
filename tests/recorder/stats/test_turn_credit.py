"""A turn's credit is how far its value is from the mean of the turns of its number: the formula, as properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.turn_credit import TurnValues, turn_differences

NUMBERS = st.integers(1, 5)
VALUES = st.dictionaries(
    st.text("abcdef", min_size=1, max_size=2), st.dictionaries(NUMBERS, st.floats(-10, 10), max_size=5), max_size=8
)


@given(VALUES)
def test_differences_are_from_the_mean_of_each_number_and_add_up_to_nothing(values: TurnValues) -> None:
    found = turn_differences(values)
    assert found.keys() == values.keys()
    for number in range(1, 6):
        own = {id_: turns[number] for id_, turns in values.items() if number in turns}
        differences = {id_: turns[number] for id_, turns in found.items() if number in turns}
        if len(own) < 2:
            assert differences == {}
            continue
        mean = sum(own.values()) / len(own)
        assert differences == pytest.approx({id_: value - mean for id_, value in own.items()}, abs=1e-9)
        assert math.fsum(differences.values()) == pytest.approx(0, abs=1e-9)


@given(VALUES, NUMBERS, st.floats(-5, 5))
def test_a_constant_added_to_all_turns_of_a_number_changes_nothing(
    values: TurnValues, number: int, constant: float
) -> None:
    moved = {id_: {n: v + constant * (n == number) for n, v in turns.items()} for id_, turns in values.items()}
    before, after = turn_differences(values), turn_differences(moved)
    for id_, turns in before.items():
        assert after[id_] == pytest.approx(turns, abs=1e-9)


@given(VALUES, NUMBERS)
def test_a_turn_says_nothing_about_turns_of_another_number(values: TurnValues, number: int) -> None:
    without = {id_: {n: v for n, v in turns.items() if n != number} for id_, turns in values.items()}
    rest = {id_: {n: v for n, v in turns.items() if n != number} for id_, turns in turn_differences(values).items()}
    assert turn_differences(without) == rest


def test_a_turn_without_a_value_is_not_a_zero() -> None:
    assert turn_differences({"a": {1: 1.0, 2: 0.5}, "b": {1: 0.0}, "c": {}}) == {"a": {1: 0.5}, "b": {1: -0.5}, "c": {}}
