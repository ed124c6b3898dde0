"""The trained tokens of a pack, as tensors: the position that predicts each, and the inputs of its loss.

Refuses: what is computed of them (`trainer.policy.update`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.batch.packing import Pack
from trainer.batch.weights import TokenValues, WeightedRow


@dataclass(frozen=True, slots=True)
class PackTokens:
    """The trained tokens of a pack, each tensor of shape (n,). `before`: flat indices of the tokens before them."""

    before: Tensor  # int64
    targets: Tensor  # int64
    temperatures: Tensor
    behaviour: Tensor
    advantages: Tensor
    rl_weights: Tensor
    ce_weights: Tensor | None  # None: all are 0
    kl_weights: Tensor | None
    teacher: Tensor | None  # None: the base is the teacher of all
    parent: Tensor | None  # None: the policy is still the parent
    units: Tensor  # int64: the row or turn of each token, from 0
    unit_count: int
    fresh: Tensor  # bool: sampled by the version that is being trained
    taught_weights: Tensor | None = None  # None: all are 0
    unsampled: Tensor | None = None  # bool: no engine's logprob is known or needed; None: of no token

    def __len__(self) -> int:
        return len(self.targets)


def gather_tokens(
    one: Pack, rows: Sequence[WeightedRow], device: torch.device, ratio_over: Literal["row", "turn"] = "row"
) -> PackTokens:
    """Find the trained tokens of a pack: the position that predicts each, and the inputs of the loss."""
    own = [rows[index] for index in one.rows]
    trained = [np.flatnonzero(weighted.row.trained) for weighted in own]
    pairs = [(weighted.row, at) for weighted, at in zip(own, trained, strict=True)]
    units = _units(trained, ratio_over)

    def floats(arrays: Iterable[NDArray[np.floating]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays)).astype(np.float32)).to(device)

    def spread(values: Iterable[TokenValues]) -> Tensor:
        return floats(np.broadcast_to(value, len(at)) for value, at in zip(values, trained, strict=True))

    def weights(values: Sequence[TokenValues]) -> Tensor | None:
        return spread(values) if any(np.any(value) for value in values) else None

    def known(values: Sequence[NDArray[np.floating] | None]) -> Tensor | None:
        filled: list[TokenValues] = [np.nan if value is None else value for value in values]
        return spread(filled) if any(value is not None for value in values) else None

    def ints(arrays: Iterable[NDArray[np.integer]]) -> Tensor:
        return torch.from_numpy(np.concatenate(list(arrays)).astype(np.int64)).to(device)

    behaviour = floats(row.behaviour[at] for row, at in pairs)
    rl_weights = spread(weighted.rl_weight for weighted in own)
    unsampled = behaviour.isnan() & (rl_weights == 0)
    return PackTokens(
        before=ints(places[at - 1] for places, at in zip(one.places, trained, strict=True)),
        targets=ints(row.token_ids[at] for row, at in pairs),
        temperatures=floats(row.temperature[at] for row, at in pairs),
        behaviour=behaviour,
        advantages=spread(weighted.advantage for weighted in own),
        rl_weights=rl_weights,
        ce_weights=weights([weighted.ce_weight for weighted in own]),
        kl_weights=weights([weighted.kl_weight for weighted in own]),
        teacher=known([weighted.teacher for weighted in own]),
        parent=known([weighted.parent for weighted in own]),
        units=ints([units]),
        unit_count=int(units[-1]) + 1,
        fresh=torch.from_numpy(np.concatenate([row.age[at] == 0 for row, at in pairs])).to(device),
        taught_weights=weights([weighted.taught_weight for weighted in own]),
        unsampled=unsampled if bool(unsampled.any()) else None,
    )


def _units(trained: Sequence[NDArray[np.integer]], ratio_over: Literal["row", "turn"]) -> NDArray[np.integer]:
    """For each token the number of its row, or of its turn: an unbroken run of trained tokens."""
    begins = [np.diff(at, prepend=-2) > 1 if ratio_over == "turn" else np.arange(len(at)) == 0 for at in trained]
    return np.cumsum(np.concatenate(begins)) - 1
