"""The report of a fit on demonstrations, for its caller."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from recorder.registry.versions import VersionView
from trainer.step.imitation.reader import ReadDemonstrations


@dataclass(frozen=True, slots=True)
class EpochLosses:
    """The losses of an epoch in nats a token: on the way, and on what is held out after it (None: nothing is)."""

    epoch: int
    loss: float
    held_out_loss: float | None


@dataclass(frozen=True, slots=True)
class FitResult:
    """What the epochs of a fit gave: the state in memory is that after `best`."""

    best: int
    epochs: Sequence[EpochLosses]
    held_out_loss_before: float | None
    metrics: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class FitReport:
    """The result of `fit_once`. No version: nothing was trained, and `reason` says why.

    `held_out_loss_before`: of the parent, in nats a token; None: nothing is held out. `best`: the epoch of the version.
    """

    read: ReadDemonstrations
    version: VersionView | None
    reason: str | None = None
    epochs: Sequence[EpochLosses] = ()
    best: int | None = None
    held_out_loss_before: float | None = None
    notice: str | None = None  # for a person
