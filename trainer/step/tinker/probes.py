"""The probe of a version that a training service made: sampled tokens whose logprobs changed most.

Owns: choosing them. Refuses: the form of probe.json, which is that of `trainer.artifacts.probe`.

A service gives logprobs of named tokens and no distributions, so each context names one token: the one that was sampled
after it. Its logprob before the step is known from the step itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from tinker.types import Datum
from torch import Tensor

from trainer.artifacts.probe import CONTEXTS
from trainer.batch.packing import Ids
from trainer.batch.row_builder import Row
from trainer.step.tinker.rows import next_token_datum

_ROWS: Final = 6  # the shortest of a step
_POSITIONS: Final = 12  # a row
_LIKELY: Final = -5.0  # nats: an engine's rounding is largest in the tail


class ProbeRows:
    """The rows that become probes, each cut after its last one."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self._ids: list[Ids] = []
        self._ends: list[NDArray[np.int64]] = []
        self.chosen: list[int] = []  # their numbers among the rows
        seen: set[bytes] = set()
        for number in sorted(range(len(rows)), key=lambda index: (_first(rows[index]), rows[index].trajectory_id)):
            row = rows[number]
            ends = [int(end) for end in np.flatnonzero(row.trained)[:_POSITIONS]]
            ends = [end for end in ends if row.token_ids[:end].tobytes() not in seen]
            if not ends:
                continue
            seen.update(row.token_ids[:end].tobytes() for end in ends)
            self.chosen.append(number)
            self._ids.append(row.token_ids[: ends[-1] + 1])
            self._ends.append(np.asarray(ends))
            if len(self.chosen) == _ROWS:
                break

    def data(self) -> list[Datum]:
        """The rows as a service takes them."""
        return [next_token_datum(ids) for ids in self._ids]

    def pick(self, logprobs: Sequence[Any]) -> NDArray[np.float64]:
        """The logprobs of the named tokens, from those of all targets of each chosen row (or of a longer row)."""
        each = zip(logprobs, self._ends, strict=True)
        return np.concatenate([np.asarray(values, dtype=np.float64)[ends - 1] for values, ends in each])

    def choose(self, new: NDArray[np.float64], parent: NDArray[np.float64]) -> dict[str, Any]:
        """probe.json: the contexts that changed most, each with the token that was sampled there."""
        likely = np.flatnonzero(parent > _LIKELY)
        among = likely if len(likely) else np.arange(len(parent))
        change = np.abs(new - parent)
        order = among[np.argsort(-change[among], kind="stable")][:CONTEXTS]
        contexts = [(ids[:end], int(ids[end])) for ids, ends in zip(self._ids, self._ends, strict=True) for end in ends]
        chosen = [
            {
                "prompt_token_ids": contexts[index][0].tolist(),
                "token_ids": [contexts[index][1]],
                "new": [float(new[index])],
                "parent": [float(parent[index])],
            }
            for index in order.tolist()
        ]
        return {"contexts": chosen, "separation": float(change[order].mean())}


def split_rows(flat: Tensor, sizes: Sequence[int]) -> list[NDArray[np.float32]]:
    """The logprobs of each row, from those of all rows one after the other."""
    found = np.split(flat.numpy(), np.cumsum(sizes)[:-1])
    return [np.asarray(one) for one in found]


def _first(row: Row) -> int:
    return int(np.flatnonzero(row.trained)[0])
