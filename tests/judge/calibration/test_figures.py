"""A judge against people: the formulas by hand and beside other implementations, and intervals that hold the truth."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.calibration.figures import (
    FIGURES,
    accuracy,
    figure_difference,
    judge_figures,
    kappa,
    kendall_tau,
    length_bias,
    position_bias,
)
from judge.calibration.labels import COLUMNS, Counts, LabelledPair, count_pairs, labelled_pairs, stack_counts
from recorder.stats import agreement
from tests.judge.calibration import simulated

SIMULATED, GROUPS, EACH = 500, 50, 2  # sets; each of 100 pairs

scores = st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 3).map(float), min_size=2)


def counted(pairs: list[LabelledPair]) -> Counts:
    by_group = count_pairs(pairs)
    return stack_counts(by_group, sorted(by_group))


def of(people: str, judge: str) -> Counts:
    """Counts of pairs, one a letter: < first, = tie, > second; of one group."""
    sign = {"<": 1, "=": 0, ">": -1}
    [found] = counted([LabelledPair("g", sign[p], sign[j]) for p, j in zip(people, judge, strict=True)])
    return np.asarray(found)


def test_accuracy_is_of_what_people_told_apart_and_a_tie_is_half_right() -> None:
    assert accuracy(of("<<>>", "<<>>")) == 1
    assert accuracy(of("<<>>", ">><<")) == 0
    assert accuracy(of("<<>>", "<<><")) == 0.75
    assert accuracy(of("<<>>", "====")) == 0.5
    assert accuracy(of("<=", "<>")) == 1  # people did not tell the second apart
    assert np.isnan(accuracy(of("==", "<>")))


def test_kappa_is_nothing_by_chance_and_one_where_all_agree() -> None:
    assert kappa(of("<>=", "<>=")) == pytest.approx(1)
    assert kappa(of("<<>>", "<><>")) == pytest.approx(0)
    assert kappa(of("<<<<", "<<<>")) == pytest.approx(0.5)  # either run might have been called the first


@given(scores, scores)
def test_tau_and_its_pairs_are_those_of_agreement(people: dict[str, float], judge: dict[str, float]) -> None:
    pairs = labelled_pairs("g", people, judge)
    known = agreement.compare_rewards(people, judge)
    assert len(pairs) == known.count
    found = kendall_tau(counted(pairs).sum(0)) if pairs else np.nan
    assert (None if np.isnan(found) else pytest.approx(float(found))) == known.tau


@given(scores, scores)
def test_no_figure_depends_on_which_run_is_called_the_first(people: dict[str, float], judge: dict[str, float]) -> None:
    pairs = labelled_pairs("g", people, judge)
    turned = [LabelledPair("g", -one.people, -one.judge) for one in pairs]
    for formula in FIGURES.values():
        here, there = (formula(counted(of).sum(0)) if of else np.nan for of in (pairs, turned))
        assert here == pytest.approx(float(there), nan_ok=True)


def test_bias_is_by_how_much_more_often_than_people() -> None:
    places, lengths = {"a": 0, "b": 1, "c": 2}, {"a": 10, "b": 20, "c": 30}
    by_place = labelled_pairs("g", {"a": 1, "b": 2, "c": 3}, {"a": 3, "b": 2, "c": 1}, places=places, lengths=lengths)
    found = counted(by_place).sum(0)
    assert position_bias(found) == 1  # the judge always the earlier, people never
    assert length_bias(found) == -1
    unknown = counted(labelled_pairs("g", {"a": 1, "b": 2}, {"a": 2, "b": 1})).sum(0)
    assert np.isnan(position_bias(unknown))


def test_what_says_nothing_has_no_value_and_few_draws_no_interval() -> None:
    found = judge_figures(np.zeros((3, COLUMNS)))
    assert {(one.value, one.interval) for one in found.values()} == {(None, None)}
    assert all(one.value is None for one in judge_figures(np.zeros((0, COLUMNS))).values())


def test_the_same_seed_gives_the_same_intervals() -> None:
    found = counted(simulated.pairs(np.random.default_rng(1), GROUPS, EACH))
    assert judge_figures(found, 3) == judge_figures(found, 3)
    assert judge_figures(found, 3) != judge_figures(found, 4)


def test_a_judge_differs_from_itself_by_nothing() -> None:
    found = counted(simulated.pairs(np.random.default_rng(1), GROUPS, EACH))
    same = figure_difference(found, found)
    assert same.value == 0
    assert same.interval is not None
    assert (same.interval.low, same.interval.high) == (0, 0)


@pytest.mark.long
@pytest.mark.slow  # 500 sets
def test_the_intervals_hold_the_truth_as_often_as_they_say() -> None:
    looks = {"early": 0.15, "long": 0.1}
    rng = np.random.default_rng(15)
    truth = judge_figures(counted(simulated.pairs(rng, 20_000, EACH, **looks)))
    held = dict.fromkeys(FIGURES, 0)
    for seed in range(SIMULATED):
        found = judge_figures(counted(simulated.pairs(rng, GROUPS, EACH, **looks)), seed)
        for name, one in found.items():
            true = truth[name].value
            assert one.interval is not None
            assert true is not None
            held[name] += one.interval.low <= true <= one.interval.high
    shares = {name: count / SIMULATED for name, count in held.items()}
    assert all(0.92 <= share <= 0.98 for share in shares.values()), shares
