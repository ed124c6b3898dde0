"""Build rows: turns appended to the sequence that they continue, the same for every objective.

Owns: the shape of a row, which turn extends which row, and the arrays of a finished row. Refuses: which turns are
trained on (`trainer.batch.rows`, `trainer.objectives.imitate_rows`), rewards and torch.

A row is one sequence that the model saw. A turn whose prompt begins with exactly a row's ids continues that row. Any
other turn (a rewritten history, a sub-agent, a branch) begins a new row, in which everything before it is context. So
each trained token is trained in exactly one row.
"""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from trainer.batch.packing import Ids


@dataclass(frozen=True, slots=True)
class Row:
    """One sequence of ids; every array has shape (tokens,). The first token is never trained.

    `trajectory_id`: the trajectory, or the row of a file, that it was made of.
    """

    trajectory_id: str
    token_ids: NDArray[np.int32]
    trained: NDArray[np.bool_]
    behaviour: NDArray[np.float32]  # the engine's logprobs; NaN where not trained or not needed
    temperature: NDArray[np.float32]  # NaN where not trained
    age: NDArray[np.int32]  # steps since the version that sampled the token; −1 where not trained or of no version
    calls: tuple[tuple[str, int], ...]  # (call id, choice) of the trained calls, in order
    sizes: tuple[int, ...] = ()  # the trained tokens of each call; empty: all are of one

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def trained_tokens(self) -> int:
        """How many tokens the loss sees."""
        return int(self.trained.sum())

    @property
    def turn_sizes(self) -> tuple[int, ...]:
        """The trained tokens of each call."""
        return self.sizes or (self.trained_tokens,)


@dataclass(frozen=True, slots=True)
class TrainedTurn:
    """An answer that is trained on: what the model read, and the tokens that followed.

    `behaviour`: the engine's logprobs of `answer`; None: the objective needs none.
    """

    call: tuple[str, int]
    prompt: Ids
    answer: Ids
    behaviour: NDArray[np.float32] | None = None
    temperature: float = 1.0
    age: int = -1


@dataclass(slots=True)
class RowBuilder:
    """A row under construction."""

    ids: Ids = field(default_factory=lambda: np.empty(0, np.int32))
    _turns: list[TrainedTurn] = field(default_factory=list)

    def begins(self, prompt: Ids) -> bool:
        """Whether the row's ids are the beginning of a prompt, so that the turn after it continues the row."""
        return len(self.ids) <= len(prompt) and np.array_equal(self.ids, prompt[: len(self.ids)])

    def add(self, turn: TrainedTurn) -> None:
        """Append a turn. Its prompt begins with the row's ids."""
        self.ids = np.concatenate([turn.prompt, turn.answer])
        self._turns.append(turn)

    def finish(self, trajectory_id: str) -> Row:
        """Return the row."""
        length = len(self.ids)
        trained = np.zeros(length, np.bool_)
        behaviour = np.full(length, np.nan, np.float32)
        temperature = np.full(length, np.nan, np.float32)
        ages = np.full(length, -1, np.int32)
        for turn in self._turns:
            span = slice(len(turn.prompt), len(turn.prompt) + len(turn.answer))
            trained[span], ages[span], temperature[span] = True, turn.age, turn.temperature
            if turn.behaviour is not None:
                behaviour[span] = turn.behaviour
        calls = tuple(turn.call for turn in self._turns)
        sizes = tuple(len(turn.answer) for turn in self._turns)
        return Row(trajectory_id, self.ids, trained, behaviour, temperature, ages, calls, sizes)


def extend_rows(rows: list[RowBuilder], turn: TrainedTurn) -> None:
    """Append a turn to the longest row that its prompt begins with, or to a new one."""
    fitting = (row for row in rows if row.begins(turn.prompt))
    row = max(fitting, key=lambda row: len(row.ids), default=None)
    if row is None:
        rows.append(row := RowBuilder())
    row.add(turn)


def as_ids(ids: Sequence[int]) -> Ids:
    """Token ids as an array; without a copy if they are one of typecode i."""
    return np.frombuffer(ids, np.int32) if isinstance(ids, array) else np.fromiter(ids, np.int32)
