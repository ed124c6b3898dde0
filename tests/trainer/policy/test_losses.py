"""The losses against plain formulas in numpy, and their gradients against finite differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.policy.losses import LOSSES, SampledTokens, TokenLoss, kl_to_teacher
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings()
TOKENS = st.lists(
    st.tuples(st.floats(-8, 0), st.floats(-8, 0), st.floats(-2, 2)), min_size=1, max_size=20
)  # logprob, behaviour, advantage


def sampled(logprobs: torch.Tensor, behaviour: torch.Tensor, advantages: torch.Tensor) -> SampledTokens:
    """Rows of one token each, sampled by the parent in an engine that computes as the trainer."""
    return SampledTokens(logprobs, behaviour, advantages, behaviour, torch.arange(len(logprobs)), len(logprobs))


def run(
    name: str, tokens: list[tuple[float, float, float]], settings: TrainerSettings = SETTINGS
) -> tuple[TokenLoss, np.ndarray[Any, Any]]:
    logprobs, behaviour, advantages = (
        torch.tensor(column, dtype=torch.float64) for column in zip(*tokens, strict=True)
    )
    logprobs.requires_grad_()
    found = LOSSES[name](sampled(logprobs, behaviour, advantages), settings)
    (gradient,) = torch.autograd.grad(found.loss.sum(), logprobs)
    return found, gradient.numpy()


def grpo_in_numpy(logprob: float, behaviour: float, advantage: float) -> tuple[float, float]:
    """Loss and its derivative by the logprob, case by case."""
    ratio = np.exp(logprob - behaviour)
    if advantage >= 0:
        if ratio <= 1.28:
            return -ratio * advantage, -ratio * advantage
        return -1.28 * advantage, 0.0
    if ratio < 0.8:
        return -0.8 * advantage, 0.0
    ratio = min(ratio, 2.0)  # truncated importance weight
    return -ratio * advantage, -ratio * advantage


def cispo_in_numpy(logprob: float, behaviour: float, advantage: float) -> tuple[float, float]:
    weight = min(np.exp(logprob - behaviour), 5.0)
    return -weight * advantage * logprob, -weight * advantage


def reinforce_in_numpy(logprob: float, behaviour: float, advantage: float) -> tuple[float, float]:
    weight = min(np.exp(logprob - behaviour), 2.0)
    return -weight * advantage * logprob, -weight * advantage


def gspo_in_numpy(logprob: float, behaviour: float, advantage: float) -> tuple[float, float]:
    """Of a row of one token: PPO's objective without a cap."""
    ratio = np.exp(logprob - behaviour)
    bounded = min(ratio * advantage, np.clip(ratio, 0.8, 1.28) * advantage)
    return -bounded, -ratio * advantage if bounded == ratio * advantage else 0.0


FORMULAS: dict[str, Callable[[float, float, float], tuple[float, float]]] = {
    "grpo": grpo_in_numpy,
    "cispo": cispo_in_numpy,
    "reinforce": reinforce_in_numpy,
    "gspo": gspo_in_numpy,
}


def test_every_loss_has_an_independent_formula() -> None:
    assert FORMULAS.keys() == LOSSES.keys()


@pytest.mark.parametrize("name", LOSSES)
@given(tokens=TOKENS)
def test_loss_and_gradient_are_those_of_the_formula(name: str, tokens: list[tuple[float, float, float]]) -> None:
    found, gradient = run(name, tokens)
    expected = np.array([FORMULAS[name](*token) for token in tokens])
    ratios = np.exp([token[0] - token[1] for token in tokens])
    off_edge = np.abs(ratios[:, None] - np.array([0.8, 1.28, 2.0, 5.0])).min(1) > 1e-6
    np.testing.assert_allclose(found.loss.detach().numpy(), expected[:, 0], atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(gradient[off_edge], expected[off_edge, 1], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("name", LOSSES)
@given(tokens=TOKENS)
def test_at_ratio_one_the_gradient_is_the_policy_gradient(name: str, tokens: list[tuple[float, float, float]]) -> None:
    found, gradient = run(name, [(logprob, logprob, advantage) for logprob, _, advantage in tokens])
    np.testing.assert_allclose(gradient, [-advantage for *_, advantage in tokens], atol=1e-9)
    assert not found.clipped.any()


@pytest.mark.parametrize("name", LOSSES)
@given(tokens=TOKENS)
def test_advantage_zero_has_no_gradient(name: str, tokens: list[tuple[float, float, float]]) -> None:
    _, gradient = run(name, [(logprob, behaviour, 0.0) for logprob, behaviour, _ in tokens])
    assert not gradient.any()


@pytest.mark.parametrize("name", LOSSES)
@given(tokens=TOKENS, shift=st.floats(-3, 3))
def test_only_the_difference_of_logprobs_decides_the_gradient(
    name: str, tokens: list[tuple[float, float, float]], shift: float
) -> None:
    _, before = run(name, tokens)
    _, after = run(name, [(logprob + shift, behaviour + shift, advantage) for logprob, behaviour, advantage in tokens])
    ratios = np.exp([token[0] - token[1] for token in tokens])
    off_edge = np.abs(ratios[:, None] - np.array([0.8, 1.28, 2.0, 5.0])).min(1) > 1e-6
    np.testing.assert_allclose(after[off_edge], before[off_edge], atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize("name", LOSSES)
@given(tokens=TOKENS, factor=st.floats(0.01, 3))
def test_the_gradient_is_linear_in_the_advantage(
    name: str, tokens: list[tuple[float, float, float]], factor: float
) -> None:
    _, before = run(name, tokens)
    _, after = run(name, [(logprob, behaviour, advantage * factor) for logprob, behaviour, advantage in tokens])
    np.testing.assert_allclose(after, before * factor, atol=1e-9, rtol=1e-9)


@given(tokens=TOKENS, cap=st.floats(1, 4), low=st.floats(0.05, 0.9), high=st.floats(0.05, 3))
def test_a_bad_token_that_grew_likelier_is_pushed_down_by_its_ratio_up_to_the_cap_whatever_the_clipping(
    tokens: list[tuple[float, float, float]], cap: float, low: float, high: float
) -> None:
    chosen = TrainerSettings(importance_cap=cap, clip_low=low, clip_high=high)
    grown = [(max(logprob, behaviour), behaviour, -abs(advantage)) for logprob, behaviour, advantage in tokens]
    found, gradient = run("grpo", grown, chosen)
    expected = [min(np.exp(logprob - behaviour), cap) * -advantage for logprob, behaviour, advantage in grown]
    np.testing.assert_allclose(gradient, expected, atol=1e-9, rtol=1e-9)
    assert not found.clipped.any()


def test_clipping_is_told() -> None:
    up, down = np.log(1.5), np.log(0.5)
    found, _ = run(
        "grpo", [(-1, -1, 1.0), (up - 1, -1, 1.0), (down - 1, -1, 1.0), (up - 1, -1, -1.0), (down - 1, -1, -1.0)]
    )
    assert found.clipped.tolist() == [False, True, False, False, True]
    found, _ = run("cispo", [(np.log(4.9) - 9, -9, 1.0), (np.log(5.1) - 9, -9, 1.0)])
    assert found.clipped.tolist() == [False, True]


@pytest.mark.parametrize("name", LOSSES)
@pytest.mark.parametrize("advantage", [1.0, -1.0, 0.0])
def test_a_logprob_far_from_the_engines_stays_finite(name: str, advantage: float) -> None:
    found, gradient = run(name, [(-0.1, -500.0, advantage), (-500.0, -0.1, advantage)])
    assert torch.isfinite(found.loss).all()
    assert np.isfinite(gradient).all()


@given(st.lists(st.tuples(st.floats(-8, 0), st.floats(-8, 0)), min_size=1, max_size=20))
def test_kl_estimate_is_never_negative_and_zero_only_at_equality(pairs: list[tuple[float, float]]) -> None:
    policy, base = (torch.tensor(column, dtype=torch.float64) for column in zip(*pairs, strict=True))
    found = kl_to_teacher(policy, base)
    difference = (base - policy).numpy()
    np.testing.assert_allclose(found.numpy(), np.exp(difference) - difference - 1, atol=1e-5)
    assert (found >= -1e-12).all()
    assert not kl_to_teacher(policy, policy).any()


def test_kl_estimate_is_unbiased() -> None:
    policy = torch.tensor([0.5, 0.3, 0.2], dtype=torch.float64).log()
    base = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64).log()
    exact = (policy.exp() * (policy - base)).sum()
    estimated = (policy.exp() * kl_to_teacher(policy, base)).sum()  # its expectation under the policy
    assert float(estimated) == pytest.approx(float(exact), abs=1e-12)


@pytest.mark.parametrize("name", LOSSES)
def test_gradients_equal_finite_differences_through_a_softmax(name: str) -> None:
    """From logits to the loss, with the weights that carry no gradient held at their value."""
    generator = torch.Generator().manual_seed(3)
    logits = torch.randn(6, 9, generator=generator, dtype=torch.float64, requires_grad=True)
    targets = torch.arange(6)
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.5, 2.0, -2.0], dtype=torch.float64)
    with torch.no_grad():
        start = torch.log_softmax(logits, -1)[range(6), targets]
        behaviour = start + torch.tensor([0.1, -0.1, 0.2, -0.05, -0.2, 0.15], dtype=torch.float64)
        weight = torch.exp(start - behaviour)

    def value(at: torch.Tensor) -> torch.Tensor:
        logprobs = torch.log_softmax(at, -1)[range(6), targets]
        if name in ("cispo", "reinforce"):
            return -(weight * advantages * logprobs).sum()
        return LOSSES[name](sampled(logprobs, behaviour, advantages), SETTINGS).loss.sum()

    logprobs = torch.log_softmax(logits, -1)[range(6), targets]
    (found,) = torch.autograd.grad(LOSSES[name](sampled(logprobs, behaviour, advantages), SETTINGS).loss.sum(), logits)
    expected = torch.zeros_like(logits)
    step = 1e-6
    for index in np.ndindex(*logits.shape):
        moved = torch.zeros_like(logits)
        moved[index] = step
        with torch.no_grad():
            expected[index] = (value(logits + moved) - value(logits - moved)) / (2 * step)
    torch.testing.assert_close(found, expected, atol=1e-7, rtol=1e-5)
