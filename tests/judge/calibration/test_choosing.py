"""Which judge is taken: the cheapest that is surely good enough, or how many labels are missing."""

from __future__ import annotations

import numpy as np
import pytest

from judge.calibration.comparison import FEWEST_PAIRS, JudgeCandidate, choose_judge
from judge.calibration.labels import FIRST, SECOND, TIE, LabelledPair, count_pairs, stack_counts


def candidate(name: str, usd: float | None, wrong: int, pairs: int = 200, ties: int = 0) -> JudgeCandidate:
    """A judge that orders so many of the pairs, one a group, as people do not; spread evenly."""
    at = set(np.linspace(0, pairs - 1, wrong).astype(int)) if wrong else set()
    made = [LabelledPair(f"{n:04}", TIE if n < ties else FIRST, SECOND if n in at else FIRST) for n in range(pairs)]
    by_group = count_pairs(made)
    return JudgeCandidate(name, stack_counts(by_group, sorted(by_group)), usd)


def test_the_cheapest_that_is_surely_good_enough_is_taken() -> None:
    found = choose_judge([candidate("dear", 0.05, 20), candidate("cheap", 0.001, 22), candidate("bad", 0.0, 100)], 0.1)
    assert (found.best, found.taken, found.more) == ("dear", "cheap", 0)


def test_the_best_is_taken_where_the_others_are_surely_worse() -> None:
    found = choose_judge([candidate("dear", 0.05, 10), candidate("bad", 0.0, 90)], 0.05)
    assert (found.best, found.taken) == ("dear", "dear")


def test_a_judge_of_unknown_price_is_the_dearest() -> None:
    found = choose_judge([candidate("free", None, 20), candidate("cheap", 0.001, 20)], 0.1)
    assert (found.best, found.taken) == ("cheap", "cheap")


def test_too_few_labels_decide_nothing() -> None:
    few = [candidate("dear", 0.05, 2, pairs=29), candidate("cheap", 0.001, 2, pairs=29)]
    assert choose_judge(few, 0.5) == choose_judge(few[:1], 0.5)
    assert (choose_judge(few, 0.5).taken, choose_judge(few, 0.5).more) == (None, 1)
    tied = [candidate("dear", 0.05, 0, pairs=40, ties=20)]
    assert choose_judge(tied, 0.5).more == FEWEST_PAIRS - 20
    assert choose_judge([], 0.5).more == FEWEST_PAIRS


def test_what_is_not_decided_says_how_many_more_and_these_decide_it() -> None:
    def between(pairs: int) -> list[JudgeCandidate]:
        return [candidate("dear", 0.05, pairs // 10, pairs), candidate("cheap", 0.001, pairs // 8, pairs)]

    found = choose_judge(between(80), 0.05)
    assert (found.best, found.taken) == ("dear", None)
    assert found.more > 0
    assert choose_judge(between(80 + 2 * found.more), 0.05).taken == "cheap"


@pytest.mark.parametrize("tolerance", [0.0, 0.025])
def test_a_difference_of_just_the_tolerance_asks_for_many_and_not_for_endless(tolerance: float) -> None:
    found = choose_judge([candidate("dear", 0.05, 10), candidate("cheap", 0.001, 15)], tolerance)
    assert found.taken is None
    assert 0 < found.more < 100_000
