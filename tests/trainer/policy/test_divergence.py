"""The divergence of whole distributions: the textbook's, and right where it is tiny."""

from __future__ import annotations

from random import Random

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from trainer.policy.logprobs import full_divergence

LOGITS = st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=9)


def textbook(logits: torch.Tensor, reference: torch.Tensor) -> float:
    p, q = torch.log_softmax(logits.double(), -1), torch.log_softmax(reference.double(), -1)
    return float((p.exp() * (p - q)).sum())


def measured(logits: torch.Tensor, reference: torch.Tensor) -> float:
    both = (torch.log_softmax(one.float(), -1)[None] for one in (logits, reference))
    return float(full_divergence(*both))


@given(LOGITS, st.randoms(use_true_random=False))
def test_it_is_the_textbooks(logits: list[float], order: Random) -> None:
    shuffled = list(logits)
    order.shuffle(shuffled)
    first, second = torch.tensor(logits), torch.tensor(shuffled)
    assert measured(first, second) == pytest.approx(textbook(first, second), rel=1e-5, abs=1e-6)


@given(st.integers(0, 1000), st.sampled_from([1e-2, 1e-3, 1e-4]))
def test_it_is_at_least_0_and_right_however_small_it_is(seed: int, size: float) -> None:
    generator = torch.Generator().manual_seed(seed)
    logits = 3 * torch.randn(500, generator=generator)
    moved = logits + size * torch.randn(500, generator=generator)
    assert measured(logits, moved) == pytest.approx(textbook(logits, moved), rel=1e-2)
    assert measured(logits, logits) == 0.0


def test_what_is_all_but_impossible_under_one_of_the_two_overflows_nowhere() -> None:
    low, high = torch.tensor([0.0, -200.0]), torch.tensor([-200.0, 0.0])
    assert measured(low, high) == pytest.approx(200.0)
    assert measured(high, low) == pytest.approx(200.0)
