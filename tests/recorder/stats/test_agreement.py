"""Old scores against new ones: Kendall's tau-b held to its definition, and the counts of pairs."""

import math
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.agreement import PairAgreement, compare_rewards

# A few values, so that ties are common, and any other.
REWARDS = st.one_of(st.sampled_from([-1.0, 0.0, 0.5, 1.0]), st.floats(-1e6, 1e6))
SCORES = st.lists(st.tuples(st.none() | REWARDS, st.none() | REWARDS), max_size=8)
Both = list[tuple[float | None, float | None]]


def compared(rewards: Both) -> PairAgreement:
    before = {str(number): old for number, (old, _) in enumerate(rewards)}
    return compare_rewards(before, {str(number): new for number, (_, new) in enumerate(rewards)})


def signs(rewards: Both) -> list[tuple[int, int]]:
    """The sign of each pair's difference, before and now."""
    runs = [(old, new) for old, new in rewards if old is not None and new is not None]
    return [((a > c) - (a < c), (b > d) - (b < d)) for (a, b), (c, d) in combinations(runs, 2)]


def by_definition(pairs: list[tuple[int, int]]) -> float | None:
    """Daniels' general coefficient with the signs of differences as scores, which is tau-b."""
    norm = math.sqrt(sum(old * old for old, _ in pairs) * sum(new * new for _, new in pairs))
    return sum(old * new for old, new in pairs) / norm if norm else None


@given(SCORES)
def test_tau_is_what_its_definition_says(rewards: Both) -> None:
    expected = by_definition(signs(rewards))
    assert compared(rewards).tau == (None if expected is None else pytest.approx(expected))


@given(st.lists(SCORES, max_size=4))
def test_pooled_groups_are_the_pairs_of_each_and_of_no_two(groups: list[Both]) -> None:
    pooled = sum(map(compared, groups), PairAgreement())
    expected = by_definition([pair for rewards in groups for pair in signs(rewards)])
    assert pooled.count == sum(len(signs(rewards)) for rewards in groups)
    assert pooled.tau == (None if expected is None else pytest.approx(expected))


@given(SCORES)
def test_every_pair_is_counted_once(rewards: Both) -> None:
    runs = sum(old is not None and new is not None for old, new in rewards)
    assert compared(rewards).count == math.comb(runs, 2)


@given(SCORES)
def test_turning_the_new_score_over_turns_every_pair(rewards: Both) -> None:
    pairs = compared(rewards)
    over = compared([(old, None if new is None else -new) for old, new in rewards])
    assert (over.kept, over.turned) == (pairs.turned, pairs.kept)
    assert over.tau == (None if pairs.tau is None else -pairs.tau)


def test_pairs_are_told_by_what_became_of_their_order() -> None:
    before = {"a": 0.1, "b": 0.2, "c": 0.2, "d": 0.9, "gone": 1.0}
    now = {"a": 0.4, "b": 0.3, "c": 0.8, "d": 0.8, "new": 0.0, "gone": None}
    pairs = compare_rewards(before, now)
    assert pairs == PairAgreement(kept=3, turned=1, tied_before=1, tied_now=1)
    assert pairs.tau == pytest.approx(2 / 5)


@pytest.mark.parametrize(
    ("now", "tau"), [([0.1, 0.5, 0.9], 1.0), ([9.0, 5.0, 1.0], -1.0), ([0.5, 0.5, 0.5], None)], ids=str
)
def test_the_ends_of_the_scale(now: list[float], tau: float | None) -> None:
    assert compared(list(zip([0.0, 0.2, 0.7], now, strict=True))).tau == tau
