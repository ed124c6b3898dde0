"""The trainer on a copy in nf4 computes what it computes on a plain base that has the copy's weights."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM

from tests.trainer.building import random_ids, trained_row
from tests.trainer.families import save_family
from tests.trainer.passes import row_logprobs
from tests.trainer.quantization.copies import plain_copy, rounded
from trainer.batch.layouts import Layout
from trainer.batch.row_builder import Row
from trainer.errors import TrainerError, UnsupportedModel
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.startup_check import random_state
from trainer.quantization import nf4
from trainer.quantization.layers import is_quantized, quantize_layers, require_plain_weights
from trainer.quantization.nf4 import Nf4Linear
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=256, logprob_chunk=32)
CPU = torch.device("cpu")


def loaded(base: Path, **changes: Any) -> Policy:
    policy = load_policy(base, SETTINGS.model_copy(update=changes))
    policy.load_state(random_state(policy, 3))
    return policy


def some_rows() -> list[Row]:
    shared = random_ids(40, 0)
    return [
        trained_row(shared + random_ids(30, 1), list(range(41, 70)), 0.7, "a"),
        trained_row(shared + random_ids(33, 2), list(range(45, 73)), 1.0, "b"),
        trained_row(random_ids(17, 4), list(range(1, 17)), 1.0, "c"),
    ]


def computed(policy: Policy, rows: Sequence[Row], budget: int = 256) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Logprobs and gradients."""
    logprobs = row_logprobs(policy, rows, SETTINGS, budget)
    weights = torch.linspace(-1, 1, len(logprobs))
    gradients = torch.autograd.grad((logprobs * weights).sum(), list(policy.parameters.values()))
    return logprobs.detach(), list(gradients)


def require_equal(
    found: tuple[torch.Tensor, list[torch.Tensor]], expected: tuple[torch.Tensor, list[torch.Tensor]]
) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=5e-6, rtol=0)
    for one, other in zip(found[1], expected[1], strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_logprobs_and_gradients_are_those_of_a_plain_base_with_the_copys_weights(
    tiny_base: Path, tmp_path: Path, checkpointing: bool
) -> None:
    copy = loaded(tiny_base, quantize="nf4", gradient_checkpointing=checkpointing)
    assert copy.layout is Layout.PACKED
    assert copy.dtype is torch.float32
    expected = computed(loaded(plain_copy(tiny_base, tmp_path / "plain")), some_rows())
    require_equal(computed(copy, some_rows()), expected)
    base, _ = computed(loaded(tiny_base), some_rows())
    assert (expected[0] - base).abs().mean() > 1e-3  # the copy is another model


def test_packed_rows_have_the_logprobs_that_each_has_alone(tiny_base: Path) -> None:
    copy, rows = loaded(tiny_base, quantize="nf4"), some_rows()
    alone = torch.cat([computed(copy, [row])[0] for row in rows])
    torch.testing.assert_close(computed(copy, rows)[0], alone, atol=5e-6, rtol=0)


def test_a_row_longer_than_a_pass_is_computed_in_tiles(tiny_base: Path, tmp_path: Path) -> None:
    copy, plain = loaded(tiny_base, quantize="nf4"), loaded(plain_copy(tiny_base, tmp_path / "plain"))
    assert copy.has_long_rows
    row = trained_row(random_ids(200, 9), list(range(50, 200)), 1.0, "long")
    expected = computed(plain, [row])
    copy.pass_budget = 32
    require_equal(computed(copy, [row], budget=32), expected)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["qwen3-moe", "qwen3.5-moe"])
def test_of_a_mixture_experts_and_routers_stay_plain(family: str, tmp_path: Path) -> None:
    base = save_family(family, tmp_path / "base")
    copy = loaded(base, quantize="nf4")
    require_equal(computed(copy, some_rows()), computed(loaded(plain_copy(base, tmp_path / "plain")), some_rows()))


@pytest.mark.slow
def test_in_bfloat16_copy_and_plain_base_differ_by_rounding_alone(tiny_base: Path, tmp_path: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_base, dtype=torch.bfloat16)
    model.save_pretrained(tmp_path / "base")  # bitsandbytes rounds to the dtype that it quantised
    copy = loaded(tmp_path / "base", quantize="nf4", dtype="bfloat16")
    plain = loaded(plain_copy(tmp_path / "base", tmp_path / "plain"), dtype="bfloat16")
    expected, _ = computed(plain, some_rows())
    torch.testing.assert_close(computed(copy, some_rows())[0], expected, atol=2e-2, rtol=0)


def test_every_linear_layer_of_the_decoder_is_quantised_and_nothing_else(tiny_base: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_base)
    before = {name: tensor.clone() for name, tensor in model.named_parameters()}
    quantize_layers(model, CPU)
    assert is_quantized(model)
    layers = {name: one for name, one in model.named_modules() if isinstance(one, Nf4Linear)}
    assert len(layers) == 2 * 7
    assert not isinstance(model.get_output_embeddings(), Nf4Linear)
    for name, layer in layers.items():
        torch.testing.assert_close(layer.dequantized(), rounded(before[f"{name}.weight"]), atol=0, rtol=0)
    for name, tensor in model.named_parameters():
        assert name.removesuffix(".weight") in layers or torch.equal(tensor, before[name])


def nf4_levels() -> torch.Tensor:
    """The 16 levels by their definition (QLoRA, appendix E): quantiles of a normal distribution, zero among them."""
    quantile, outermost = NormalDist().inv_cdf, 0.9677083
    above = [quantile(float(one)) for one in np.linspace(outermost, 0.5, 9)[:-1]]
    below = [-quantile(float(one)) for one in np.linspace(outermost, 0.5, 8)[:-1]]
    return torch.tensor(sorted([*above, *below, 0.0])) / above[0]


@pytest.mark.parametrize("width", [96, 128])
def test_weights_are_the_nearest_level_times_the_scale_of_their_block(width: int) -> None:
    layer = nn.Linear(width, 40)
    copy = Nf4Linear.of(layer, CPU)
    weights, found = layer.weight.detach().reshape(-1, 64), copy.dequantized().reshape(-1, 64)
    largest, scales = weights.abs().amax(1, keepdim=True), found.abs().amax(1, keepdim=True)
    torch.testing.assert_close(scales, largest, rtol=0.02, atol=0)  # a scale has 8 bits
    levels = nf4_levels()
    nearest = levels[((weights / largest)[..., None] - levels).abs().argmin(-1)]
    torch.testing.assert_close(found, nearest * scales, rtol=1e-5, atol=1e-7)
    states = torch.randn(3, width)
    torch.testing.assert_close(copy(states), states @ copy.dequantized().T + layer.bias)


def test_a_layer_knows_its_bytes_without_data() -> None:
    layer = nn.Linear(160, 48, dtype=torch.bfloat16)
    copy, shaped = Nf4Linear.of(layer, CPU), Nf4Linear.shaped(layer)
    sizes = [(one.shape, one.dtype) for one in (copy.weight, *copy.buffers())]
    assert sizes == [(one.shape, one.dtype) for one in (shaped.weight, *shaped.buffers())]
    held = sum(one.untyped_storage().nbytes() for one in (copy.weight, *copy.buffers()))
    assert copy.saved_bytes == shaped.saved_bytes == 160 * 48 * 2 - held


def test_the_initial_lora_does_not_depend_on_the_copy(tiny_base: Path) -> None:
    copy, plain = (load_policy(tiny_base, SETTINGS.model_copy(update={"quantize": one})) for one in ("nf4", None))
    assert copy.state().keys() == plain.state().keys()
    assert all(torch.equal(tensor, plain.state()[name]) for name, tensor in copy.state().items())


@pytest.mark.parametrize("method", ["fp8", "mxfp4", "awq", "gptq"])
def test_a_base_that_is_quantised_already_is_refused_in_one_sentence(method: str) -> None:
    with pytest.raises(UnsupportedModel, match=f"those of the base B are quantised by {method}: leave") as refused:
        require_plain_weights("B", {"quantization_config": {"quant_method": method}}, "nf4")
    assert str(refused.value).count(". ") == 0
    require_plain_weights("B", {"quantization_config": {"quant_method": method}}, None)
    require_plain_weights("B", {}, "nf4")


def test_without_bitsandbytes_the_extra_is_named(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    nf4._library.cache_clear()
    monkeypatch.setitem(sys.modules, "bitsandbytes.functional", None)
    with pytest.raises(TrainerError, match=r"pip install 'hone-proxy\[nf4\]'"):
        load_policy(tiny_base, SETTINGS.model_copy(update={"quantize": "nf4"}))
