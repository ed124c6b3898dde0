"""Attention over a pack is the softmax over the keys that each query may see, for every kind of attention."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor, nn
from torch.autograd.graph import saved_tensors_hooks
from torch.nn.attention.bias import CausalBias
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from tests.effort import scaled
from tests.trainer.building import random_ids
from trainer.batch.packing import Pack, pack
from trainer.errors import UnsupportedModel
from trainer.policy.attention import interface, scores
from trainer.policy.attention.interface import packed_attention
from trainer.policy.attention.reach import Reach

HEADS = 4


@dataclass(frozen=True)
class Kind:
    """One kind of attention, as a layer of transformers asks for it."""

    reach: Reach | None = None
    softcap: float | None = None
    has_sink: bool = False
    kv_heads: int = 2
    dim: int = 12
    value_dim: int = 12


def packs_of(shapes: list[tuple[int, int, int]]) -> Pack:
    """One pack of rows that share the first tokens of one text. Shapes: shared tokens, own tokens, seed."""
    shared = random_ids(90, 0)
    rows = [np.array(shared[:length] + random_ids(own, seed), np.int32) for length, own, seed in shapes]
    (one,) = pack(rows, 10_000)
    return one


def states_of(one: Pack, kind: Kind, seed: int = 0) -> tuple[Tensor, ...]:
    """Queries, keys, values and sinks of a pack in float64, with gradients."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_()

    tokens = len(one)
    query, key = draw(1, HEADS, tokens, kind.dim), draw(1, kind.kv_heads, tokens, kind.dim)
    return query, key, draw(1, kind.kv_heads, tokens, kind.value_dim), draw(HEADS)


def attended(one: Pack, kind: Kind, states: tuple[Tensor, ...], **options: Any) -> Tensor:
    query, key, value, sink = states
    given_sink = sink if kind.has_sink else None
    found, _ = packed_attention(
        nn.Module(),
        query,
        key,
        value,
        kind.reach,
        segments=one.segments,
        softcap=kind.softcap,
        s_aux=given_sink,
        **options,
    )
    return found


def seen_keys(one: Pack, reach: Reach | None) -> Tensor:
    """Which keys of the pack each query attends to, (tokens, tokens): row by row."""
    seen = torch.zeros(len(one), len(one), dtype=torch.bool)
    for places in one.places:
        positions = torch.arange(len(places))
        query, key = positions[:, None], positions[None, :]
        near = key <= query
        if reach is not None:
            size = reach.size
            near &= (key // size == query // size) if reach.is_chunk else (key > query - size)
        flat = torch.from_numpy(places)
        seen[flat[:, None], flat[None, :]] = near
    return seen


def naive(one: Pack, kind: Kind, states: tuple[Tensor, ...], scaling: float) -> Tensor:
    """The softmax over all scores of the pack, with those that a query does not see masked."""
    query, key, value, sink = states
    repeats = HEADS // kind.kv_heads
    every = query @ key.repeat_interleave(repeats, 1).transpose(2, 3) * scaling
    if kind.softcap is not None:
        every = kind.softcap * torch.tanh(every / kind.softcap)
    every = every.masked_fill(~seen_keys(one, kind.reach), -torch.inf)
    if kind.has_sink:
        column = sink[None, :, None, None].expand(1, HEADS, len(one), 1)
        weights = torch.softmax(torch.cat([every, column], -1), -1)[..., :-1]
    else:
        weights = torch.softmax(every, -1)
    return (weights @ value.repeat_interleave(repeats, 1)).transpose(1, 2)


def assert_naive(one: Pack, kind: Kind, scaling: float = 0.3, **options: Any) -> None:
    """Outputs, and gradients of queries, keys, values and sinks."""
    states = states_of(one, kind)
    upstream = torch.linspace(-1, 1, len(one) * HEADS * kind.value_dim, dtype=torch.float64)

    def with_gradients(found: Tensor) -> tuple[Tensor, ...]:
        loss = (found.flatten() * upstream).sum()
        return found, *torch.autograd.grad(loss, states if kind.has_sink else states[:3])

    found = with_gradients(attended(one, kind, states, scaling=scaling, **options))
    expected = with_gradients(naive(one, kind, states, scaling))
    for ours, theirs in zip(found, expected, strict=True):
        torch.testing.assert_close(ours, theirs, atol=1e-9, rtol=1e-9)


class MadeTensors(TorchDispatchMode):
    """Within: the entries of the largest tensor that an operation makes."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.largest = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for one in tree_leaves(result):
            if isinstance(one, Tensor):
                self.largest = max(self.largest, one.untyped_storage().nbytes() // one.element_size())
        return result


class KeptTensors(saved_tensors_hooks):
    """Within: the entries of all that is kept for the backward pass, each storage once."""

    def __init__(self) -> None:
        self._storages: dict[int, tuple[Tensor, int]] = {}
        super().__init__(self._keep, lambda kept: kept)

    @property
    def entries(self) -> int:
        return sum(entries for _, entries in self._storages.values())

    def _keep(self, tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        self._storages[storage.data_ptr()] = tensor, storage.nbytes() // tensor.element_size()
        return tensor


REACHES = st.one_of(st.none(), st.builds(Reach, st.integers(1, 60), st.booleans()))
KINDS = st.builds(
    Kind,
    REACHES,
    st.one_of(st.none(), st.floats(0.5, 30)),
    st.booleans(),
    st.sampled_from([1, 2, 4]),
    st.sampled_from([8, 12]),
    st.sampled_from([5, 8, 12]),
)
SHAPES = st.lists(st.tuples(st.integers(0, 90), st.integers(1, 60), st.integers(1, 99)), min_size=1, max_size=6)


@pytest.fixture(params=[(4, 10, 200, 600), (512, 4096, 1 << 22, 1 << 22)], ids=["small tiles", "tiles"])
def tile_sizes(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    window, stretch, masks, capped = request.param
    monkeypatch.setattr(interface, "STRETCH", stretch)
    monkeypatch.setattr(interface, "WINDOW_TILE", window)
    monkeypatch.setattr(interface, "MASK_ENTRIES", masks)
    monkeypatch.setattr(interface, "CPU_SCORES", capped)


@pytest.mark.usefixtures("tile_sizes")
@settings(max_examples=scaled(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(SHAPES, KINDS, st.one_of(st.none(), st.integers(1, 40)))
def test_every_kind_of_attention_is_the_softmax_over_the_keys_that_a_query_sees(
    shapes: list[tuple[int, int, int]], kind: Kind, query_tile: int | None
) -> None:
    assert_naive(packs_of(shapes), kind, query_tile=query_tile)


@pytest.mark.parametrize("shared", [17, 24, 25, 47, 48, 49, 90])
@pytest.mark.parametrize("is_chunk", [False, True])
def test_a_window_reaches_into_the_segments_before(shared: int, is_chunk: bool) -> None:
    """Rows part before, at and after the end of the first window, and inside of a later one."""
    one = packs_of([(shared, 30, 1), (shared, 5, 2), (90, 20, 3)])
    assert len(one.segments) > 2
    for has_sink in (False, True):
        assert_naive(one, Kind(Reach(24, is_chunk), has_sink=has_sink))


def test_without_a_scaling_scores_are_divided_by_the_root_of_the_width() -> None:
    one, kind = packs_of([(20, 20, 1), (20, 7, 2)]), Kind(Reach(9), has_sink=True)
    states = states_of(one, kind)
    torch.testing.assert_close(attended(one, kind, states), naive(one, kind, states, 12**-0.5), atol=1e-9, rtol=1e-9)


@pytest.mark.parametrize(
    ("mask", "others"),
    [
        (torch.zeros(1, 1, 4, 4), {}),
        (None, {"position_bias": torch.zeros(1)}),
        (None, {"indices": torch.zeros(1)}),
        (None, {"is_causal": False}),
    ],
)
def test_attention_that_packed_rows_do_not_know_is_refused(mask: Any, others: dict[str, Any]) -> None:
    one = packs_of([(0, 4, 1)])
    query, key, value, _ = states_of(one, Kind())
    with pytest.raises(UnsupportedModel, match="Module attends in a way"):
        packed_attention(nn.Module(), query, key, value, mask, segments=one.segments, **others)
    with pytest.raises(UnsupportedModel, match="Module attends in a way"):
        packed_attention(nn.Module(), query, key, value, None)


@pytest.mark.parametrize("kind", [
    Kind(Reach(32)), Kind(Reach(32), has_sink=True), Kind(Reach(32, True)), Kind(has_sink=True),
    Kind(Reach(32), softcap=5.0), Kind(softcap=5.0), Kind(softcap=5.0, has_sink=True), Kind(dim=16, value_dim=8),
], ids=repr)  # fmt: skip
def test_no_tensor_of_all_pairs_of_tokens_is_ever_made(kind: Kind, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(interface, "WINDOW_TILE", 32)
    monkeypatch.setattr(interface, "MASK_ENTRIES", 16 * 1024)
    monkeypatch.setattr(interface, "CPU_SCORES", HEADS * 16 * 1024)
    one = packs_of([(16, 1900, 1), (16, 60, 2)])
    query, key, value, sink = states_of(one, kind)
    states = query.float(), key.float(), value.float(), sink.float()
    largest = max(one.numel() for one in states)
    with MadeTensors() as made:
        loss = attended(one, kind, states).sum()
        torch.autograd.grad(loss, [query])
    assert made.largest <= max(2 * largest, 4 * HEADS * 16 * 1024) < len(one) ** 2 * HEADS / 8
    with (kept := KeptTensors()):
        attended(one, kind, states)
    # queries, keys and values with a few more dimensions, the output, and masks of a window's width
    assert kept.entries <= 8 * sum(one.numel() for one in states)
    assert kept.entries < len(one) ** 2 / 4


@given(st.integers(1, 60), st.integers(1, 60))
def test_a_gpu_is_told_of_the_same_mask_that_a_cpu_is_given(before: int, length: int) -> None:
    given_mask = scores.causal_mask(before, length, torch.zeros(1))
    told = scores.causal_mask(before, length, _OnGpu())  # type: ignore[arg-type]
    assert isinstance(told, CausalBias)
    assert given_mask is not None
    assert torch.equal(told._materialize(torch.device("cpu")), given_mask == 0)


class _OnGpu:
    device = torch.device("cuda")


def test_a_gpu_s_kernel_with_a_mask_has_a_key_for_each_head() -> None:
    query, key = torch.zeros(1, 4, 4, 8), torch.zeros(1, 2, 4, 8)
    assert scores.is_grouped(query, key, key, is_masked=True)
    assert not scores.is_grouped(_OnGpu(), key, key, is_masked=True)  # type: ignore[arg-type]


def test_cudnns_attention_is_not_used() -> None:
    torch.backends.cuda.enable_cudnn_sdp(True)
    interface.register_attention()
    assert not torch._C._get_cudnn_sdp_enabled()
