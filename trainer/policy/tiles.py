"""Layers computed in tiles: an MLP by slices of its tokens, each recomputed alone in the backward pass.

Owns: which modules are MLPs, and running them tile by tile. Refuses: the size of a tile (`trainer.policy.pass_method`),
the slices of attention's queries (`trainer.policy.attention`), and whether a model's MLP can be divided at all
(`trainer.policy.startup_check`).

The widest activations of a layer are its MLP's: at 65,536 tokens an MLP of 12,288 units has five of 1.5 GiB each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, TypeVar

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint
from transformers.modeling_layers import GradientCheckpointingLayer

_Result = TypeVar("_Result")

_MLPS: Final = ("mlp", "feed_forward", "ffn")  # a layer's attribute


class TiledMlps:
    """The MLPs of a model's layers; within `tiles_of` they run tile by tile."""

    def __init__(self, model: nn.Module) -> None:
        self._tile: int | None = None
        layers = [module for module in model.modules() if isinstance(module, GradientCheckpointingLayer)]
        found = [getattr(layer, name, None) for layer in layers for name in _MLPS]
        modules = [module for module in found if isinstance(module, nn.Module)]
        for module in modules:
            module.forward = partial(self._run, module.forward)
        self.in_every_layer = bool(layers) and len(modules) == len(layers)

    @contextmanager
    def tiles_of(self, tile: int | None) -> Iterator[None]:
        """Within: MLPs compute at most `tile` tokens at a time; None: all."""
        before, self._tile = self._tile, tile
        try:
            yield
        finally:
            self._tile = before

    def _run(self, forward: Callable[..., Tensor], states: Tensor, *others: Any, **named: Any) -> Tensor:
        """States (1, tokens, hidden) → the same shape."""
        tile = self._tile
        if tile is None or states.shape[1] <= tile or others or named:
            return forward(states, *others, **named)
        parts = torch.split(states, tile, 1)
        return torch.cat([run_recomputed(forward, part) for part in parts], 1)


def run_recomputed(compute: Callable[..., _Result], *inputs: Any) -> _Result:
    """Return compute(*inputs), and compute it again in the backward pass instead of keeping its activations."""
    if not torch.is_grad_enabled():
        return compute(*inputs)
    result: _Result = checkpoint(compute, *inputs, use_reentrant=False, preserve_rng_state=False)
    return result
