"""The measurement of a step on fake tensors: against the committed H100 runs, and against the whole model."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest

from benchmarks.gpu_step import _QWEN, BASES, GIB, RESULTS, SETTINGS
from recorder.models.base_model import read_base_model
from recorder.models.shipped_configs import SHIPPED
from trainer.errors import UnsupportedModel
from trainer.memory import step_memory
from trainer.memory.step_memory import BACKWARD, FORWARD, LOGPROBS, UPDATE, measure_step
from trainer.settings import TrainerSettings

COMMITTED = json.loads(RESULTS.read_text("utf-8"))
OFF = 0.05
NAMES = ("Qwen3-0.6B", "Qwen2.5-1.5B")


def config(name: str) -> dict[str, Any]:
    return _QWEN | BASES[name]


def shipped(name: str) -> dict[str, Any]:
    return dict(read_base_model(SHIPPED / name, needs_weights=False).config)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_holds_what_the_committed_run_held(name: str) -> None:
    found = measure_step(config(name), SETTINGS, 16_384)
    assert found.held / GIB == pytest.approx(COMMITTED[name]["step"]["peak_gib"], rel=OFF)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("place", [0, 2])
def test_a_budget_holds_what_the_committed_run_held(name: str, place: int) -> None:
    run = COMMITTED[name]["budgets"][place]
    found = measure_step(config(name), SETTINGS, run["token_budget"])
    assert found.held / GIB == pytest.approx(run["peak_gib"], rel=OFF)


@pytest.mark.parametrize("name", NAMES)
def test_one_long_row_holds_what_the_committed_run_held(name: str) -> None:
    run = COMMITTED[name]["long"][1]
    found = measure_step(config(name), SETTINGS, run["tokens"], one_row=True)
    assert found.held / GIB == pytest.approx(run["peak_gib"], rel=OFF)


@pytest.mark.parametrize("name", NAMES)
def test_kept_activations_hold_what_the_committed_run_held(name: str) -> None:
    kept = SETTINGS.model_copy(update={"gradient_checkpointing": False})
    run = next(one for one in COMMITTED[name]["ways"] if one["way"] == "packed, activations kept")
    assert measure_step(config(name), kept, 16_384).held / GIB == pytest.approx(run["peak_gib"], rel=OFF)


def small(layers: int, **values: Any) -> dict[str, Any]:
    return config("small") | {"num_hidden_layers": layers} | values


def test_what_follows_from_few_layers_is_what_the_whole_model_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    follows = measure_step(small(8), SETTINGS, 4096)
    monkeypatch.setattr(step_memory, "_period", lambda text: text.num_hidden_layers)
    whole = measure_step(small(8), SETTINGS, 4096)
    assert follows.peaks.keys() == {FORWARD, LOGPROBS, BACKWARD, UPDATE}
    assert follows.peaks == pytest.approx(whole.peaks, rel=1e-3)
    assert (follows.base, follows.lora, follows.flops) == (whole.base, whole.lora, whole.flops)


def test_sizes_are_those_of_the_configuration() -> None:
    found = measure_step(small(3), SETTINGS, 256)
    profile = read_base_model(SHIPPED / "Qwen3-8B", needs_weights=False)
    large = measure_step(profile.config, TrainerSettings(), 2048)
    assert profile.parameter_bytes is not None
    assert large.base == pytest.approx(profile.parameter_bytes.total, rel=1e-4)
    assert found.optimizer == 2 * found.lora
    assert found.held > found.base + found.lora + found.optimizer


def test_checkpointing_holds_less_and_computes_more() -> None:
    kept = measure_step(small(6), SETTINGS.model_copy(update={"gradient_checkpointing": False}), 8192)
    recomputed = measure_step(small(6), SETTINGS, 8192)
    assert recomputed.held < kept.held
    assert recomputed.flops > kept.flops


def test_clipping_by_recent_norms_holds_nothing_more() -> None:
    never = SETTINGS.model_copy(update={"grad_clip_recent": math.inf})
    by_recent = SETTINGS.model_copy(update={"grad_clip_recent": 2.0})
    assert measure_step(small(4), by_recent, 512) == measure_step(small(4), never, 512)


def test_a_divergence_to_the_base_adds_a_forward_pass() -> None:
    plain = measure_step(small(4), SETTINGS, 2048)
    measured = measure_step(small(4), SETTINGS.model_copy(update={"kl_coef": 0.1}), 2048)
    assert measured.flops > plain.flops


def test_experts_are_computed_grouped_and_their_lora_is_named() -> None:
    values = small(4, model_type="qwen3_moe", num_experts=8, num_experts_per_tok=2, moe_intermediate_size=128)
    found = measure_step(values, SETTINGS, 1024)
    assert found.held > found.base
    assert found.unservable == ()
    assert {"q_proj", "o_proj", "experts"} <= set(found.servable)


def test_windows_have_masks_of_their_own_width_and_full_attention_has_none() -> None:
    tokens = 4096
    values = {
        "model_type": "gemma3_text", "hidden_size": 256, "num_hidden_layers": 4, "num_attention_heads": 4,
        "num_key_value_heads": 1, "head_dim": 64, "intermediate_size": 512, "vocab_size": 4096, "sliding_window": 512,
    }  # fmt: skip
    sliding = measure_step(values | {"layer_types": ["sliding_attention"] * 4}, SETTINGS, tokens)
    full = measure_step(values | {"layer_types": ["full_attention"] * 4}, SETTINGS, tokens)
    assert sliding.held <= full.held + 4 * 512 * 1024 * 2  # a mask in each layer; one of the row would be 32 MiB
    assert sliding.flops < full.flops


def test_kinds_of_layers_that_alternate_are_measured_by_their_period(monkeypatch: pytest.MonkeyPatch) -> None:
    kinds = ["sliding_attention", "full_attention"] * 3
    values = small(6, model_type="qwen3", use_sliding_window=True, sliding_window=256, layer_types=kinds)
    follows = measure_step(values, SETTINGS, 1024)
    monkeypatch.setattr(step_memory, "_period", lambda text: text.num_hidden_layers)
    assert follows.peaks == pytest.approx(measure_step(values, SETTINGS, 1024).peaks, rel=1e-3)


def test_an_unknown_kind_of_model_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match="'nobodys'"):
        measure_step({"model_type": "nobodys", "num_hidden_layers": 2}, SETTINGS, 128)
