"""A mixture of experts whose routers choose others by rounding is trained; one whose rows see each other is not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import GptOssConfig, GptOssForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

from tests.trainer.policy.test_startup_check import SHAPE, saved
from trainer.batch.layouts import Layout
from trainer.batch.packing import Pack, Segment
from trainer.errors import UnsupportedModel
from trainer.policy import startup_check
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.startup_check import FixedRouting
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=256, dtype="bfloat16")


@pytest.fixture(scope="module")
def gpt_oss(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two of four experts: the nearest of two experts' scores often change places by rounding."""
    config = GptOssConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=32)
    return saved(lambda: GptOssForCausalLM(config), tmp_path_factory.mktemp("gpt-oss"))


def test_rounding_that_changes_the_experts_of_a_token_refuses_no_base(gpt_oss: Path) -> None:
    policy = load_policy(gpt_oss, SETTINGS)
    assert policy.dtype == torch.bfloat16
    assert (policy.layout, policy.unpacked_reason) == (Layout.PACKED, None)
    assert policy.has_long_rows


def test_a_row_that_sees_another_is_found_in_a_mixture(gpt_oss: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Policy.hidden

    def unmasked(self: Policy, one: Pack) -> torch.Tensor:
        """Packed rows as one row, each token seeing all before it."""
        whole = (Segment(0, len(one), 0, ()),)
        return stock(self, replace(one, segments=whole) if self.layout is Layout.PACKED else one)

    monkeypatch.setattr(Policy, "hidden", unmasked)
    policy = load_policy(gpt_oss, SETTINGS)
    assert policy.layout is not Layout.PACKED
    assert policy.unpacked_reason == "packed rows have other logits than each row has alone"


def test_a_lora_that_is_left_out_is_found_in_a_mixture(gpt_oss: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stock = Policy.hidden

    def without(self: Policy, one: Pack) -> torch.Tensor:
        with self.base_only():
            return stock(self, one)

    monkeypatch.setattr(Policy, "hidden", without)
    with pytest.raises(UnsupportedModel, match="logits"):
        load_policy(gpt_oss, SETTINGS)


def test_fixed_routing_takes_the_same_experts_for_all_tokens_with_their_own_scores() -> None:
    scores = torch.tensor([[1.0, 2.0, 3.0, 4.0], [4.0, 3.0, 2.0, 1.0]])
    with FixedRouting({4}):
        values, indices = torch.topk(scores, 2, dim=-1)
        assert torch.equal(indices, torch.tensor([[0, 1], [0, 1]]))
        assert torch.equal(values, torch.tensor([[1.0, 2.0], [4.0, 3.0]]))
        assert torch.equal(scores.topk(k=2).indices, indices)
        # choices among other things stay: keys of attention, tokens of an expert
        assert torch.equal(torch.topk(scores[:, :3], 1).indices, torch.tensor([[2], [0]]))
        assert torch.equal(torch.topk(scores, 1, dim=0).indices, torch.tensor([[1, 1, 0, 0]]))
        assert torch.equal(torch.topk(scores[None], 1).indices, torch.tensor([[[3], [0]]]))
    assert torch.equal(torch.topk(scores, 1).indices, torch.tensor([[3], [0]]))


def test_routers_of_a_mixture_are_fixed_and_its_scores_still_count(tmp_path: Path) -> None:
    config = Qwen3MoeConfig(**SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32)
    policy = load_policy(saved(lambda: Qwen3MoeForCausalLM(config), tmp_path), SETTINGS)
    chosen: list[torch.Tensor] = []

    def note(module: Any, inputs: Any, output: Any) -> None:
        chosen.append(output[2])

    for name, module in policy._decoder.named_modules():
        if name.endswith("mlp.gate"):
            module.register_forward_hook(note)
    policy.set_attention("eager")
    row = startup_check._short_rows(64)[0]
    policy.own_logits(row)
    free, chosen[:] = list(chosen), []
    with FixedRouting(startup_check.router_choices(policy.model_config)):
        policy.own_logits(row)
    assert all((one.sort(-1).values == torch.tensor([0, 1])).all() for one in chosen)
    assert len(chosen) == len(free) == 2
    assert not all((one.sort(-1).values == torch.tensor([0, 1])).all() for one in free)
