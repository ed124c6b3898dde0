"""Passes over the data of a fit: optimizer steps on batches, the figures on what is held out, and the best epoch.

Owns: the order of epochs, their figures, the passes at a reference, and going back to the best epoch with its own
optimizer state. Refuses: which data are held out and how they are batched (`trainer.demonstrations.fit_plan`), weights
and figures (`trainer.step.fits.objectives`), files and the store.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

from torch import Tensor

from trainer.demonstrations.fit_plan import FitDatum, make_batches
from trainer.policy import update
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.logprob_sums import at_reference, sum_logprobs
from trainer.policy.packs.plan import plan_update
from trainer.settings import TrainerSettings
from trainer.step.fits.job import D, FitJob, RowSums
from trainer.step.fits.report import EpochFigures, FitResult


@dataclass(slots=True)
class _Snapshot:
    figures: EpochFigures
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]


@dataclass(slots=True)
class EpochRunner:
    """Runs the epochs of a job from the weights in memory. `stopped` is called between packs.

    `reference`: the weights of the job's reference; None: the base.
    """

    policy: Policy
    optimizer: Optimizer
    settings: TrainerSettings
    pass_budget: int
    stopped: Callable[[], bool]
    reference: Mapping[str, Tensor] | None = None
    _figures: list[dict[str, float]] = field(default_factory=list)

    def run(self, job: FitJob[D]) -> FitResult:
        """Train, and go back to the epoch with the smallest held-out loss; the last one if nothing is held out.

        Raises `StepFailed` and `StepInterrupted`; then weights and optimizer state in memory are undefined.
        """
        self._figures.clear()
        self.optimizer.forget_norms()
        reference = self.measure_reference(job)
        before = self.measure(job, job.plan.held_out, reference)
        best: _Snapshot | None = None
        epochs = []
        for epoch in range(1, job.settings.epochs + 1):
            trained = self._train(job, epoch, reference)
            epochs.append(EpochFigures(epoch, trained, self.measure(job, job.plan.held_out, reference)))
            if best is None or epochs[-1].is_better(best.figures):
                best = _Snapshot(epochs[-1], self.policy.state(), copy.deepcopy(self.optimizer.state()))
        assert best is not None  # there is at least one epoch
        if best.figures.epoch != len(epochs):
            self.policy.load_state(best.weights)
            self.optimizer.load(best.optimizer)
        self.optimizer.forget_norms()  # the next step may be on groups
        return FitResult(best.figures.epoch, epochs, before, self._metrics(best.figures, before))

    def measure_reference(self, job: FitJob[D]) -> RowSums:
        """Return the sums of all data at the reference, which does not change; none if the objective needs none."""
        if not job.objective.needs_logprobs:
            return {}
        with at_reference(self.policy, self.reference):
            return self._sum_rows([*job.plan.trained, *job.plan.held_out])

    def measure(self, job: FitJob[D], data: Sequence[D], reference: RowSums) -> dict[str, float] | None:
        """Return the objective's figures over some data by the weights in memory; None for no data."""
        return job.objective.figures(data, self._sum_rows(data), reference) if data else None

    def _train(self, job: FitJob[D], epoch: int, reference: RowSums) -> dict[str, float]:
        """Train an epoch; return its mean figures. Those of a batch are from before its optimizer step."""
        objective = job.objective
        sums: defaultdict[str, float] = defaultdict(float)
        for batch in make_batches(job.plan.trained, job.settings.batch_tokens, epoch, self.settings.seed):
            policy = self._sum_rows(batch) if objective.needs_logprobs else {}
            rows = objective.weigh(batch, policy, reference)
            planned = plan_update(self.policy, rows, self.settings, self.pass_budget)
            found = update.train_step(self.policy, self.optimizer, planned, self.settings, self.stopped)
            self._figures.append(found)
            own = objective.figures(batch, policy, reference) if objective.needs_logprobs else {"loss": found["loss"]}
            for name, value in own.items():
                sums[name] += value * objective.size(batch)
        return {name: value / objective.size(job.plan.trained) for name, value in sums.items()}

    def _sum_rows(self, data: Sequence[FitDatum]) -> RowSums:
        rows = [row for one in data for row in one.rows]
        sums = iter(sum_logprobs(self.policy, rows, self.settings, self.pass_budget, self.stopped))
        return {one.source_id: [next(sums) for _ in one.rows] for one in data}

    def _metrics(self, best: EpochFigures, before: Mapping[str, float] | None) -> dict[str, float]:
        figures = self._figures
        metrics = {
            **best.trained,
            "entropy": fmean(one["entropy"] for one in figures),
            "grad_norm": fmean(one["grad_norm"] for one in figures),
            "lr": self.optimizer.rate,
            "trained_tokens": sum(one["trained_tokens"] for one in figures),
            "forward_tokens": sum(one["forward_tokens"] for one in figures),
            "fresh_tokens": 0.0,
            "updates": float(len(figures)),
            "epoch": float(best.epoch),
        }
        for name, value in (best.held_out or {}).items():
            metrics[f"held_out_{name}"] = value
        for name, value in (before or {}).items():
            metrics[f"held_out_{name}_before"] = value
        return metrics
