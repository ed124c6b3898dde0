"""Share a base's weights among ranks with FSDP2: each holds a part of every layer, and gathers it when it computes.

Owns: which modules are gathered together, and calling the decoder without the head. Refuses: the LoRA's weights, which
every rank holds whole, and when passes are made (`trainer.policy.update`).

A layer is gathered for its forward pass and again for its backward pass. Embedding, last norm and head are gathered
once a pass: the head computes in chunks of trained tokens, whose number differs between ranks.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch
from torch import Tensor, nn
from transformers.modeling_layers import GradientCheckpointingLayer

from trainer.errors import UnsupportedModel

_METHOD: Final = "decode_for_hone"

Decode = Callable[..., Tensor]


def shard_base(causal: nn.Module, decoder: nn.Module, device: torch.device, base: str) -> None:
    """Move a model to the device, layer by layer, and keep this rank's share of all but what is trained.

    `base`: its name in errors. Raises `UnsupportedModel` for a model without layers that can be shared.
    """
    import torch.distributed as dist  # here: FSDP2 loads Triton, which a trainer of one process does not need
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    trained = {one for one in causal.parameters() if one.requires_grad}
    for one in trained:
        one.data = one.data.to(device)
    layers = [module for module in decoder.modules() if isinstance(module, GradientCheckpointingLayer)]
    if not layers:
        raise UnsupportedModel(
            f"the base {base} has no layers that processes can share: set trainer.shard_base = false, or train another "
            "base."
        )
    mesh = init_device_mesh(device.type, (dist.get_world_size(),))
    for layer in layers:
        fully_shard(layer, mesh=mesh, ignored_params=trained, reshard_after_forward=True)
    fully_shard(causal, mesh=mesh, ignored_params=trained, reshard_after_forward=False)


def decoder_call(causal: nn.Module, decoder: nn.Module) -> Decode:
    """Return how the last hidden states are computed: by the decoder, and where weights are shared through the model.

    FSDP2 gathers the weights of the model itself, among them the head's, when this is called.
    """

    def decode(**inputs: Any) -> Tensor:
        states: Tensor = decoder(**inputs).last_hidden_state
        return states

    if not is_shared(causal):
        return decode
    from torch.distributed.fsdp import register_fsdp_forward_method

    causal.__dict__[_METHOD] = decode
    register_fsdp_forward_method(causal, _METHOD)
    method: Decode = getattr(causal, _METHOD)
    return method


def is_shared(causal: nn.Module) -> bool:
    """Whether ranks share the weights of a model."""
    return hasattr(causal, "set_reshard_after_backward")  # FSDP2 makes a model an instance of its own class


def end_pass(causal: nn.Module) -> None:
    """Free what a pass gathered. A backward pass has freed it already."""
    if is_shared(causal):
        causal.reshard()  # type: ignore[operator]


def reset_pass(causal: nn.Module) -> None:
    """Forget a pass that failed half-way on all ranks alike."""
    if is_shared(causal):
        causal.reset_iter_state()  # type: ignore[operator]
