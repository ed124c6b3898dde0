"""Sanity: what is broken is told by its code, what chance makes is not, and few answers are judged by little."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.gate.sanity import ENOUGH, SampledAnswer, SanityBounds, SanityResult, judge_answers, mean_kl

BOUNDS = SanityBounds(kl_max=2.0, length_times=2.0)
NEAR = {"live": 0.01, "base": 0.3}


def answers(
    count: int = 16, *, tokens: int = 40, sure: float = 0.5, calls: int = 0, parsed: int = 0
) -> list[SampledAnswer]:
    """So many alike, of which the first `calls` call a tool and the first `parsed` can be parsed."""
    return [SampledAnswer([-sure] * tokens, begun=n < calls, parsed=n < parsed) for n in range(count)]


def code(found: SanityResult) -> str | None:
    return found.fault[0] if found.fault else None


def test_a_version_like_the_live_one_passes_and_its_figures_are_told() -> None:
    found = judge_answers(answers(calls=12, parsed=12), answers(calls=12, parsed=12), NEAR, BOUNDS)
    assert found.fault is None
    assert found.figures == {
        "kl_live": 0.01,
        "kl_base": 0.3,
        "times_as_long": pytest.approx(1.0),
        "entropy": pytest.approx(0.5),
        "entropy_live": pytest.approx(0.5),
    }


@pytest.mark.parametrize(
    ("candidate", "kls", "expected"),
    [
        ([*answers(15), SampledAnswer([-0.5, math.nan])], NEAR, "not_finite"),
        ([*answers(15), SampledAnswer([])], NEAR, "not_finite"),
        (answers(tokens=120), NEAR, "length"),
        (answers(tokens=10), NEAR, "length"),
        (answers(sure=0.001), NEAR, "entropy"),
        (answers(sure=6.0), NEAR, "entropy"),
        (answers(), {"live": 2.1}, "kl"),
        (answers(), {"live": 0.1, "base": math.inf}, "kl"),
        (answers(), {"live": math.nan}, "kl"),
        (answers(calls=16, parsed=4), NEAR, "tool_calls_broken"),
    ],
)
def test_what_is_broken_is_told_by_its_code(
    candidate: list[SampledAnswer], kls: dict[str, float], expected: str
) -> None:
    assert code(judge_answers(candidate, answers(calls=16, parsed=16), kls, BOUNDS)) == expected


def test_a_version_that_no_longer_calls_its_tools_is_found_and_one_that_calls_them_less_is_not() -> None:
    live = answers(calls=16, parsed=16)
    assert code(judge_answers(answers(), live, NEAR, BOUNDS)) == "tool_calls_lost"
    assert judge_answers(answers(calls=11, parsed=11), live, NEAR, BOUNDS).fault is None
    assert judge_answers(live, answers(), NEAR, BOUNDS).fault is None


@pytest.mark.parametrize("rambling", ["the candidate", "the live version"])
def test_one_answer_that_rambles_among_words_says_nothing_of_the_others(rambling: str) -> None:
    words = answers(tokens=1)
    once = [*words[1:], SampledAnswer([-3.0] * 60)]
    candidate, live = (once, words) if rambling == "the candidate" else (words, once)
    assert judge_answers(candidate, live, NEAR, BOUNDS).fault is None
    all_ramble = [SampledAnswer([-3.0])] * 16
    assert code(judge_answers(all_ramble, words, NEAR, BOUNDS)) == "entropy"


def test_one_answer_that_rambles_says_no_more_where_the_others_are_a_little_less_certain() -> None:
    live = answers(sure=0.0001)
    rambles = SampledAnswer([-3.6] * 60)
    assert judge_answers([*answers(15, sure=0.001), rambles], live, NEAR, BOUNDS).fault is None
    assert judge_answers(live, [*answers(15, sure=0.001), rambles], NEAR, BOUNDS).fault is None
    half = [*answers(8, sure=0.001), *answers(8, sure=3.6)]
    assert code(judge_answers(half, live, NEAR, BOUNDS)) == "entropy"
    assert code(judge_answers(live, half, NEAR, BOUNDS)) == "entropy"
    assert code(judge_answers(answers(sure=0.2), live, NEAR, BOUNDS)) == "entropy"


@given(st.integers(0, 13), st.randoms(use_true_random=False))
def test_how_many_calls_are_broken_counts_and_not_which_of_them_came_first(broken: int, chance: random.Random) -> None:
    candidate = answers(13, calls=13, parsed=13 - broken)
    chance.shuffle(candidate)
    found = code(judge_answers(candidate, answers(13, calls=13, parsed=13), NEAR, BOUNDS))
    # Were 0.9 of them good, three or more of 13 would be broken with 13 %, four or more with 3 %.
    assert found == ("tool_calls_broken" if broken >= 4 else None)


def test_calls_that_are_broken_as_often_as_before_are_no_fault_of_the_versions() -> None:
    assert judge_answers(answers(calls=16, parsed=6), answers(calls=16, parsed=6), NEAR, BOUNDS).fault is None


def test_few_answers_are_judged_by_what_no_chance_makes() -> None:
    few = ENOUGH - 1
    assert judge_answers(answers(few, tokens=400), answers(few), NEAR, BOUNDS).fault is None
    assert code(judge_answers(answers(few), answers(few), {"live": 3.0}, BOUNDS)) == "kl"
    assert judge_answers([], [], {}, BOUNDS) == SanityResult()


def test_two_samples_of_one_model_are_rarely_told_apart() -> None:
    """Sixteen prompts of very different length, answered twice by one model that calls a tool three times in four."""
    dice = random.Random(5)

    def sampled(mean: float) -> SampledAnswer:
        tokens = max(1, round(mean * dice.lognormvariate(0, 0.4)))
        begun = dice.random() < 0.75
        return SampledAnswer([-dice.expovariate(2.0) for _ in range(tokens)], begun, begun and dice.random() < 0.95)

    rejected = 0
    for _ in range(100):
        means = [dice.lognormvariate(4, 1) for _ in range(16)]
        found = judge_answers([sampled(m) for m in means], [sampled(m) for m in means], NEAR, BOUNDS)
        rejected += found.fault is not None
    assert rejected <= 5


def test_kl_is_the_mean_gap_of_all_tokens_and_infinite_where_a_number_is_missing() -> None:
    assert mean_kl([[-1.0, -1.0], [-1.0]], [[-2.0, -1.0], [-3.0]]) == pytest.approx(1.0)
    assert mean_kl([[-1.0]], [[math.nan]]) == math.inf


def test_two_samples_of_a_sure_model_that_errs_now_and_then_are_rarely_told_apart() -> None:
    """One answer in ten goes astray, and whether one of sixteen does is chance; that eight in ten do is none."""
    dice = random.Random(7)

    def sampled(astray: float) -> list[SampledAnswer]:
        return [SampledAnswer([-2.5 if dice.random() < astray else -0.01] * 8) for _ in range(16)]

    def rejected(astray: float) -> int:
        return sum(judge_answers(sampled(astray), sampled(0.1), NEAR, BOUNDS).fault is not None for _ in range(100))

    assert rejected(0.1) <= 5
    assert rejected(0.8) >= 80
