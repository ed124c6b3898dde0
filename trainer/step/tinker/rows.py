"""The rows of a step as a training service takes them, and our loss over the logprobs that it returns.

Owns: the shape of a request, the place of each trained token in the answer, the sums of a step. Refuses: the surrogates
(`trainer.policy.losses`) and their weights (`trainer.objectives`), which are the local trainer's.

A row is sent whole, cut after its last trained token: the service shares no prefixes between rows. The loss is computed
here from the logprobs, and only the weight of each token goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tinker.types import Datum, ModelInput, TensorData
from torch import Tensor

from trainer.batch.packing import Pack
from trainer.batch.weights import WeightedRow
from trainer.errors import StepFailed, TinkerUnsupported
from trainer.policy.packs.sums import FreshGaps, StepSums
from trainer.policy.packs.tokens import PackTokens, gather_tokens
from trainer.policy.update import weighted_losses
from trainer.settings import TrainerSettings

_CPU = torch.device("cpu")


class SentRows:
    """The rows of one update. `data`: one datum for each row, in their order."""

    def __init__(self, rows: Sequence[WeightedRow]) -> None:
        self.rows = list(rows)
        self._ids = [one.row.token_ids[: int(np.flatnonzero(one.row.trained)[-1]) + 1] for one in rows]
        self.data = [next_token_datum(ids) for ids in self._ids]
        self.sizes = [len(ids) - 1 for ids in self._ids]  # targets of each
        self.pack = _side_by_side(self._ids)

    def __len__(self) -> int:
        """The tokens that the service computes in one pass."""
        return sum(self.sizes)

    def gather(self, settings: TrainerSettings) -> PackTokens:
        """The trained tokens; `before` are places in all rows' logprobs, one after the other."""
        return gather_tokens(self.pack, self.rows, _CPU, settings.ratio_over)


def next_token_datum(ids: NDArray[np.integer]) -> Datum:
    """A sequence of ids (tokens,) whose every token but the first is predicted from those before it."""
    targets = np.ascontiguousarray(ids[1:], dtype=np.int64)
    weights = np.zeros(len(targets), dtype=np.float32)
    return Datum(
        ModelInput.from_ints(ids[:-1].tolist()),
        {"target_tokens": TensorData.from_numpy(targets), "weights": TensorData.from_numpy(weights)},
    )


def flat_logprobs(given: Sequence[Any]) -> Tensor:
    """The logprobs of all rows one after the other, float32 of shape (tokens,), with their gradient, if any."""
    return torch.cat([torch.as_tensor(one).reshape(-1) for one in given])


def step_loss(sent: SentRows, logprobs: Tensor, settings: TrainerSettings, sums: StepSums, fresh: FreshGaps) -> Tensor:
    """The loss of an update, from the logprobs of all rows one after the other. Adds to `sums` and `fresh`.

    Raises `StepFailed` if it is not finite.
    """
    tokens = sent.gather(settings)
    own = logprobs[tokens.before]
    result, losses, _ = weighted_losses(tokens, own, None, settings)
    loss = losses.sum()
    if not torch.isfinite(loss):
        guilty = _owners_of(sent.rows, ~torch.isfinite(losses.detach()))
        raise StepFailed(f"the loss is not finite (trajectories {', '.join(guilty) or 'unknown'}): no update was made")
    sums.add_tokens(tokens, result, loss)
    sums.forward_tokens += 2 * len(sent)  # a forward pass, and then another one with the backward pass
    fresh.add(sent.pack, sent.rows, tokens, own)
    return loss


def require_computable(rows: Sequence[WeightedRow]) -> None:
    """Raise `TinkerUnsupported` for tokens sampled at another temperature than 1, and for rows with a teacher."""
    if any(np.any(one.kl_weight) for one in rows):
        raise TinkerUnsupported(
            "a row is trained towards a teacher, which needs a second model at the training service: set "
            'trainer.backend = "local"'
        )
    others = [one.row for one in rows if not bool((one.row.temperature[one.row.trained] == 1.0).all())]
    if others:
        found = float(others[0].temperature[others[0].trained].max())
        raise TinkerUnsupported(
            f"trajectory {others[0].trajectory_id} was sampled at temperature {found:g}, and the Tinker API gives the "
            'logprobs of temperature 1 alone: let agents sample at 1, or set trainer.backend = "local"'
        )


def _owners_of(rows: Sequence[WeightedRow], marked: Tensor) -> list[str]:
    """The trajectories of the marked ones of all trained tokens, sorted. `marked`: bool of shape (trained,)."""
    owners = [one.row.trajectory_id for one in rows for _ in range(one.row.trained_tokens)]
    return sorted({owner for owner, is_marked in zip(owners, marked.tolist(), strict=True) if is_marked})


def _side_by_side(ids: Sequence[NDArray[np.int32]]) -> Pack:
    """Rows one after the other, each place one before its token's: the place of the token that predicts the next."""
    sizes = [len(one) - 1 for one in ids]
    starts = np.cumsum([0, *sizes[:-1]])
    places = tuple(start + np.arange(len(one)) for start, one in zip(starts, ids, strict=True))
    flat = np.concatenate([one[:-1] for one in ids])
    positions = np.concatenate([np.arange(size) for size in sizes])
    return Pack(flat, positions, (), tuple(range(len(ids))), places)
