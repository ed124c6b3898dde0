"""A step's beginning and its result: the version that it starts from, and what it made in memory and on disk.

Refuses: computing (`trainer.step.core`), and the report for callers (`trainer.step.summary`).
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from trainer.artifacts.adapters import PublishedAdapter
from trainer.batch.turn_mask import TurnMask
from trainer.step.fits.report import FitResult


@dataclass(frozen=True, slots=True)
class StartVersion:
    """A version to train from. `path` None: version 0, the base without an adapter."""

    version_id: str
    path: Path | None
    manifest_sha256: str | None = None


@dataclass(frozen=True, slots=True)
class TrainedStep:
    """A step's result in memory. `changed`: the adapter computes something else than the version it began from.

    `gaps`: of each trajectory the number of fresh tokens and the sum of their |Δlogprob| (nats) to the engine. `mask`:
    the turns that were not trained on.
    """

    metrics: Mapping[str, float]
    probe: Mapping[str, Any]
    changed: bool
    gaps: Mapping[str, tuple[int, float]] = field(default_factory=dict)
    fit: FitResult | None = None  # of a fit
    mask: TurnMask = field(default_factory=TurnMask)


@dataclass(frozen=True, slots=True)
class WrittenStep:
    """A step's result on disk, not yet in the store."""

    published: PublishedAdapter
    checkpoint: Path


@dataclass(slots=True)
class PhaseSeconds:
    """Wall time by phase."""

    by_phase: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def phase(self, name: str) -> Iterator[None]:
        """Add the time within to a phase."""
        began = time.perf_counter()
        try:
            yield
        finally:
            self.by_phase[name] = self.by_phase.get(name, 0.0) + time.perf_counter() - began
