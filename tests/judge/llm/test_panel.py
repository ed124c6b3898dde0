"""Several replies as one: means and medians by weight, sub-scores each by itself, and how far replies agree."""

import itertools
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.llm.panel import combine_verdicts, reply_agreement, weighted_mean, weighted_median
from judge.llm.reply_reader import Subscore, TrajectoryVerdict
from judge.panel_settings import SubscoreSettings

SCORES = st.lists(st.floats(0, 1), min_size=1, max_size=9)


def verdicts(*scores: float) -> dict[str, TrajectoryVerdict]:
    return {f"run{n}": TrajectoryVerdict(score, f"said {score}") for n, score in enumerate(scores)}


@given(SCORES)
def test_with_equal_weights_they_are_the_usual_ones(scores: list[float]) -> None:
    weighed = [(2.5, score) for score in scores]
    assert weighted_mean(weighed) == pytest.approx(statistics.fmean(scores))
    assert weighted_median(weighed) == pytest.approx(statistics.median(scores))


@given(st.lists(st.tuples(st.integers(1, 5), st.floats(0, 1)), min_size=1, max_size=6))
def test_a_weight_counts_as_so_many_replies(weighed: list[tuple[int, float]]) -> None:
    repeated = [(1.0, value) for weight, value in weighed for _ in range(weight)]
    as_floats = [(float(weight), value) for weight, value in weighed]
    assert weighted_mean(as_floats) == pytest.approx(weighted_mean(repeated))
    assert weighted_median(as_floats) == pytest.approx(weighted_median(repeated))


def test_weights_decide_in_the_median_too() -> None:
    assert weighted_median([(1, 0.0), (1, 0.1), (3, 0.9)]) == 0.9
    assert weighted_median([(1, 0.0), (1, 1.0)]) == 0.5


def test_one_reply_is_what_it_says() -> None:
    assert combine_verdicts([(1.0, verdicts(0.2, 0.9))], "median") == verdicts(0.2, 0.9)


def test_the_words_are_those_of_the_reply_that_came_nearest_with_the_range() -> None:
    found = combine_verdicts([(1.0, verdicts(0.0)), (1.0, verdicts(0.5)), (1.0, verdicts(0.7))], "median")
    assert found["run0"].score == 0.5
    assert found["run0"].explanation == "said 0.5 [3 replies: 0.00 to 0.70]"


def test_sub_scores_are_combined_each_and_make_the_score() -> None:
    subs = [SubscoreSettings(name="correctness", weight=3), SubscoreSettings(name="safety", weight=1)]

    def said(right: float, safe: float) -> dict[str, TrajectoryVerdict]:
        return {
            "a": TrajectoryVerdict(
                0.0, "", {"correctness": Subscore(right, f"r{right}"), "safety": Subscore(safe, f"s{safe}")}
            )
        }

    found = combine_verdicts([(1.0, said(0.0, 1.0)), (1.0, said(0.2, 0.4)), (1.0, said(1.0, 0.2))], "median", subs)["a"]
    assert {name: sub.score for name, sub in found.subs.items()} == {"correctness": 0.2, "safety": 0.4}
    assert {name: sub.reason for name, sub in found.subs.items()} == {"correctness": "r0.2", "safety": "s0.4"}
    assert found.score == pytest.approx(0.75 * 0.2 + 0.25 * 0.4)


def test_replies_that_order_alike_agree_wholly_and_turned_ones_not_at_all() -> None:
    up, down = verdicts(0.1, 0.2, 0.3), verdicts(0.9, 0.5, 0.1)
    assert reply_agreement([up, verdicts(0.0, 0.5, 0.6)]) == 1
    assert reply_agreement([up, down]) == -1
    assert reply_agreement([up, up, down]) == pytest.approx((1 - 1 - 1) / 3)


def test_ties_count_as_ties_and_a_reply_that_ties_all_counts_for_no_pair() -> None:
    some_tied = reply_agreement([verdicts(0.1, 0.2, 0.3), verdicts(0.1, 0.1, 0.3)])
    assert some_tied == pytest.approx(2 / (3 * 2) ** 0.5)
    tied = verdicts(0.5, 0.5, 0.5)
    assert reply_agreement([tied, tied]) is None
    assert reply_agreement([tied, verdicts(0.1, 0.2, 0.3)]) is None
    assert reply_agreement([tied, verdicts(0.1, 0.2, 0.3), verdicts(0.1, 0.2, 0.3)]) == 1
    assert reply_agreement([verdicts(0.1, 0.2)]) is None


@given(st.lists(st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0]), min_size=4, max_size=4), min_size=2, max_size=4))
def test_the_order_of_the_replies_changes_nothing(scores: list[list[float]]) -> None:
    replies = [verdicts(*one) for one in scores]
    for order in itertools.permutations(replies):
        assert (
            reply_agreement(order) == pytest.approx(reply_agreement(replies))
            if reply_agreement(replies) is not None
            else True
        )
        again = combine_verdicts([(1.0, one) for one in order], "mean")
        assert {run: one.score for run, one in again.items()} == {
            run: one.score for run, one in combine_verdicts([(1.0, one) for one in replies], "mean").items()
        }
