"""The passes of a step, which all ranks of a trainer make in the same order.

Owns: opening a base on every rank, probes before and after, optimizer steps, and the jobs by which the first rank tells
the others. Refuses: versions and files, which the first rank alone has (`trainer.step.core`), and what a pass computes
(`trainer.policy.update`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainer.artifacts import probe
from trainer.artifacts.probe import ProbeCandidates
from trainer.batch.weights import WeightedRow
from trainer.memory.start import require_room
from trainer.policy import update
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.ranks.group import Ranks
from trainer.settings import TrainerSettings
from trainer.step.engine_gap import NF4_BOUND


@dataclass(frozen=True, slots=True)
class BaseJob:
    """Open a base: a folder, or a hub id."""

    base: str
    settings: TrainerSettings


@dataclass(frozen=True, slots=True)
class StepJob:
    """Compute a step on the rows, from the first rank's weights."""

    rows: Sequence[WeightedRow]
    pass_budget: int


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


class StepPasses:
    """A policy with its optimizer, whose state the first rank alone has."""

    def __init__(self, policy: Policy, settings: TrainerSettings) -> None:
        self.policy = policy
        self.optimizer = Optimizer(policy.parameters, settings)
        self._settings = settings
        # the largest that is accepted of a copy, in nats a token; probes allow for it
        self._copy_gap = (settings.max_logprob_gap or NF4_BOUND) if settings.quantize else 0.0

    def compute(
        self,
        rows: Sequence[WeightedRow],
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        fresh: update.FreshGaps,
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """The metrics of a step, and its probe. `fresh` gets the gaps of all rows before the first update."""
        first, *later = update.split_substeps(rows)
        given = probe.probe_candidates([one.row for one in rows])
        self.policy.ranks.share_weights(self.policy.parameters)
        with seconds.phase("probe"):
            before = self._probe(given)
        with seconds.phase("train"):
            later = [
                update.measure_parent(self.policy, self.plan(part), self._settings, stopped, fresh) for part in later
            ]
            done = [self._update(first, stopped, fresh), *(self._update(part, stopped) for part in later)]
        with seconds.phase("probe"):
            after = self._probe(given)
        return update.merge_substeps(done), probe.choose_contexts(given, after, before, self._copy_gap)

    def plan(self, rows: Sequence[WeightedRow]) -> update.UpdatePlan:
        """The passes over the rows."""
        return update.plan_update(self.policy, rows, self._settings, self.policy.pass_budget)

    def _update(
        self, rows: Sequence[WeightedRow], stopped: Callable[[], bool], fresh: update.FreshGaps | None = None
    ) -> dict[str, float]:
        return update.train_step(self.policy, self.optimizer, self.plan(rows), self._settings, stopped, fresh)

    def _probe(self, given: ProbeCandidates) -> Tensor:
        def compute() -> Tensor:
            return probe.next_token_logprobs(self.policy, given, self.policy.pass_budget)

        found = self.policy.ranks.together(compute)
        self.policy.end_pass()
        return found


def open_passes(base: Path, settings: TrainerSettings, ranks: Ranks) -> StepPasses:
    """Load a base on this rank, while the others do so too."""
    torch.set_num_threads(settings.threads)
    ranks.open_base(sharded=settings.shard_base)
    shares = settings.model_copy(update={"processes": ranks.count})
    ranks.together(lambda: require_room(base, shares))
    return StepPasses(load_policy(base, settings, ranks), settings)
