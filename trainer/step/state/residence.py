"""Where a model's tensors are: on the device that trains, or in host memory while an engine uses the GPU.

Owns: moving them, in place, so that whatever refers to a tensor still has it. Refuses: when to move
(`trainer.step.gpu_share`).

Frozen weights have one copy in host memory for ever, so that leaving a GPU copies nothing of them. On a CPU both moves
change nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

import torch
from torch import Tensor, nn

_HOST = torch.device("cpu")


class Residence:
    """Moves a model and further tensors. It begins on the device. Not thread-safe: one thread owns it."""

    def __init__(
        self, model: nn.Module, to_device: Callable[[Tensor], Tensor], further: Callable[[], Iterable[Tensor]]
    ) -> None:
        """`to_device` returns a tensor on the device; the same one if it is there.

        `further`: the tensors that belong to the model at the time of a move, as an optimizer's state.
        """
        self._model = model
        self._to_device = to_device
        self._further = further
        self._kept: dict[int, Tensor] = {}  # the host's copy of a frozen tensor, by the id of the tensor
        self.is_on_device = True

    def leave(self) -> None:
        """Move everything to host memory. Gradients are dropped."""
        for tensor in self._frozen():
            kept = self._kept.get(id(tensor))
            if kept is None:
                kept = self._kept[id(tensor)] = tensor.data.to(_HOST)
            tensor.data = kept
        for tensor in self._changing():
            tensor.grad = None
            tensor.data = tensor.data.to(_HOST)
        self.is_on_device = False

    def enter(self) -> None:
        """Move everything to the device."""
        for tensor in (*self._frozen(), *self._changing()):
            tensor.data = self._to_device(tensor.data)
        self.is_on_device = True

    def _frozen(self) -> Iterator[Tensor]:
        for tensor in self._model.parameters():
            if not tensor.requires_grad:
                yield tensor
        yield from self._model.buffers()

    def _changing(self) -> Iterator[Tensor]:
        for tensor in self._model.parameters():
            if tensor.requires_grad:
                yield tensor
        yield from self._further()
