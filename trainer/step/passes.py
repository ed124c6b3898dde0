"""The passes of a step over one policy: probes before and after, and the optimizer steps between them.

All ranks of a trainer make them in the same order. Owns: opening a base on every rank, that order, and the jobs by
which the first rank tells the others. Refuses: versions and files, which the first rank alone has
(`trainer.step.core`), and what a pass computes (`trainer.policy.update`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from trainer.artifacts import probe
from trainer.artifacts.probe import ProbeCandidates
from trainer.batch.row_builder import Row
from trainer.batch.turn_mask import TurnMask, has_fresh_turns, mask_turns
from trainer.batch.weights import GROUP, WeightedRow
from trainer.errors import EngineMismatch
from trainer.memory.start import require_room
from trainer.policy import update
from trainer.policy.base_model import load_policy
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.gradient_shares import gradient_shares, objective_metrics
from trainer.policy.packs.lessons import LessonPasses, take_lessons
from trainer.policy.packs.plan import UpdatePlan, plan_update, split_substeps
from trainer.policy.packs.sums import FreshGaps, merge_substeps
from trainer.ranks.group import Ranks
from trainer.settings import TrainerSettings
from trainer.step.drift.limits import measure_within
from trainer.step.drift.measure import LoraState, measure_drift
from trainer.step.drift.request import DriftJob
from trainer.step.engine_gap import NF4_BOUND, explain_all_masked
from trainer.step.fits.epochs import EpochRunner
from trainer.step.fits.job import FitJob
from trainer.step.fits.joined_pairs import JoinedPairs
from trainer.step.fits.report import FitResult
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
    reference: LoraState | None = None  # of the pairs among the rows; None: the base
    average: LoraState | None = None  # the weights of the teacher `ema`


@dataclass(frozen=True, slots=True)
class ComputedStep:
    """The metrics of a step, its probe, and its masked turns."""

    metrics: dict[str, float]
    probe: dict[str, Any]
    mask: TurnMask


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
        reference: LoraState | None = None,
        average: LoraState | None = None,
    ) -> ComputedStep:
        """Compute a step. `fresh` gets the gaps of all rows that are trained on, before the first update.

        `drift`: what the result is compared with afterwards, if it is. `reference`: the weights that the pairs among
        the rows are compared with; None: the base. `average`: the weights of the teacher `ema`.

        Raises `EngineMismatch` if every turn of its groups, or of a step without any, is masked, `StepFailed`,
        `StepInterrupted`, and what a full memory raises (`trainer.policy.memory`).
        """
        mask = TurnMask()
        given = probe.probe_candidates([one.row for one in rows])
        self.policy.ranks.share_weights(self.policy.parameters)
        parent = self._keep_parent(drift)
        with seconds.phase("probe"):
            before = self._probe(given)
        with seconds.phase("train"):
            pairs = JoinedPairs(self.policy, self._settings, stopped, rows, reference)
            known, learned = take_lessons(rows, self._lesson_passes(stopped, average))
            parts = split_substeps(known)
            if self._settings.mask_ratio < math.inf:
                (first, *later), mask = self._masked(parts, self._settings.mask_ratio, stopped, fresh)
            else:
                first, *later = parts
                later = [
                    update.measure_parent(self.policy, self.plan(part), self._settings, stopped, fresh)
                    for part in later
                ]
            weighed = pairs.weigh(first)
            shares = gradient_shares(self.policy, weighed.rows, self._settings)
            done = [weighed.correct(self._update(weighed.rows, stopped, fresh))]
            for part in later:
                weighed = pairs.weigh(part)
                done.append(weighed.correct(self._update(weighed.rows, stopped)))
        drifted = self._measure_drift(measure_within, drift, parent, stopped, seconds)
        with seconds.phase("probe"):
            after = self._probe(given)
        metrics = merge_substeps(done) | objective_metrics(shares) | learned | drifted
        if mask.compared:
            metrics["engine_mismatch"] = mask.share
        return ComputedStep(metrics, probe.choose_contexts(given, after, before, self._copy_gap), mask)

    def fit(
        self,
        job: FitJob[Any],
        reference: Mapping[str, Tensor] | None,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftJob | None = None,
    ) -> tuple[FitResult, dict[str, Any]]:
        """The result of the epochs over a job's data, and the probe of the best one. `drift` and errors are those of
        `compute`.

        `reference`: the weights of the job's reference; None: the base.
        """
        parent = self._keep_parent(drift)
        given = probe.probe_candidates([one.row for one in job.trained_rows])
        with seconds.phase("probe"):
            before = self._probe(given)
        with seconds.phase("train"):
            budget = self.policy.pass_budget
            runner = EpochRunner(self.policy, self.optimizer, self._settings, budget, stopped, reference)
            result = runner.run(job)
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

    def _masked(
        self, parts: Sequence[Sequence[WeightedRow]], limit: float, stopped: Callable[[], bool], fresh: FreshGaps
    ) -> tuple[list[list[WeightedRow]], TurnMask]:
        """The rows of each optimizer step without masked turns, and those of all but the first with their parents.

        All ranks decide from the same logprobs. Of the first optimizer step, only rows with fresh turns are measured,
        in passes that a step without the mask does not make.
        """
        known: list[WeightedRow] = []
        for number, part in enumerate(parts):
            needed = [index for index, one in enumerate(part) if number > 0 or has_fresh_turns(one)]
            measured = dict(zip(needed, self._with_parents([part[index] for index in needed], stopped), strict=True))
            known += [measured.get(index, one) for index, one in enumerate(part)]
        kept, mask = mask_turns(known, limit)
        left = split_substeps(kept)
        if not kept or (_has_groups(known) and not _has_groups(kept)):
            self.policy.ranks.agree(EngineMismatch(explain_all_masked(len(mask.masked), limit)))
        if self.policy.ranks.is_first:  # the update of the first adds its own, and those of all ranks are added up
            for one in (one for part in left[1:] for one in part):
                fresh.add_row(one)
        return [[replace(one, parent=None) for one in left[0]], *left[1:]], mask

    def _lesson_passes(self, stopped: Callable[[], bool], average: LoraState | None = None) -> LessonPasses:
        """The passes without gradient that teachers' advantages need, on all ranks."""

        def by_parent(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
            measured = self._with_parents([WeightedRow(row, 0.0, 0.0) for row in rows], stopped)
            return [one.parent for one in measured if one.parent is not None]

        def by_base(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
            with self.policy.base_only():
                return by_parent(rows)

        def by_average(rows: Sequence[Row]) -> list[NDArray[np.floating]]:
            assert average is not None  # the settings have this teacher
            own = self.policy.state()
            self.policy.load_state(average)
            try:
                return by_parent(rows)
            finally:
                self.policy.load_state(own)

        return LessonPasses(by_parent, by_base, by_average)

    def _with_parents(self, rows: Sequence[WeightedRow], stopped: Callable[[], bool]) -> list[WeightedRow]:
        """Rows with their logprobs at the parent, on all ranks."""
        if not rows:
            return []
        found = update.measure_parent(self.policy, self.plan(rows), self._settings, stopped, FreshGaps())
        known: dict[int, NDArray[np.floating]] = {}
        own = {index: one.parent for index, one in enumerate(found) if one.parent is not None}
        for theirs in self.policy.ranks.gather(own):
            known |= theirs
        return [replace(one, parent=known[index]) for index, one in enumerate(rows)]

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


def _has_groups(rows: Sequence[WeightedRow]) -> bool:
    return any(one.objective == GROUP for one in rows)


def open_passes(base: Path, settings: TrainerSettings, ranks: Ranks) -> StepPasses:
    """Load a base on this rank, while the others do so too.

    Raises `UnsupportedModel`, and `DoesNotFit` or `MemoryFull` if it does not fit into memory.
    """
    torch.set_num_threads(settings.threads)
    ranks.open_base(sharded=settings.shard_base)
    shares = settings.model_copy(update={"processes": ranks.count})
    ranks.together(lambda: require_room(base, shares))
    return StepPasses(load_policy(base, settings, ranks), settings)
