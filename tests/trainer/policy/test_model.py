"""What the trainer computes is what transformers computes for each row alone."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer

from tests.effort import scaled
from tests.trainer.building import random_ids, trained_row
from trainer.batch.layouts import Layout
from trainer.batch.packing import pack
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, TrainerError, UnsupportedModel
from trainer.policy.base_model import load_policy, resolve_base
from trainer.policy.logprobs import full_logprobs, token_logprobs
from trainer.policy.model import Policy
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.update import pack_logprobs
from trainer.settings import TrainerSettings

Load = Callable[..., Policy]


def perturb(policy: Policy, scale: float = 0.1) -> None:
    """Give both LoRA matrices values, so that the adapter matters."""
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * scale)


def in_transformers(policy: Policy, row: Row) -> torch.Tensor:
    """The logprobs of a row's trained tokens, by the whole model's own forward pass on this row alone."""
    layers = [layer for layer in policy._model.modules() if isinstance(layer, BaseTunerLayer)]

    def as_peft_does(on: bool) -> None:  # the LoRA in float32, whatever the base is in
        for layer in layers:
            layer.cast_input_dtype_enabled = on

    policy.set_attention("sdpa")
    as_peft_does(True)
    try:
        ids = torch.from_numpy(row.token_ids.astype(np.int64))
        logits = policy._model(input_ids=ids[None]).logits[0].float()
    finally:
        policy.set_attention("hone_packed")
        as_peft_does(False)
    trained = np.flatnonzero(row.trained)
    tempered = logits[trained - 1] / torch.from_numpy(row.temperature[trained])[:, None]
    return torch.log_softmax(tempered, -1)[range(len(trained)), ids[trained]]


def in_packs(policy: Policy, rows: list[Row], **overrides: Any) -> list[torch.Tensor]:
    """The same, by the trainer: packed together."""
    chosen = TrainerSettings(**{"token_budget": 512, "logprob_chunk": 7, **overrides})
    weighted = [WeightedRow(row, 1.0, 1.0) for row in rows]
    found: dict[int, torch.Tensor] = {}
    for one in plan_update(policy, weighted, chosen).packs:
        logprobs, _ = pack_logprobs(policy, one, gather_tokens(one, weighted, policy.device), chosen.logprob_chunk)
        counts = [rows[index].trained_tokens for index in one.rows]
        found |= dict(zip(one.rows, torch.split(logprobs, counts), strict=True))
    return [found[index] for index in range(len(rows))]


def some_rows() -> list[Row]:
    shared = random_ids(40, 0)
    return [
        trained_row(shared + random_ids(20, 1), [*range(41, 50), *range(55, 60)], 0.7, "a"),
        trained_row(shared + random_ids(33, 2), list(range(45, 73)), 1.0, "b"),
        trained_row(shared[:25] + random_ids(9, 3), [33], 1.3, "c"),
        trained_row(random_ids(17, 4), list(range(1, 17)), 1.0, "d"),
        trained_row(shared + random_ids(20, 1), list(range(42, 60)), 1.0, "e"),
    ]


@pytest.mark.parametrize("checkpointing", [False, True])
def test_packed_logprobs_are_those_of_transformers_for_each_row_alone(tiny_policy: Load, checkpointing: bool) -> None:
    policy = tiny_policy(gradient_checkpointing=checkpointing)
    assert policy.layout is Layout.PACKED
    perturb(policy)
    rows = some_rows()
    for found, row in zip(in_packs(policy, rows), rows, strict=True):
        torch.testing.assert_close(found, in_transformers(policy, row), atol=1e-6, rtol=0)


@pytest.mark.slow
@settings(max_examples=scaled(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(st.integers(0, 50), st.integers(2, 40), st.integers(0, 99)), min_size=1, max_size=8))
def test_rows_of_any_shape_never_see_each_other(tiny_policy: Load, shapes: list[tuple[int, int, int]]) -> None:
    policy = tiny_policy()
    shared = random_ids(50, 0)
    rows = [
        trained_row(ids := shared[:prefix] + random_ids(own, seed), list(range(1, len(ids))), 1.0, str(seed))
        for prefix, own, seed in shapes
    ]
    with torch.no_grad():
        for found, row in zip(in_packs(policy, rows, token_budget=120), rows, strict=True):
            torch.testing.assert_close(found, in_transformers(policy, row), atol=2e-6, rtol=0)


@pytest.mark.parametrize("checkpointing", [False, True])
def test_gradients_of_a_pack_are_the_sum_of_the_rows_own(tiny_policy: Load, checkpointing: bool) -> None:
    policy, plain = tiny_policy(gradient_checkpointing=checkpointing), tiny_policy(gradient_checkpointing=False)
    rows = some_rows()

    def gradients(of: Policy, total: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return torch.autograd.grad(total, list(of.parameters.values()))

    for one in (policy, plain):
        perturb(one)
    packed = gradients(policy, torch.cat(in_packs(policy, rows)).sum())
    apart = gradients(plain, torch.stack([in_transformers(plain, row).sum() for row in rows]).sum())
    for found, expected in zip(packed, apart, strict=True):
        torch.testing.assert_close(found, expected, atol=1e-4, rtol=1e-4)


def test_an_untrained_lora_is_the_base(tiny_policy: Load) -> None:
    policy = tiny_policy()
    row = some_rows()[1]
    (found,) = in_packs(policy, [row])
    with policy.base_only():
        (base,) = in_packs(policy, [row])
    torch.testing.assert_close(found.detach(), base, atol=1e-7, rtol=0)
    perturb(policy)
    (changed,) = in_packs(policy, [row])
    assert (changed - base).abs().max() > 0.01
    with policy.base_only():
        (base_still,) = in_packs(policy, [row])
    assert torch.equal(base_still, base)


def test_first_weights_depend_on_the_seed_alone(tiny_policy: Load) -> None:
    torch.manual_seed(1)
    first = tiny_policy(seed=9).state()
    torch.manual_seed(2)
    again, other = tiny_policy(seed=9).state(), tiny_policy(seed=10).state()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert any(not torch.equal(first[name], other[name]) for name in first)


def test_all_linear_layers_but_the_head_have_a_lora(tiny_policy: Load) -> None:
    policy = tiny_policy()
    assert policy.modules == ("down_proj", "gate_proj", "k_proj", "o_proj", "q_proj", "up_proj", "v_proj")
    assert {parameter.dtype for parameter in policy.parameters.values()} == {torch.float32}
    assert tiny_policy(target=["q_proj", "v_proj"]).modules == ("q_proj", "v_proj")


def test_a_target_that_is_not_there_is_told(tiny_policy: Load) -> None:
    with pytest.raises(TrainerError, match=r"trainer\.target.*no_such"):
        tiny_policy(target=["no_such"])


def test_weights_of_another_shape_are_refused(tiny_policy: Load) -> None:
    policy, other = tiny_policy(rank=4), tiny_policy(rank=2, alpha=4.0)
    with pytest.raises(AdapterInvalid, match=r"shape .* trainer\.rank"):
        policy.load_state(other.state())
    state = policy.state()
    state.pop(next(iter(state)))
    with pytest.raises(AdapterInvalid, match="no tensor"):
        policy.load_state(state)


def test_a_base_in_bfloat16_keeps_its_lora_in_float32(tiny_policy: Load) -> None:
    policy = tiny_policy(dtype="bfloat16")
    assert {parameter.dtype for parameter in policy.parameters.values()} == {torch.float32}
    row = some_rows()[0]
    (found,) = in_packs(policy, [row])
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, in_transformers(policy, row), atol=0.1, rtol=0)


def test_a_model_with_a_window_is_packed(tiny_base: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_base)
    model.config.use_sliding_window = True
    model.config.sliding_window = 8
    model.config.layer_types = ["full_attention", "sliding_attention"]
    model.save_pretrained(tmp_path)
    policy = load_policy(tmp_path, TrainerSettings(device="cpu", rank=4))
    assert policy.layout is Layout.PACKED
    policy.set_attention("eager", Layout.ALONE)
    row = some_rows()[1]
    logits = policy._model(input_ids=torch.from_numpy(row.token_ids.astype(np.int64))[None]).logits[0]
    trained = np.flatnonzero(row.trained)
    expected = torch.log_softmax(logits, -1)[trained - 1, row.token_ids[trained]]
    policy.set_attention("hone_packed")
    found = in_packs(policy, some_rows())[1]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("cap", [0.5, 50.0])
def test_soft_caps_that_torchs_attention_leaves_out_are_not_left_out(tmp_path: Path, cap: float) -> None:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2, head_dim=8,
        intermediate_size=64, vocab_size=64, layer_types=["full_attention"] * 2, attn_logit_softcapping=cap,
        initializer_range=0.5, pad_token_id=0, bos_token_id=1, eos_token_id=2,
    )  # fmt: skip
    model = Gemma2ForCausalLM(config)
    model.save_pretrained(tmp_path)
    policy = load_policy(tmp_path, TrainerSettings(device="cpu", rank=4, token_budget=512))
    assert policy._causal.config._attn_implementation == "hone_packed"
    row = some_rows()[1]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        logits = model(input_ids=torch.from_numpy(row.token_ids.astype(np.int64))[None]).logits[0]
    trained = np.flatnonzero(row.trained)
    expected = torch.log_softmax(logits, -1)[trained - 1, row.token_ids[trained]]
    (found,) = in_packs(policy, [row])
    torch.testing.assert_close(found.detach(), expected, atol=1e-5, rtol=0)


def test_logits_that_the_trainer_cannot_reproduce_are_refused(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers import Qwen3ForCausalLM

    stock = Qwen3ForCausalLM.forward

    def twice(self: Any, *args: Any, **kwargs: Any) -> Any:
        output = stock(self, *args, **kwargs)
        output.logits = output.logits * 2
        return output

    monkeypatch.setattr(Qwen3ForCausalLM, "forward", twice)
    with pytest.raises(UnsupportedModel, match="logits"):
        load_policy(tiny_base, TrainerSettings(rank=4))


def test_a_folder_without_a_model_is_told(tmp_path: Path) -> None:
    with pytest.raises(TrainerError, match=str(tmp_path)):
        load_policy(tmp_path, TrainerSettings())


def test_a_damaged_weight_file_is_told(tiny_base: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_base, tmp_path / "base")
    (tmp_path / "base" / "model.safetensors").write_bytes(b"torn")
    with pytest.raises(TrainerError, match="cannot load the base"):
        load_policy(tmp_path / "base", TrainerSettings())


def test_a_gpu_that_is_not_there_is_told(tiny_policy: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(TrainerError, match=r"trainer\.device is cuda.*no GPU"):
        tiny_policy(device="cuda")


def test_a_base_that_the_gpu_has_no_room_for_is_told(tiny_policy: Load, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 14.00 GiB.")

    monkeypatch.setattr(PeftModel, "to", full)
    with pytest.raises(TrainerError, match=r"does not fit.*engine\.kv_cache_bytes.*14\.00 GiB"):
        tiny_policy()


@pytest.mark.slow
@settings(deadline=None)
@given(st.integers(1, 40), st.integers(1, 50), st.integers(0, 99))
def test_chunked_logprobs_equal_plain_ones_and_so_do_their_gradients(count: int, chunk: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    # float64 around the float32 of the code under test: a matmul's order of summation must not decide this test
    hidden = torch.randn(count, 8, generator=generator).double().requires_grad_()
    weight = torch.randn(23, 8, generator=generator).double()
    targets = torch.randint(0, 23, (count,), generator=generator)
    temperatures = torch.rand(count, generator=generator) + 0.5

    found, entropy = token_logprobs(hidden, lambda h: h @ weight.T, targets, temperatures, chunk=chunk)
    plain = torch.log_softmax((hidden @ weight.T).float() / temperatures[:, None], -1)
    expected = plain[range(count), targets]
    torch.testing.assert_close(found, expected, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(entropy, -(plain.exp() * plain).sum(-1).detach(), atol=1e-5, rtol=1e-5)
    assert not entropy.requires_grad
    upstream = torch.randn(count, generator=generator)
    (ours,) = torch.autograd.grad((found * upstream).sum(), hidden)
    (theirs,) = torch.autograd.grad((expected * upstream).sum(), hidden)
    torch.testing.assert_close(ours, theirs, atol=1e-6, rtol=1e-5)


def test_the_head_runs_on_a_chunk_at_a_time() -> None:
    seen: list[int] = []

    def head(states: torch.Tensor) -> torch.Tensor:
        seen.append(len(states))
        return states

    hidden = torch.randn(10, 5, requires_grad=True)
    found, _ = token_logprobs(hidden, head, torch.zeros(10, dtype=torch.int64), torch.ones(10), chunk=4)
    torch.autograd.backward(found.sum())
    assert seen == [4, 4, 2, *seen[3:]]
    assert sorted(seen[3:]) == [2, 4, 4]  # once more in the backward pass


def test_no_token_at_all_is_no_error() -> None:
    found, entropy = token_logprobs(
        torch.zeros(0, 4), lambda h: h, torch.zeros(0, dtype=torch.int64), torch.ones(0), chunk=4
    )
    assert found.shape == entropy.shape == (0,)


def test_whole_distributions_sum_to_one(tiny_policy: Load) -> None:
    policy = tiny_policy()
    (one,) = pack([np.array(random_ids(12, 1), np.int32)], 100)
    with torch.no_grad():
        found = full_logprobs(policy.hidden(one), policy.head)
    torch.testing.assert_close(found.exp().sum(-1), torch.ones(12))


def test_a_base_that_neither_disk_nor_hub_has_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> str:
        raise OSError("no network")

    monkeypatch.setattr("trainer.policy.base_model.snapshot_download", offline)
    with pytest.raises(TrainerError, match=r"some/model.*not a folder.*no network"):
        resolve_base("some/model")
