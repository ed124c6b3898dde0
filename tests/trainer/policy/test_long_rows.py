"""A row longer than a pass: computed alone, recomputed and in tiles, with the same logprobs and gradients."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.effort import scaled
from tests.trainer.building import random_ids, trained_row
from tests.trainer.passes import row_logprobs
from tests.trainer.policy.test_startup_check import SHAPE, gemma3, llama, saved
from trainer.batch.layouts import Layout
from trainer.batch.row_builder import Row
from trainer.policy import memory, pass_method, row_fit, startup_check
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.pass_method import PassMethod, choose_method
from trainer.policy.row_fit import RowNeeds
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings(device="cpu", rank=4, alpha=8.0, token_budget=256, logprob_chunk=32)
Computed = tuple[torch.Tensor, dict[str, torch.Tensor]]


def qwen3_moe(folder: Path) -> Path:
    from transformers import Qwen3MoeConfig, Qwen3MoeForCausalLM

    config = Qwen3MoeConfig(
        **SHAPE, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, norm_topk_prob=True
    )
    return saved(lambda: Qwen3MoeForCausalLM(config), folder)


def gemma2(folder: Path) -> Path:
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(**SHAPE, layer_types=["full_attention"] * 2, attn_logit_softcapping=20.0)
    return saved(lambda: Gemma2ForCausalLM(config), folder)


def gpt_oss(folder: Path) -> Path:
    """Its MLP also returns the router's scores."""
    from transformers import GptOssConfig, GptOssForCausalLM

    config = GptOssConfig(**SHAPE, num_local_experts=4, num_experts_per_tok=2, sliding_window=32)
    return saved(lambda: GptOssForCausalLM(config), folder)


def phi_moe(folder: Path) -> Path:
    """Its router draws random numbers in training mode."""
    from transformers import PhimoeConfig, PhimoeForCausalLM

    shape = {name: value for name, value in SHAPE.items() if name != "head_dim"}
    config = PhimoeConfig(**shape, num_local_experts=4, input_jitter_noise=0.1, router_jitter_noise=0.1)
    return saved(lambda: PhimoeForCausalLM(config), folder)


def granite_hybrid(folder: Path, experts: int = 4) -> Path:
    """A layer has two MLPs: routed experts, and one that all tokens share."""
    from transformers import GraniteMoeHybridConfig, GraniteMoeHybridForCausalLM

    shape = {name: value for name, value in SHAPE.items() if name != "head_dim"}
    config = GraniteMoeHybridConfig(
        **shape, layer_types=["mamba", "attention"], num_local_experts=experts, num_experts_per_tok=min(2, experts),
        shared_intermediate_size=64, mamba_n_heads=4, mamba_d_head=24, mamba_d_state=8, mamba_chunk_size=16,
    )  # fmt: skip
    return saved(lambda: GraniteMoeHybridForCausalLM(config), folder)


FAMILIES: dict[str, Callable[[Path], Path]] = {
    "llama": llama,
    "gemma2 (soft caps)": gemma2,
    "gemma3 (windows)": gemma3,
    "qwen3-moe": qwen3_moe,
    "gpt-oss": gpt_oss,
    "phi-moe": phi_moe,
    "granite-hybrid": granite_hybrid,
    "granite-hybrid (dense)": partial(granite_hybrid, experts=0),
}


def loaded(base: Path, **changes: Any) -> Policy:
    target: Any = {"target": ["q_proj", "v_proj"]} if "qwen3-moe" in str(base) else {}
    policy = load_policy(base, SETTINGS.model_copy(update={**target, **changes}))
    policy.load_state(startup_check.random_state(policy, 3))
    return policy


def computed(policy: Policy, rows: list[Row], pass_budget: int) -> Computed:
    """The logprobs of all trained tokens, row by row, and the gradient of a weighted sum of them."""
    policy.pass_budget = pass_budget
    logprobs = row_logprobs(policy, rows, SETTINGS, pass_budget)
    parameters = list(policy.parameters.values())
    weights = torch.linspace(-1, 1, len(logprobs)) / len(logprobs)
    gradients = torch.autograd.grad((logprobs * weights).sum(), parameters)
    return logprobs.detach(), dict(zip(policy.parameters, gradients, strict=True))


def assert_equal(found: Computed, expected: Computed) -> None:
    torch.testing.assert_close(found[0], expected[0], atol=2e-6, rtol=1e-6)
    scale = max(float(gradient.abs().max()) for gradient in expected[1].values())
    for name, gradient in expected[1].items():
        assert float((found[1][name] - gradient).abs().max()) <= 1e-6 * max(1.0, scale), name


def some_rows() -> list[Row]:
    shared = random_ids(40, 0)
    return [
        trained_row(shared + random_ids(110, 1), [*range(41, 60), *range(100, 150)], 0.7, "a"),
        trained_row(shared + random_ids(33, 2), list(range(45, 73)), 1.0, "b"),
        trained_row(shared + random_ids(3, 3), [42], 1.3, "c"),
        trained_row(random_ids(17, 4), list(range(1, 17)), 1.0, "d"),
        trained_row(shared + random_ids(60, 1), list(range(42, 100)), 1.0, "e"),
    ]


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return FAMILIES[request.param](tmp_path / request.param)


@pytest.fixture
def small_tiles(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pass_method, "TILE", 24)


@pytest.mark.usefixtures("small_tiles")
def test_rows_longer_than_a_pass_have_the_logprobs_and_gradients_of_a_larger_pass(family: Path) -> None:
    policy = loaded(family, offload_inputs=True)
    assert policy.has_long_rows
    expected = computed(policy, some_rows(), 256)
    for pass_budget in (110, 60, 7):
        assert_equal(computed(policy, some_rows(), pass_budget), expected)


@pytest.mark.usefixtures("small_tiles")
@pytest.mark.parametrize(
    ("changes", "offload"),
    [
        pytest.param(changes, offload, marks=() if at == other else pytest.mark.long)
        for at, changes in enumerate([{}, {"gradient_checkpointing": True}, {"gradient_checkpointing": False}])
        for other, offload in enumerate([True, False, "auto"])
    ],
)
def test_no_setting_of_the_method_changes_the_result(tiny_base: Path, changes: dict[str, Any], offload: Any) -> None:
    expected = computed(loaded(tiny_base), some_rows(), 256)
    policy = loaded(tiny_base, offload_inputs=offload, **changes)
    for pass_budget in (256, 60):
        assert_equal(computed(policy, some_rows(), pass_budget), expected)


@pytest.mark.slow
@settings(max_examples=scaled(15), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 50), st.integers(2, 90), st.integers(0, 99)), min_size=1, max_size=6),
    st.integers(2, 120),
    st.integers(1, 50),
)
def test_rows_of_any_shape_in_tiles_of_any_size(
    tiny_base: Path, shapes: list[tuple[int, int, int]], pass_budget: int, tile: int
) -> None:
    policy = loaded(tiny_base, offload_inputs=True)
    shared = random_ids(50, 0)
    rows = [
        trained_row(ids := shared[:prefix] + random_ids(own, seed), list(range(1, len(ids))), 1.0, str(seed))
        for prefix, own, seed in shapes
    ]
    expected = computed(policy, rows, 1000)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pass_method, "TILE", tile)
        assert_equal(computed(policy, rows, pass_budget), expected)


class _Sizes(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """The shapes of everything that is computed within."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.shapes: set[tuple[int, ...]] = set()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        self.shapes |= {tuple(leaf.shape) for leaf in tree_leaves(result) if isinstance(leaf, torch.Tensor)}
        return result


def test_nothing_as_wide_as_the_mlp_or_the_scores_exists_for_a_whole_long_row(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = loaded(tiny_base)
    row = trained_row(random_ids(150, 1), [149], 1.0, "a")

    def wide(pass_budget: int) -> Iterator[tuple[int, ...]]:
        with _Sizes() as seen:
            computed(policy, [row], pass_budget)
        return (shape for shape in seen.shapes if 150 in shape and (96 in shape or shape.count(150) == 2))

    assert (1, 150, 96) in set(wide(256))
    monkeypatch.setattr(pass_method, "TILE", 24)
    assert list(wide(100)) == []


def test_layers_inputs_are_all_that_is_offloaded(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One tensor (1, tokens, hidden) for each layer; nothing for a pass that is not longer than the budget."""
    from torch.autograd import graph

    kept: list[tuple[int, ...]] = []

    class Counted(graph.saved_tensors_hooks):
        def __init__(self, pin_memory: bool) -> None:
            assert not pin_memory  # there is no GPU
            super().__init__(self.pack, lambda tensor: tensor)

        def pack(self, tensor: torch.Tensor) -> torch.Tensor:
            kept.append(tuple(tensor.shape))
            return tensor

    monkeypatch.setattr("trainer.policy.model.save_on_cpu", Counted)
    policy = loaded(tiny_base, offload_inputs=True)
    row = trained_row(random_ids(150, 1), [149], 1.0, "a")
    computed(policy, [row], 256)
    assert kept == []  # its activations are kept, so no layer's input waits for anything
    computed(policy, [row], 100)
    assert sorted(shape for shape in kept if shape != (0,)) == [(1, 150, 48)] * 2


@pytest.mark.parametrize(
    ("tokens", "device", "changes", "expected"),
    [
        (64, "cpu", {}, PassMethod()),
        (65, "cpu", {}, PassMethod(True, False, 64)),
        (64, "cuda", {}, PassMethod(True)),
        (65, "cuda", {}, PassMethod(True, True, 64)),
        (65, "cuda", {"offload_inputs": False}, PassMethod(True, False, 64)),
        (64, "cuda", {"offload_inputs": True}, PassMethod(True, True)),
        (64, "cuda", {"gradient_checkpointing": False, "offload_inputs": True}, PassMethod()),
        (65, "cuda", {"gradient_checkpointing": False}, PassMethod(True, True, 64)),
        (64, "cpu", {"gradient_checkpointing": True}, PassMethod(True)),
    ],
)
def test_the_method_follows_from_tokens_device_and_settings(
    tokens: int, device: str, changes: dict[str, Any], expected: PassMethod
) -> None:
    assert choose_method(tokens, 64, device, SETTINGS.model_copy(update=changes)) == expected
    assert (choose_method(100_000, 16_384, device, SETTINGS).tile or 0) <= 4096


def test_a_model_whose_mlp_returns_more_than_its_output_has_no_long_rows(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3DecoderLayer, Qwen3MLP

    stock, layer = Qwen3MLP.forward, Qwen3DecoderLayer.forward

    def with_scores(self: Any, states: torch.Tensor) -> Any:
        return [stock(self, states), None]

    def first(self: Any, *args: Any, **kwargs: Any) -> Any:
        whole = self.mlp.forward
        self.mlp.forward = lambda states: whole(states)[0]
        try:
            return layer(self, *args, **kwargs)
        finally:
            self.mlp.forward = whole

    monkeypatch.setattr(Qwen3MLP, "forward", with_scores)
    monkeypatch.setattr(Qwen3DecoderLayer, "forward", first)
    policy = loaded(tiny_base)
    assert not policy.has_long_rows
    assert not row_fit.fits_alone(policy, 257)
    rows = [trained_row(random_ids(150, 1), [149], 1.0, "a")]
    assert_equal(computed(policy, rows, 60), computed(policy, rows, 256))  # as any other row


def test_an_mlp_that_mixes_tokens_has_no_long_rows(tiny_base: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from transformers.models.qwen3.modeling_qwen3 import Qwen3MLP

    stock = Qwen3MLP.forward

    def mixing(self: Any, states: torch.Tensor) -> Any:
        out: torch.Tensor = stock(self, states)
        return out + torch.nn.functional.pad(out, (0, 0, 1, 0))[:, :-1]

    monkeypatch.setattr(Qwen3MLP, "forward", mixing)
    policy = load_policy(tiny_base, SETTINGS)
    assert policy.layout is Layout.PADDED  # each row is mixed with itself alone
    assert not policy.has_long_rows


def test_a_row_fits_alone_up_to_four_times_what_fits_together(tiny_base: Path) -> None:
    policy = loaded(tiny_base)
    assert row_fit.fits_alone(policy, 4 * 256)
    assert not row_fit.fits_alone(policy, 4 * 256 + 1)
    policy.pass_budget = 64  # what was found to fit
    assert not row_fit.fits_alone(policy, 257)


def test_a_row_whose_inputs_the_machine_cannot_hold_does_not_fit(
    tiny_base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = loaded(tiny_base)
    needs = row_fit.row_needs(policy)
    assert needs == RowNeeds(2 * 48 * 4, 0)
    monkeypatch.setattr(memory, "host_free_bytes", lambda: 2 * 300 * needs.host)
    assert row_fit.fits_alone(policy, 300)
    assert not row_fit.fits_alone(policy, 301)


def test_scores_of_a_model_s_own_attention_are_counted(family: Path) -> None:
    policy = loaded(family)
    needs = row_fit.row_needs(policy)
    expected = {"eager": 1 + 12 * 4, "sdpa": 1, "hone_packed": 0}[policy.attention]
    assert needs.scores == expected
    assert needs.fit(100, host_free=10**9, device_free=2 * 10_000 * expected)
    assert expected == 0 or not needs.fit(101, host_free=10**9, device_free=2 * 10_000 * expected)


def test_no_row_is_longer_than_a_length_that_the_start_up_check_leaves_out(tmp_path: Path) -> None:
    yarn = {
        "rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 300, "rope_theta": 10000.0
    }  # fmt: skip
    policy = loaded(llama(tmp_path, rope_parameters=yarn))
    assert row_fit.fits_alone(policy, 300)
    assert not row_fit.fits_alone(policy, 301)
    checked = loaded(tmp_path, token_budget=400)
    assert row_fit.fits_alone(checked, 900)


@pytest.mark.parametrize(("others_gib", "is_shared"), [(0.6, False), (40.0, True)])
def test_the_pool_is_given_back_where_another_process_computes_on_the_card(
    monkeypatch: pytest.MonkeyPatch, others_gib: float, is_shared: bool
) -> None:
    gib, calls = 1 << 30, list[str]()
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (int((80 - 10 - others_gib) * gib), 80 * gib))
    monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device: 10 * gib)
    monkeypatch.setattr(torch.cuda, "empty_cache", lambda: calls.append("card"))
    monkeypatch.setattr(torch.accelerator, "empty_host_cache", lambda: calls.append("host"))
    assert memory.release_pool(torch.device("cuda")) is is_shared
    assert calls == ["card", "host"] * is_shared
    assert not memory.release_pool(torch.device("cpu"))
