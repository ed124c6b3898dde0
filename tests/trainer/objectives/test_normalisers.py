"""The weight of each token: the formulas alone, as properties."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.objectives.normalisers import token_weights
from trainer.settings import TrainerSettings

TOKENS = st.dictionaries(st.integers().map(str), st.tuples(st.integers(1, 5000), st.floats(0.01, 1)), min_size=1)


@given(st.dictionaries(st.integers().map(str), st.integers(0, 5000), min_size=1, max_size=9))
def test_every_trajectory_weighs_the_same_whatever_its_length(tokens: dict[str, int]) -> None:
    weights = token_weights(tokens, {}, TrainerSettings())
    assert weights.keys() == {name for name, count in tokens.items() if count}
    shares = [weight * tokens[name] for name, weight in weights.items()]
    assert shares == pytest.approx([1 / len(weights)] * len(weights) if weights else [])


@given(st.dictionaries(st.integers().map(str), st.tuples(st.integers(1, 5000), st.floats(0.01, 1)), min_size=1))
def test_trajectories_weigh_by_their_shares_and_a_steps_weights_add_up_to_one(
    given_: dict[str, tuple[int, float]],
) -> None:
    tokens = {name: count for name, (count, _) in given_.items()}
    shares = {name: share for name, (_, share) in given_.items()}
    weights = token_weights(tokens, shares, TrainerSettings())
    whole = {name: weight * tokens[name] for name, weight in weights.items()}
    assert sum(whole.values()) == pytest.approx(1)
    assert whole == pytest.approx({name: share / sum(shares.values()) for name, share in shares.items()})


@given(TOKENS)
def test_each_token_weighs_the_same_by_its_share_and_a_steps_weights_add_up_to_one(
    given_: dict[str, tuple[int, float]],
) -> None:
    tokens = {name: count for name, (count, _) in given_.items()}
    shares = {name: share for name, (_, share) in given_.items()}
    weights = token_weights(tokens, shares, TrainerSettings(normaliser="token"))
    assert sum(weights[name] * tokens[name] for name in weights) == pytest.approx(1)
    each = [weights[name] / shares[name] for name in weights]
    assert each == pytest.approx([each[0]] * len(each))
    assert token_weights(tokens, {}, TrainerSettings(normaliser="token")) == pytest.approx(
        dict.fromkeys(tokens, 1 / sum(tokens.values()))
    )


@given(TOKENS, st.integers(1, 10_000))
def test_a_constant_length_makes_weights_that_do_not_depend_on_lengths(
    given_: dict[str, tuple[int, float]], length: int
) -> None:
    tokens = {name: count for name, (count, _) in given_.items()}
    chosen = TrainerSettings(normaliser="constant", constant_length=length)
    expected = dict.fromkeys(tokens, 1 / (len(tokens) * length))
    assert token_weights(tokens, {}, chosen) == pytest.approx(expected)
    assert token_weights({**tokens, "nothing trained": 0}, {}, chosen) == pytest.approx(expected)
