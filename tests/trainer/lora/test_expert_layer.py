"""Experts with a LoRA: logprobs and gradients are those of a plain forward pass with the file's matrices added in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM

from tests.trainer.building import random_ids
from tests.trainer.families import MIXTURES, VOCABULARY, make_model, save_family
from tests.trainer.served import served_logits
from trainer.batch.layouts import make_packs
from trainer.lora.expert_layer import compute_experts
from trainer.lora.file_layout import ExpertLayout
from trainer.memory.step_memory import measure_step
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings

RANK = 4
SETTINGS = TrainerSettings(device="cpu", rank=RANK, alpha=8.0, token_budget=256)
ROWS = [random_ids(20, 0) + random_ids(length, length) for length in (9, 17, 12)]


def plain_model(base: Path) -> Any:
    """The base as transformers computes it, one expert after another."""
    model = AutoModelForCausalLM.from_pretrained(
        base, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager"
    )
    return model.eval().requires_grad_(requires_grad=False)


def trained_logits(policy: Policy) -> dict[int, torch.Tensor]:
    """The logits of each row, with gradients: packed rows where the trainer packs this family."""
    found = {}
    for one in make_packs([np.array(row, np.int32) for row in ROWS], 256, policy.layout):
        hidden = policy.hidden(one)
        for index, places in zip(one.rows, one.places, strict=True):
            found[index] = policy.head(hidden[torch.from_numpy(places)])
    return found


@pytest.mark.parametrize("family", MIXTURES)
def test_logprobs_and_gradients_are_those_of_the_plain_forward_pass(family: str, tmp_path: Path) -> None:
    base = save_family(family, tmp_path)
    policy = load_policy(base, SETTINGS)
    policy.load_state(random_state(policy, 3))
    loss = torch.zeros(())
    found = trained_logits(policy)
    for index, row in enumerate(ROWS):
        loss = loss + found[index].log_softmax(-1)[torch.arange(len(row) - 1), row[1:]].sum()
    loss.backward()  # type: ignore[no-untyped-call]

    layout = ExpertLayout.of(type(policy._causal).__name__, RANK)
    leaves = {name: tensor.requires_grad_() for name, tensor in policy.state().items()}
    file, plain = layout.to_file(leaves), plain_model(base)
    expected_loss = torch.zeros(())
    for index, row in enumerate(ROWS):
        expected = served_logits(plain, file, layout.names, RANK, 2.0, row)
        torch.testing.assert_close(found[index].log_softmax(-1), expected.log_softmax(-1), atol=1e-5, rtol=1e-5)
        expected_loss = expected_loss + expected.log_softmax(-1)[torch.arange(len(row) - 1), row[1:]].sum()
    expected_loss.backward()  # type: ignore[no-untyped-call]
    for name, parameter in policy.parameters.items():
        gradient = leaves[name].grad
        assert gradient is not None
        assert parameter.grad is not None
        assert gradient.any(), f"{name} takes no part"
        scale = float(gradient.abs().max())
        torch.testing.assert_close(parameter.grad, gradient, atol=2e-5 * scale, rtol=1e-4, msg=name)


@pytest.mark.parametrize("family", ["qwen3-moe", "gpt-oss", "llama4"])
def test_without_the_lora_and_with_an_untrained_one_the_base_computes(family: str, tmp_path: Path) -> None:
    base = save_family(family, tmp_path)
    policy, plain = load_policy(base, SETTINGS), plain_model(base)
    policy.set_attention("eager")
    ids = torch.tensor([ROWS[0]])
    with torch.no_grad():
        expected = plain(input_ids=ids).logits
        torch.testing.assert_close(policy._causal(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)
        policy.load_state(random_state(policy, 3))
        assert not torch.allclose(policy._causal(input_ids=ids).logits, expected, atol=1e-2)
        with policy.base_only():
            torch.testing.assert_close(policy._causal(input_ids=ids).logits, expected, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("sizes", [(32, 24), (30, 9)], ids=["aligned", "odd"])
def test_experts_are_computed_in_every_precision_and_size(dtype: torch.dtype, sizes: tuple[int, int]) -> None:
    """torch's grouped product refuses rows that begin at no multiple of 16 bytes."""
    hidden, width = sizes
    generator = torch.Generator().manual_seed(0)

    class Experts(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.gate_up_proj = torch.nn.Parameter(torch.randn(3, 2 * width, hidden, generator=generator).to(dtype))
            self.down_proj = torch.nn.Parameter(torch.randn(3, hidden, width, generator=generator).to(dtype))
            self.act_fn = torch.nn.functional.silu

    experts = Experts()
    states = torch.randn(7, hidden, generator=generator).to(dtype)
    chosen = torch.tensor([[0, 2], [2, 0], [0, 2], [2, 0], [0, 2], [2, 0], [0, 2]])  # the second one gets no token
    weights = torch.rand(7, 2, generator=generator)
    expected = torch.zeros(7, hidden)
    for token in range(7):
        for place in range(2):
            gate, up = (experts.gate_up_proj[chosen[token, place]].float() @ states[token].float()).chunk(2)
            out = experts.down_proj[chosen[token, place]].float() @ (torch.nn.functional.silu(gate) * up)
            expected[token] += weights[token, place] * out
    found = compute_experts(experts, states, chosen, weights)
    assert found.dtype == dtype
    tolerance = 1e-4 if dtype == torch.float32 else 0.05 * float(expected.detach().abs().max())
    torch.testing.assert_close(found.float(), expected, atol=tolerance, rtol=0.0)
    found.float().sum().backward()  # type: ignore[no-untyped-call]
    gradient = experts.gate_up_proj.grad
    assert gradient is not None
    assert gradient.any()
    assert not gradient[1].any()


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("target", ["experts", "attention"])
def test_the_memory_of_a_mixture_s_step_is_measured_without_data(dtype: Any, target: Any) -> None:
    """In float32 torch's grouped product has no shapes for tensors without data."""
    config = make_model("qwen3-moe").config.to_dict()
    measured = measure_step(config, SETTINGS.model_copy(update={"dtype": dtype, "target": target}), 64)
    # 2 layers, 4 experts: gate and up (4, 32) and (48, 4), down (4, 24) and (32, 4)
    experts = 2 * 4 * (4 * 32 + 48 * 4 + 4 * 24 + 32 * 4) * 4
    attention = 2 * 4 * ((32 + 32) + 2 * (32 + 16) + (32 + 32)) * 4
    assert measured.lora == (experts if target == "experts" else attention)
    assert measured.unservable == ()
    assert config["vocab_size"] == VOCABULARY
