"""The passes of a step over one policy: probes before and after, and the optimizer steps between them.

All ranks of a trainer make them in the same order. Owns: opening a base on every rank, that order, and the jobs by
which the first rank tells the others. Refuses: versions and files, which the first rank alone has
(`trainer.step.core`), and what a pass computes (`trainer.policy.update`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
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
from trainer.policy.packs.gradient_shares import gradient_shares, objective_metrics
from trainer.policy.packs.plan import UpdatePlan, plan_update, split_substeps
from trainer.policy.packs.sums import FreshGaps, merge_substeps
from trainer.ranks.group import Ranks
from trainer.settings import TrainerSettings
from trainer.step.drift.limits import measure_within
from trainer.step.drift.measure import LoraState, measure_drift
from trainer.step.drift.request import DriftJob
from trainer.step.engine_gap import NF4_BOUND
from trainer.step.imitation.epochs import EpochRunner, FitJob
from trainer.step.imitation.fit_report import FitResult
from trainer.step.state.results import PhaseSeconds

MeasureDrift = Callable[[Policy, DriftJob, LoraState, TrainerSettings, Callable[[], bool]], dict[str, float]]


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
    drift: DriftJob | None = None


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
        fresh: FreshGaps,
        drift: DriftJob | None = None,
    ) -> tuple[dict[str, float], dict[str, Any]]:
        """The metrics of a step, and its probe. `fresh` gets the gaps of all rows before the first update.

        `drift`: what the result is compared with afterwards, if it is.

        Raises `StepFailed`, `StepInterrupted`, and what a full memory raises (`trainer.policy.memory`).
        """
        first, *later = split_substeps(rows)
        given = probe.probe_candidates([one.row for one in rows])
        self.policy.ranks.share_weights(self.policy.parameters)
        parent = self._keep_parent(drift)
        with seconds.phase("probe"):
            before = self._probe(given)
        with seconds.phase("train"):
            shares = gradient_shares(self.policy, first, self._settings)
            later = [
                update.measure_parent(self.policy, self.plan(part), self._settings, stopped, fresh) for part in later
            ]
            done = [self._update(first, stopped, fresh), *(self._update(part, stopped) for part in later)]
        drifted = self._measure_drift(measure_within, drift, parent, stopped, seconds)
        with seconds.phase("probe"):
            after = self._probe(given)
        metrics = merge_substeps(done) | objective_metrics(shares) | drifted
        return metrics, probe.choose_contexts(given, after, before, self._copy_gap)

    def fit(
        self, job: FitJob, stopped: Callable[[], bool], seconds: PhaseSeconds, drift: DriftJob | None = None
    ) -> tuple[FitResult, dict[str, Any]]:
        """The result of the epochs over demonstrations, and the probe of the best one. Arguments and errors are those
        of `compute`.
        """
        parent = self._keep_parent(drift)
        given = probe.probe_candidates([row for one in job.plan.trained for row in one.rows])
        with seconds.phase("probe"):
            before = self._probe(given)
        with seconds.phase("train"):
            budget = self.policy.pass_budget
            result = EpochRunner(self.policy, self.optimizer, self._settings, budget, stopped).run(job)
        drifted = self._measure_drift(measure_drift, drift, parent, stopped, seconds)
        result = replace(result, metrics={**result.metrics, **drifted})
        with seconds.phase("probe"):
            after = self._probe(given)
        return result, probe.choose_contexts(given, after, before, self._copy_gap)

    def _keep_parent(self, drift: DriftJob | None) -> LoraState | None:
        """The weights that a step begins with, if they are compared with its result."""
        return None if drift is None else self.policy.state()

    def _measure_drift(
        self,
        measure: MeasureDrift,
        drift: DriftJob | None,
        parent: LoraState | None,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
    ) -> dict[str, float]:
        if drift is None or parent is None:
            return {}
        with seconds.phase("drift"):
            return measure(self.policy, drift, parent, self._settings, stopped)

    def plan(self, rows: Sequence[WeightedRow]) -> UpdatePlan:
        """The passes over the rows."""
        return plan_update(self.policy, rows, self._settings, self.policy.pass_budget)

    def _update(
        self, rows: Sequence[WeightedRow], stopped: Callable[[], bool], fresh: FreshGaps | None = None
    ) -> dict[str, float]:
        return update.train_step(self.policy, self.optimizer, self.plan(rows), self._settings, stopped, fresh)

    def _probe(self, given: ProbeCandidates) -> Tensor:
        def compute() -> Tensor:
            return probe.next_token_logprobs(self.policy, given, self.policy.pass_budget)

        found = self.policy.ranks.together(compute)
        self.policy.end_pass()
        return found


def open_passes(base: Path, settings: TrainerSettings, ranks: Ranks) -> StepPasses:
    """Load a base on this rank, while the others do so too.

    Raises `UnsupportedModel`, and `DoesNotFit` or `MemoryFull` if it does not fit into memory.
    """
    torch.set_num_threads(settings.threads)
    ranks.open_base(sharded=settings.shard_base)
    shares = settings.model_copy(update={"processes": ranks.count})
    ranks.together(lambda: require_room(base, shares))
    return StepPasses(load_policy(base, settings, ranks), settings)
