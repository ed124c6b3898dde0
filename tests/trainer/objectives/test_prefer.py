"""The gradient of a preferred pair is DPO's, as TRL computes it."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.objectives import toy_batch
from tests.trainer.objectives.trl_reference import DPO_BETA, FILE
from trainer.objectives.prefer import PairLogprobs, preference_weights

DPO = json.loads(FILE.read_text("utf-8"))["dpo"]


def pairs() -> list[PairLogprobs]:
    """The first half of the toy trajectories is chosen over the second; the engine's logprobs are the reference."""
    sums, reference = (
        [float(np.sum(values)) for values in each] for each in (toy_batch.policy_logprobs(), toy_batch.behaviour())
    )
    return [PairLogprobs(sums[at], sums[at + 2], reference[at], reference[at + 2]) for at in range(2)]


def test_the_gradient_of_every_token_is_what_trl_computes_away_from_a_margin_of_0() -> None:
    assert min(abs(one.margin(DPO_BETA)) for one in pairs()) > 0.05
    weights = preference_weights(pairs(), DPO_BETA)
    ours = [weights[0].chosen, weights[1].chosen, weights[0].rejected, weights[1].rejected]
    for weight, gradient in zip(ours, DPO["gradient"], strict=True):
        np.testing.assert_allclose([-weight] * len(gradient), gradient, atol=1e-6)
    loss = sum(math.log1p(math.exp(-one.margin(DPO_BETA))) for one in pairs()) / 2
    assert loss == pytest.approx(DPO["loss"], abs=1e-6)


margins = st.floats(-2000, 2000)


@given(st.lists(st.tuples(margins, margins), min_size=1, max_size=9), st.floats(0.01, 2))
def test_a_pair_weighs_less_the_clearer_it_is_preferred_and_both_sides_the_same(
    sums: list[tuple[float, float]], beta: float
) -> None:
    given_pairs = [PairLogprobs(chosen, rejected, 0.0, 0.0) for chosen, rejected in sums]
    weights = preference_weights(given_pairs, beta)
    for pair, weight in zip(given_pairs, weights, strict=True):
        assert weight.chosen == -weight.rejected
        assert 0 <= weight.chosen <= beta / len(sums)
        if abs(pair.margin(beta)) > 1e-9:
            assert (weight.chosen < beta / 2 / len(sums)) == (pair.margin(beta) > 0)
