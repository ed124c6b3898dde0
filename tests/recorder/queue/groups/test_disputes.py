"""What follows from choices: through ties and circles, by the newest word; and few questions put a group in order."""

from __future__ import annotations

import random
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.groups.disputes import PairChoice, newest_choices, next_pair, transitive_preferences


def undrawn(one: str, other: str) -> float:
    return 0.0


def test_what_was_said_last_of_a_pair_counts() -> None:
    assert newest_choices([PairChoice("a", "b"), PairChoice("b", "a")]) == [PairChoice("b", "a")]
    assert transitive_preferences([PairChoice("a", "b"), PairChoice("b", "a")]) == {"a": set(), "b": {"a"}}


def test_a_choice_follows_through_others_and_through_ties() -> None:
    said = [PairChoice("a", "b"), PairChoice("b", "c", tie=True), PairChoice("c", "d")]
    assert transitive_preferences(said) == {"a": {"b", "c", "d"}, "b": {"c", "d"}, "c": {"b", "d"}, "d": set()}


def test_a_circle_has_each_reach_all() -> None:
    said = [PairChoice("a", "b"), PairChoice("b", "c"), PairChoice("c", "a")]
    assert transitive_preferences(said) == {"a": {"b", "c"}, "b": {"a", "c"}, "c": {"a", "b"}}


def test_nothing_is_asked_that_follows_already() -> None:
    assert next_pair("ab", [], undrawn) == ("a", "b")
    assert next_pair("ab", [PairChoice("b", "a")], undrawn) is None
    assert next_pair("abc", [PairChoice("a", "b"), PairChoice("b", "c")], undrawn) is None
    assert next_pair("abc", [PairChoice("a", "b", tie=True), PairChoice("b", "c")], undrawn) is None
    assert next_pair("a", [], undrawn) is None


def test_a_choice_about_a_run_that_is_not_there_says_nothing() -> None:
    assert next_pair("ab", [PairChoice("a", "gone"), PairChoice("gone", "b")], undrawn) == ("a", "b")


def test_what_was_passed_over_is_not_asked_about_and_the_draw_decides_between_equals() -> None:
    assert next_pair("ab", [], undrawn, {frozenset("ab")}) is None
    assert next_pair("abc", [], lambda a, b: float((a, b) == ("a", "c"))) == ("a", "c")


@pytest.mark.parametrize(("runs", "most"), [(2, 1), (3, 3), (4, 6), (8, 20)])
@given(seed=st.integers(0, 10_000))
def test_answers_put_every_run_in_its_place_with_few_questions(runs: int, most: int, seed: int) -> None:
    rng = random.Random(seed)
    names = [chr(ord("a") + number) for number in range(runs)]
    worth = {name: rng.randrange(runs) for name in names}  # some are as good as each other
    said: list[PairChoice] = []
    while (pair := next_pair(names, said, lambda a, b: rng.random())) is not None:
        better, worse = sorted(pair, key=lambda name: -worth[name])
        said.append(PairChoice(better, worse, tie=worth[better] == worth[worse]))
    known = transitive_preferences(said)
    for one, other in combinations(names, 2):
        assert (other in known[one]) == (worth[one] >= worth[other])
        assert (one in known[other]) == (worth[other] >= worth[one])
    assert len(said) <= most
