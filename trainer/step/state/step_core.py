"""What computes the steps of an alias's trainer: on this machine, or at a training service.

Refuses: choosing one (`trainer.step.backends`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from trainer.artifacts.adapters import AdapterOrigin, PublishedAdapter
from trainer.batch.weights import WeightedRow
from trainer.quantization.copy_gap import CopyLogprobs
from trainer.step.drift.request import DriftRequest
from trainer.step.fits.job import FitJob, ReferenceAdapter
from trainer.step.state.results import PhaseSeconds, StartVersion, TrainedStep, WrittenStep


class StepCore(Protocol):
    """A policy and its optimizer at one version. One thread uses it."""

    pass_budget: int
    """Tokens of a pass: `token_budget`, or less where those do not fit into memory."""

    @property
    def device_name(self) -> str:
        """What computes, as the store remembers `pass_budget` for it."""

    @property
    def copied(self) -> CopyLogprobs | None:
        """The logprobs of the base and of the quantised copy that computes instead; None: the base computes."""

    @property
    def note(self) -> str | None:
        """What to say about it before the first step; None: nothing."""

    def enter_gpu(self) -> None:
        """Move to the GPU. Raises `MemoryFull`."""

    def leave_gpu(self) -> None:
        """Leave the GPU to an engine."""

    def fits_alone(self, row_tokens: int) -> bool:
        """Whether a row longer than `token_budget` is computed."""

    def publish_trial(self, origin: AdapterOrigin) -> PublishedAdapter:
        """Write an adapter to be tried and removed."""

    def go_to(self, start: StartVersion) -> bool:
        """Go to a version. Return whether its optimizer state was there."""

    def step(
        self,
        rows: Sequence[WeightedRow],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
        reference: ReferenceAdapter | None = None,
    ) -> TrainedStep:
        """Train on the rows from the version that it is at. `drift`: what the result is measured on. `reference`: of
        the pairs among the rows; None: the base.
        """

    def fit(
        self,
        job: FitJob[Any],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
    ) -> TrainedStep:
        """Train on demonstrations or on pairs from the version that it is at."""

    def write(self, origin: AdapterOrigin, trained: TrainedStep, seconds: PhaseSeconds) -> WrittenStep:
        """Write the last step's result as a version."""

    def became(self, version_id: str) -> None:
        """Declare that the last step's result is this version."""

    def close(self) -> None:
        """Release what it holds beside memory."""
