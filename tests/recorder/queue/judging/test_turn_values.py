"""Values of turns are extra numbers of the parts that make a reward, weighted as the parts are."""

from __future__ import annotations

import pytest

from recorder.queue.judging.scores import REWARD, NewPart
from recorder.queue.judging.turn_values import read_turn_values, turn_extra, turn_number, turn_of


def test_a_turns_value_is_the_mean_over_the_parts_that_rate_it_by_their_weights() -> None:
    parts = [
        NewPart("a", REWARD, 0.5),
        NewPart("a", "polite", 0.5, 1.0), NewPart("a", "polite.turn.1", 1.0), NewPart("a", "polite.turn.2", 0.0),
        NewPart("a", "thumbs", 0.5, 3.0), NewPart("a", "thumbs.turn.2", 1.0), NewPart("a", "thumbs.calls", 7.0),
        NewPart("b", "polite", 0.5, 1.0), NewPart("b", "polite.turn.10", 0.25),
    ]  # fmt: skip
    assert read_turn_values(parts) == {"a": {1: 1.0, 2: pytest.approx(0.75)}, "b": {10: 0.25}}


@pytest.mark.parametrize(
    "part",
    [
        NewPart("a", "polite", 0.5, 0.0),  # measured, or dropped for the group
        NewPart("a", "polite", 0.5, -1.0),  # a penalty
        NewPart("a", "polite", 0.5),  # a veto
        NewPart("b", "polite", 0.5, 1.0),  # of another trajectory
        NewPart("a", "police", 0.5, 1.0),
    ],
)
def test_parts_that_are_not_in_the_mean_rate_no_turn(part: NewPart) -> None:
    assert read_turn_values([part, NewPart("a", "polite.turn.1", 1.0)]) == {}


def test_a_turns_value_with_a_weight_of_its_own_counts_whatever_its_parts_weight_is() -> None:
    parts = [
        NewPart("a", "turns", 0.5, 0.0), NewPart("a", "turns.turn.1", 1.0, 1.0),
        NewPart("a", "polite", 0.5, 3.0), NewPart("a", "polite.turn.1", 0.0), NewPart("a", "polite.turn.2", 0.5),
    ]  # fmt: skip
    assert read_turn_values(parts) == {"a": {1: 0.25, 2: 0.5}}


@pytest.mark.parametrize("name", ["turn.0", "turn.01", "turn.x", "turn.", "turns.1", "turn.1.x", "turn.1000000"])
def test_other_extra_numbers_are_of_no_turn(name: str) -> None:
    assert turn_number(name) is None
    assert read_turn_values([NewPart("a", "polite", 0.5, 1.0), NewPart("a", f"polite.{name}", 1.0)]) == {}


@pytest.mark.parametrize("value", [None, float("nan")])
def test_a_missing_value_is_not_a_zero(value: float | None) -> None:
    assert read_turn_values([NewPart("a", "polite", 0.5, 1.0), NewPart("a", "polite.turn.1", value)]) == {}


def test_a_name_is_read_back() -> None:
    assert [turn_number(turn_extra(number)) for number in (1, 12, 345)] == [1, 12, 345]
    assert turn_of("polite.turn.12") == ("polite", 12)
    assert [turn_of(part) for part in ("polite", "turn.1", ".turn.1", "polite.turn.0", "polite.turn.1.x")] == [None] * 5
