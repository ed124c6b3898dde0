"""What the trainer computes on a GPU is what it computes on the CPU. Needs a GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from tests.trainer.policy.attention.test_families import adapted, by_the_trainer, make_base, rows_around_a_window
from tests.trainer.policy.test_model import in_packs, perturb, some_rows
from trainer.batch.layouts import Layout
from trainer.policy.model import Policy

pytestmark = [
    pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU, or no CUDA build of torch"),
    pytest.mark.gpu,
]

Load = Callable[..., Policy]
Computed = tuple[torch.Tensor, torch.Tensor]


def computed(policy: Policy) -> Computed:
    """Logprobs of packed rows that share beginnings, and the gradient of their sum."""
    perturb(policy)
    logprobs = torch.cat(in_packs(policy, some_rows()))
    gradients = torch.autograd.grad(logprobs.sum(), list(policy.parameters.values()))
    return logprobs.detach().cpu(), torch.cat([gradient.flatten().cpu() for gradient in gradients])


def assert_near(found: Computed, expected: Computed, gap: float, gradient_off: float) -> None:
    assert (found[0] - expected[0]).abs().max() < gap
    assert (found[1] - expected[1]).norm() / expected[1].norm() < gradient_off


@pytest.mark.parametrize("checkpointing", [False, True])
def test_float32_is_that_of_the_cpu(tiny_policy: Load, checkpointing: bool) -> None:
    policy = tiny_policy(device="cuda", dtype="float32", gradient_checkpointing=checkpointing)
    assert policy.layout is Layout.PACKED
    assert_near(computed(policy), computed(tiny_policy()), 1e-4, 1e-4)


@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "gpt_oss", "llama4_text"])
def test_windows_chunks_sinks_and_soft_caps_are_those_of_the_cpu(family: str, tmp_path: Path) -> None:
    base, rows = make_base(family, tmp_path / family), rows_around_a_window()
    policy = adapted(base, device="cuda", dtype="float32")
    assert policy.layout is Layout.PACKED
    found, expected = by_the_trainer(policy, rows), by_the_trainer(adapted(base), rows)
    assert (found[0].cpu() - expected[0]).abs().max() < 1e-4
    for name, gradient in expected[1].items():
        assert (found[1][name].cpu() - gradient).norm() <= 1e-3 * max(1.0, float(gradient.norm())), name


def test_bfloat16_is_as_near_as_on_the_cpu(tiny_policy: Load) -> None:
    policy = tiny_policy(device="cuda", dtype="bfloat16")
    assert policy.layout is Layout.PACKED
    assert {parameter.dtype for parameter in policy.parameters.values()} == {torch.float32}
    assert_near(computed(policy), computed(tiny_policy()), 0.2, 0.1)


def test_first_weights_are_the_cpus(tiny_policy: Load) -> None:
    here, there = tiny_policy().state(), tiny_policy(device="cuda", dtype="float32").state()
    assert all(torch.equal(here[name], there[name]) for name in here)
