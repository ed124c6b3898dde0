"""How a pass is computed: which activations are recomputed, where layers' inputs wait, and in which tiles.

Owns: the choice, by the pass's tokens, the device and the settings. Refuses: computing it (`trainer.policy.model`).

Logprobs and gradients do not depend on the method. A row that is longer than a pass has a pass of its own and takes the
method with the least memory: a GPU then holds the input of no layer but the one that is computed, and that layer's
widest activations for one tile of its tokens.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trainer.settings import TrainerSettings

TILE: Final = 4096  # tokens; below about a thousand, a GPU's matrix products become slower


@dataclass(frozen=True, slots=True)
class PassMethod:
    """One way to compute a pass.

    `recompute`: the activations of a layer in the backward pass. `offload`: layers' inputs wait in host memory. `tile`:
    tokens of a layer's MLP, and queries of its attention, at a time; None: all at once.
    """

    recompute: bool = False
    offload: bool = False
    tile: int | None = None


def choose_method(tokens: int, pass_budget: int, device_type: str, settings: TrainerSettings) -> PassMethod:
    """Return how a pass of `tokens` is computed where a pass should have at most `pass_budget`."""
    on_gpu, is_long = device_type == "cuda", tokens > pass_budget
    wants_recompute = on_gpu if settings.gradient_checkpointing == "auto" else settings.gradient_checkpointing
    wants_offload = on_gpu and is_long if settings.offload_inputs == "auto" else settings.offload_inputs
    recompute = wants_recompute or is_long
    return PassMethod(recompute, recompute and wants_offload, min(TILE, pass_budget) if is_long else None)
