"""The result of a fit: its epochs, and the report for its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from recorder.registry.versions import VersionView

R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class EpochFigures:
    """The means of an epoch by name, `loss` among them: on the way, and on what is held out after it (None: nothing
    is).
    """

    epoch: int
    trained: Mapping[str, float]
    held_out: Mapping[str, float] | None

    def is_better(self, other: EpochFigures) -> bool:
        """Whether its held-out loss is smaller; the later one is better where nothing is held out."""
        if self.held_out is None or other.held_out is None:
            return self.epoch > other.epoch
        return self.held_out["loss"] < other.held_out["loss"]

    def as_json(self) -> dict[str, float | None]:
        """The figures for JSON; those on what is held out begin with `held_out_`."""
        held_out = {f"held_out_{name}": (self.held_out or {}).get(name) for name in self.trained}
        return {"epoch": self.epoch, **self.trained, **held_out}


@dataclass(frozen=True, slots=True)
class FitResult:
    """What the epochs of a fit gave: the state in memory is that after `best`.

    `held_out_before`: the figures of the parent on what is held out; None: nothing is.
    """

    best: int
    epochs: Sequence[EpochFigures]
    held_out_before: Mapping[str, float] | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FitReport(Generic[R]):
    """The result of `fit_once`. `read`: what was read. No version: nothing was trained, and `reason` says why.

    `held_out_before`: the figures of the parent on what is held out. `best`: the epoch of the version.
    """

    read: R
    version: VersionView | None
    reason: str | None = None
    epochs: Sequence[EpochFigures] = ()
    best: int | None = None
    held_out_before: Mapping[str, float] | None = None
    notice: str | None = None  # for a person
