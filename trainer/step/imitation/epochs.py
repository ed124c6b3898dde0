"""Passes over demonstrations: optimizer steps on batches, the loss on what is held out, and the best epoch.

Owns: the order of epochs, their losses, and going back to the best one with its own optimizer state. Refuses: which
demonstrations are held out and how they are batched (`trainer.demonstrations.fit_plan`), files and the store.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any

import torch
from torch import Tensor

from trainer.demonstrations.fit_plan import FitPlan, make_batches
from trainer.errors import StepInterrupted
from trainer.objectives.imitate import weigh_batch
from trainer.objectives.imitate_rows import Demonstration
from trainer.policy import memory, update
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import plan_update
from trainer.settings import SftSettings, TrainerSettings
from trainer.step.imitation.fit_report import EpochLosses, FitResult


@dataclass(frozen=True, slots=True)
class FitJob:
    """What is trained on, and how."""

    plan: FitPlan
    settings: SftSettings


@dataclass(slots=True)
class _Snapshot:
    losses: EpochLosses
    weights: dict[str, Tensor]
    optimizer: dict[str, Any]


@dataclass(slots=True)
class EpochRunner:
    """Runs the epochs of a job from the weights in memory. `stopped` is called between packs."""

    policy: Policy
    optimizer: Optimizer
    settings: TrainerSettings
    pass_budget: int
    stopped: Callable[[], bool]
    _figures: list[dict[str, float]] = field(default_factory=list)

    def run(self, job: FitJob) -> FitResult:
        """Train, and go back to the epoch with the smallest held-out loss; the last one if nothing is held out.

        Raises `StepFailed` and `StepInterrupted`; then weights and optimizer state in memory are undefined.
        """
        self._figures.clear()
        self.optimizer.forget_norms()
        before = self.measure(job.plan.held_out)
        best: _Snapshot | None = None
        epochs = []
        for epoch in range(1, job.settings.epochs + 1):
            loss = self._train(job, epoch)
            epochs.append(EpochLosses(epoch, loss, self.measure(job.plan.held_out)))
            if best is None or _is_better(epochs[-1], best.losses):
                best = _Snapshot(epochs[-1], self.policy.state(), copy.deepcopy(self.optimizer.state()))
        assert best is not None  # there is at least one epoch
        if best.losses.epoch != len(epochs):
            self.policy.load_state(best.weights)
            self.optimizer.load(best.optimizer)
        self.optimizer.forget_norms()  # the next step may be on groups
        return FitResult(best.losses.epoch, epochs, before, self._metrics(best.losses, before))

    def measure(self, demonstrations: Sequence[Demonstration]) -> float | None:
        """Return the mean cross-entropy over all trained tokens, in nats; None for no demonstration."""
        rows = weigh_batch(demonstrations)
        if not rows:
            return None
        planned = plan_update(self.policy, rows, self.settings, self.pass_budget)
        total = 0.0
        for one in planned.packs:
            self._require_running()
            with torch.no_grad(), memory.pass_errors(one):
                total += float(update.pack_losses(self.policy, one, rows, self.settings).losses.sum())
        return total

    def _train(self, job: FitJob, epoch: int) -> float:
        """Train an epoch; return its mean loss over all tokens."""
        whole, tokens = 0.0, 0.0
        batches = make_batches(job.plan.trained, job.settings.batch_tokens, epoch, self.settings.seed)
        for batch in batches:
            rows = weigh_batch(batch)
            planned = plan_update(self.policy, rows, self.settings, self.pass_budget)
            found = update.train_step(self.policy, self.optimizer, planned, self.settings, self.stopped)
            self._figures.append(found)
            whole += found["loss"] * found["trained_tokens"]
            tokens += found["trained_tokens"]
        return whole / tokens

    def _metrics(self, best: EpochLosses, before: float | None) -> dict[str, float]:
        figures = self._figures
        metrics = {
            "loss": best.loss,
            "entropy": fmean(one["entropy"] for one in figures),
            "grad_norm": fmean(one["grad_norm"] for one in figures),
            "lr": self.optimizer.rate,
            "trained_tokens": sum(one["trained_tokens"] for one in figures),
            "forward_tokens": sum(one["forward_tokens"] for one in figures),
            "fresh_tokens": 0.0,
            "updates": float(len(figures)),
            "epoch": float(best.epoch),
        }
        if best.held_out_loss is not None and before is not None:
            metrics |= {"held_out_loss": best.held_out_loss, "held_out_loss_before": before}
        return metrics

    def _require_running(self) -> None:
        if self.stopped():
            raise StepInterrupted("the step was stopped before its end")


def _is_better(new: EpochLosses, best: EpochLosses) -> bool:
    if new.held_out_loss is None or best.held_out_loss is None:
        return True
    return new.held_out_loss < best.held_out_loss
