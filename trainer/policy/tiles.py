"""Layers computed in tiles: an MLP by slices of its tokens, each recomputed alone in the backward pass.

Owns: which modules are MLPs, and running them tile by tile. Refuses: the size of a tile (`trainer.policy.pass_method`),
the slices of attention's queries (`trainer.policy.attention`), and whether a model's MLP can be divided at all
(`trainer.policy.startup_check`).

The widest activations of a layer are its MLP's: at 65,536 tokens an MLP of 12,288 units has five of 1.5 GiB each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

_Result = TypeVar("_Result")

# A layer's attributes; a layer may have two: Granite's routed experts and the expert that all tokens share.
_MLPS: Final = ("mlp", "feed_forward", "ffn", "block_sparse_moe", "shared_mlp")


class TiledMlps:
    """The MLPs of a model's layers; within `tiles_of` they run tile by tile."""

    def __init__(self, model: nn.Module) -> None:
        self._tile: int | None = None
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        found = [_mlps_of(layer) for layer in layers]
        for module in chain.from_iterable(found):
            module.forward = partial(self._run, module.forward)
        self.in_every_layer = bool(layers) and all(found)

    @contextmanager
    def tiles_of(self, tile: int | None) -> Iterator[None]:
        """Within: MLPs compute at most `tile` tokens at a time; None: all."""
        before, self._tile = self._tile, tile
        try:
            yield
        finally:
            self._tile = before

    def _run(self, forward: Callable[..., Any], states: Tensor, *others: Any, **named: Any) -> Any:
        """States (1, tokens, hidden) → the same shape, or what the MLP returns: a tuple with its router's scores."""
        tile = self._tile
        if tile is None or states.shape[1] <= tile or others or named:
            return forward(states, *others, **named)
        return _join([run_recomputed(forward, part) for part in torch.split(states, tile, 1)])


def _mlps_of(layer: nn.Module) -> list[nn.Module]:
    found = [getattr(layer, name, None) for name in _MLPS]
    return [module for module in found if isinstance(module, nn.Module)]


def _join(parts: Sequence[Any]) -> Any:
    """What tiles returned, as one: tensors (1, tokens, …) or (tokens, …), and tuples of them. Raises TypeError."""
    if isinstance(parts[0], tuple):
        return tuple(_join(values) for values in zip(*parts, strict=True))
    if not isinstance(parts[0], Tensor):
        raise TypeError(f"an MLP returned a {type(parts[0]).__name__}")
    return torch.cat(list(parts), 1 if parts[0].ndim > 2 else 0)


def run_recomputed(compute: Callable[..., _Result], *inputs: Any) -> _Result:
    """Return compute(*inputs), and compute it again in the backward pass instead of keeping its activations."""
    if not torch.is_grad_enabled():
        return compute(*inputs)
    result: _Result = checkpoint(compute, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result
