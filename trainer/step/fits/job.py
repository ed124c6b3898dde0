"""What a fit is: data, an objective over them, and its settings.

Owns: the shapes, and what an objective must say to be fitted. Refuses: the objectives (`trainer.step.fits.objectives`),
reading data, computing (`trainer.step.fits.epochs`), torch.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Generic, Protocol, TypeVar

from recorder.queue.training.uses import ObjectiveUse
from trainer.batch.weights import WeightedRow
from trainer.demonstrations.fit_plan import FitDatum, FitPlan

D = TypeVar("D", bound=FitDatum)
D_contra = TypeVar("D_contra", bound=FitDatum, contravariant=True)
R = TypeVar("R")

RowSums = Mapping[str, Sequence[float]]
"""A datum's `source_id` → for each of its rows the sum of the logprobs of its trained tokens, in nats."""


class FitObjective(Protocol[D_contra]):
    """An objective that can be fitted alone."""

    @property
    def name(self) -> str:
        """Its name in `uses` and in metrics."""

    @property
    def command(self) -> str:
        """The command that fits it."""

    @property
    def section(self) -> str:
        """The section of its settings."""

    @property
    def needs_logprobs(self) -> bool:
        """Whether weights depend on the logprobs of the weights in memory and of a reference: two more passes."""

    def size(self, data: Sequence[D_contra]) -> float:
        """What a mean over data is weighted by, where it is put together from the means of batches."""

    def weigh(self, batch: Sequence[D_contra], policy: RowSums, reference: RowSums) -> list[WeightedRow]:
        """The rows of an optimizer step. `policy`, `reference`: empty unless it `needs_logprobs`."""

    def figures(self, data: Sequence[D_contra], policy: RowSums, reference: RowSums) -> dict[str, float]:
        """The mean `loss` over the data, and what else describes it, by name."""

    def uses(self, data: Sequence[D_contra], times: int) -> list[ObjectiveUse]:
        """What `times` passes over the data used."""


class FitSchedule(Protocol):
    """The settings that every fit has: how often, how much at a time, and how fast."""

    @property
    def epochs(self) -> int:
        """Passes over the data."""

    @property
    def batch_tokens(self) -> int:
        """Most tokens of an optimizer step."""

    @property
    def lr(self) -> float:
        """Learning rate."""


@dataclass(frozen=True, slots=True)
class ReferenceAdapter:
    """The files of the version that is the reference."""

    name: str
    path: Path
    manifest_sha256: str | None


@dataclass(frozen=True, slots=True)
class FitJob(Generic[D]):
    """What is trained on, and how. `reference`: None is the base."""

    plan: FitPlan[D]
    objective: FitObjective[D]
    settings: FitSchedule
    reference: ReferenceAdapter | None = None

    @property
    def trained_rows(self) -> list[WeightedRow]:
        """The rows that are trained on, without weights."""
        return _unweighted(self.plan.trained)

    @property
    def rows(self) -> list[WeightedRow]:
        """All rows, without weights."""
        return [*self.trained_rows, *_unweighted(self.plan.held_out)]

    def uses(self, times: int) -> list[ObjectiveUse]:
        """What `times` passes used."""
        return self.objective.uses(self.plan.trained, times)


@dataclass(frozen=True, slots=True)
class LoadedFit(Generic[R]):
    """A job, and what was read for it. `why_nothing`: said if nothing is trained on; `metrics`: of the step."""

    read: R
    job: FitJob[Any]
    why_nothing: str
    metrics: Mapping[str, float] = field(default_factory=dict)


def explain_backend(command: str) -> str:
    """Why a training service does not fit, and what to set."""
    return f'{command} trains on this machine: set trainer.backend = "local" for it.'


def _unweighted(data: Sequence[FitDatum]) -> list[WeightedRow]:
    return [WeightedRow(row, 0.0, 0.0) for one in data for row in one.rows]
