"""The exponential moving average of an alias's versions: the teacher `ema` of the objective `hindsight`.

Owns: how it follows. Refuses: its file (`trainer.artifacts.checkpoint`), and passes by it (`trainer.step.passes`).

It is a second LoRA: each of its matrices follows the same matrix of the versions. It begins as the version that the
first step with this teacher begins from.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from torch import Tensor

RATE: Final = 0.05  # of each version, as SDPO's authors have it

LoraState = Mapping[str, Tensor]


class WeightAverage:
    """The average at the version in memory; tensors on the CPU."""

    def __init__(self) -> None:
        self.state: LoraState = {}

    def begin(self, state: LoraState) -> None:
        """Be these weights."""
        self.state = {name: tensor.detach().cpu().clone() for name, tensor in state.items()}

    def follow(self, state: LoraState) -> None:
        """Go the share `RATE` of the way to a new version."""
        self.state = {name: mean + RATE * (state[name] - mean) for name, mean in self.state.items()}
