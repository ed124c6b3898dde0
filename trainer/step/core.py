"""The trainer's state in memory: a policy and its optimizer at one version.

Owns: which version is in memory, repeating a step that did not fit, and what a step made. Refuses: the passes of a step
(`trainer.step.passes`), files (`trainer.step.state.files`), and the store and leases (`trainer.step.alias_trainer`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import torch
from torch import Tensor

from trainer.artifacts import adapters
from trainer.artifacts.adapters import AdapterOrigin, PublishedAdapter
from trainer.batch.packing import smaller_budget
from trainer.batch.rows import FitsAlone
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, MemoryFull, RankLost, RowTooLong
from trainer.lora.file_layout import ExpertLayout
from trainer.memory.long_rows import PlannedRows
from trainer.policy import memory
from trainer.policy.base_model import ROOM, first_architecture, memory_errors, read_config
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.plan import split_substeps
from trainer.policy.packs.sums import FreshGaps
from trainer.quantization.copy_gap import CopyLogprobs
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.settings import TrainerSettings
from trainer.step.drift.request import DriftJob, DriftRequest
from trainer.step.fits.job import FitJob, ReferenceAdapter
from trainer.step.passes import BaseJob, StepJob, StepPasses, open_passes
from trainer.step.state.files import VersionFiles
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.residence import Residence
from trainer.step.state.results import PhaseSeconds, StartVersion, TrainedStep, WrittenStep

log = logging.getLogger(__name__)

_STEPS_DOWN: Final = 8  # where a row did not fit, one that is an eighth shorter is tried next


class TrainerCore:
    """A policy with its optimizer."""

    def __init__(
        self,
        base: Path,
        settings: TrainerSettings,
        folders: TrainerFolders,
        fits_alone: FitsAlone | None = None,
        ranks: Ranks = ONE_RANK,
    ) -> None:
        """`fits_alone`: whether a row longer than `token_budget` fits into memory in a pass of its own; None: by
        `trainer.memory.long_rows`. `ranks`: this process is the first of them.
        """
        self._ranks = ranks
        with ranks.job(BaseJob(settings.base or str(base), settings)):
            self._passes: StepPasses = open_passes(base, settings, ranks)
        self.policy: Policy = self._passes.policy
        self._optimizer: Optimizer = self._passes.optimizer
        layout = ExpertLayout.of(first_architecture(read_config(base)), settings.rank)
        self._files = VersionFiles(self.policy, self._optimizer, settings, folders, layout)
        self._residence = Residence(
            self.policy.module, lambda tensor: tensor.to(self.policy.device), self._optimizer.tensors
        )
        self._settings = settings
        self._estimate: FitsAlone = fits_alone or PlannedRows(self.policy, base, settings)
        self._too_long: int | None = None  # tokens of the shortest row above the budget that is not computed
        self._at: str | None = None  # the version in memory; None: unknown
        self._start: StartVersion | None = None  # the version that the next step begins at, on disk
        self._written: WrittenStep | None = None  # the last step's
        self._is_fresh = False  # whether that version's optimizer state was missing

    @property
    def copied(self) -> CopyLogprobs | None:
        """The logprobs of the base and of the quantised copy that computes instead; None: the base computes."""
        return self.policy.copied

    @property
    def note(self) -> None:
        """Nothing to say before the first step."""

    def close(self) -> None:
        """Nothing is held beside memory."""

    def enter_gpu(self) -> None:
        """Move base, LoRA and optimizer state to the device. Raises `MemoryFull`."""
        if not self._residence.is_on_device:
            with memory_errors("the base does not fit on the GPU beside a sleeping engine", self.policy.device):
                self._residence.enter()

    def leave_gpu(self) -> None:
        """Move everything to host memory, and give back what torch has reserved."""
        self._residence.leave()
        memory.empty_pool(self.policy.device)

    @property
    def device_name(self) -> str:
        """The device that trains, with the size of its memory; how many processes, if several."""
        return self._ranks.describe(memory.device_name(self.policy.device))

    @property
    def pass_budget(self) -> int:
        """Tokens of a pass: `token_budget`, or less where those do not fit into memory."""
        return self.policy.pass_budget

    @pass_budget.setter
    def pass_budget(self, tokens: int) -> None:
        self.policy.pass_budget = tokens

    def fits_alone(self, row_tokens: int) -> bool:
        """Whether a row longer than `token_budget` is computed, in a pass of its own."""
        if self._too_long is not None and row_tokens >= self._too_long:
            return False
        return self._estimate(row_tokens)

    def publish_trial(self, origin: AdapterOrigin) -> PublishedAdapter:
        """Write an adapter with weights that are not zero, as a step would, to be tried and removed.

        Raises `UnsupportedModel` if it fails a check that comes before loading, and `VersionNotWritten`.
        """
        return self._files.publish_trial(origin)

    def go_to(self, start: StartVersion) -> bool:
        """Load a version. Return whether its optimizer state was there (True for version 0, which has none).

        Raises `AdapterInvalid` or `CheckpointInvalid` if the files are damaged, or of another shape or scale, and
        `MemoryFull`.
        """
        self._start = start
        if self._at != start.version_id:
            what = f"the version {start.path.name if start.path else 0} does not fit into memory beside the base"
            with memory_errors(what, self.policy.device):
                self._is_fresh = not self._load(start)
        return not self._is_fresh

    def _load(self, start: StartVersion) -> bool:
        self._at = None
        self._optimizer.reset()
        torch.manual_seed(self._settings.seed)
        known = self._files.load(start)
        self._at = start.version_id
        return known

    def step(
        self,
        rows: Sequence[WeightedRow],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
        reference: ReferenceAdapter | None = None,
    ) -> TrainedStep:
        """Train on the rows from the version in memory at the learning rate `rate`; the result stays in memory.

        `drift`: what the result is measured on. `reference`: of the pairs among the rows; None: the base.

        If a pass does not fit into memory, the step is repeated from its parent with half the tokens a pass, which
        gives the same result; `pass_budget` keeps what fitted. Afterwards the version in memory is undefined until
        `became` is called. Raises `StepFailed`, `EngineMismatch`, `MemoryFull`, `RowTooLong`, `StepInterrupted`,
        `RankLost`, and `AdapterInvalid` if the reference is damaged, or of another shape or scale.
        """

        measured, weights = self._drift_job(drift), self._read_reference(reference)
        average = None if self._files.average is None else self._files.average.state

        def compute() -> TrainedStep:
            fresh = FreshGaps()
            with self._ranks.job(StepJob(rows, self.pass_budget, measured, weights, average)):
                made = self._passes.compute(rows, stopped, seconds, fresh, measured, weights, average)
            return TrainedStep(made.metrics, made.probe, changed=True, gaps=fresh.by_trajectory, mask=made.mask)

        return self._repeat_until_fits(compute, rows, rate)

    def fit(
        self,
        job: FitJob[Any],
        rate: float,
        stopped: Callable[[], bool],
        seconds: PhaseSeconds,
        drift: DriftRequest | None = None,
    ) -> TrainedStep:
        """Train on demonstrations or on pairs, as `step` does on rows. The result has `fit`.

        Raises as `step`, and `AdapterInvalid` if the job's reference is damaged, or of another shape or scale.
        """
        measured, reference = self._drift_job(drift), self._read_reference(job.reference)

        def compute() -> TrainedStep:
            result, contexts = self._passes.fit(job, reference, stopped, seconds, measured)
            return TrainedStep(result.metrics, contexts, changed=True, fit=result)

        return self._repeat_until_fits(compute, job.rows, rate)

    def _read_reference(self, given: ReferenceAdapter | None) -> dict[str, Tensor] | None:
        return None if given is None else self._files.read_state(given.path, given.manifest_sha256)

    def _drift_job(self, drift: DriftRequest | None) -> DriftJob | None:
        """The request with the weights of its versions; those whose files are damaged are omitted."""
        if drift is None:
            return None
        states = {}
        for name, version in drift.earlier.items():
            try:
                assert version.path is not None
                states[name] = self._files.read_state(version.path, version.manifest_sha256)
            except AdapterInvalid as e:
                log.warning("the drift from the version of a %s ago is not measured: %s", name, e)
        return DriftJob(drift.rows, states)

    def _repeat_until_fits(
        self, compute: Callable[[], TrainedStep], rows: Sequence[WeightedRow], rate: float
    ) -> TrainedStep:
        """Compute from the version in memory, again from it with fewer tokens a pass if one did not fit."""
        try:
            return self._repeat(compute, rows, rate)
        finally:
            memory.release_pool(self.policy.device)

    def _repeat(self, compute: Callable[[], TrainedStep], rows: Sequence[WeightedRow], rate: float) -> TrainedStep:
        earlier = self.policy.state()
        while True:
            self._at = None
            self._optimizer.rate = rate
            try:
                trained = compute()
                break
            except (RuntimeError, MemoryError) as e:
                if not memory.is_out_of_memory(e):
                    raise
                failure = str(e)
                size = (e.tokens, e.rows) if isinstance(e, memory.PassMemoryFull) else None
            self._lower_pass_budget(rows, failure, size)
        metrics = {
            **trained.metrics,
            "probe_separation": trained.probe["separation"],
            "optimizer_fresh": float(self._is_fresh),
        }
        return replace(trained, metrics=metrics, changed=not adapters.is_same_adapter(earlier, self.policy.state()))

    def write(self, origin: AdapterOrigin, trained: TrainedStep, seconds: PhaseSeconds) -> WrittenStep:
        """Write the weights and the optimizer state in memory as a version. Raises `AdapterInvalid`,
        `VersionNotWritten`.
        """
        with seconds.phase("publish"):
            self._written = self._files.write(origin, trained.probe)
        return self._written

    def _lower_pass_budget(self, rows: Sequence[WeightedRow], failure: str, size: tuple[int, int] | None) -> None:
        """Halve the tokens of a pass until the pass that failed is divided, and go back to the step's parent.

        `size`: tokens and rows of that pass; None: unknown, so it is taken for the largest. One row cannot be divided:
        where a pass has fewer tokens than it, it is computed with less memory. Raises `MemoryFull` or, for a row above
        `token_budget`, `RowTooLong` if it was computed so already.
        """
        assert self._start is not None
        device, settings = self.policy.device, self._settings
        self._optimizer.zero()
        memory.release_memory(device)
        if size is None:
            packs = [one for part in split_substeps(rows) for one in self._passes.plan(part).packs]
            size = max((len(one), len(one.rows)) for one in packs)
        tokens, rows_of_pass = size
        is_last = rows_of_pass == 1 and (tokens > self.pass_budget or not self.policy.has_long_rows)
        what = f"a pass with one row of {tokens} tokens does not fit into memory ({memory.free_memory(device)} between"
        if is_last and tokens > settings.token_budget:
            self._too_long = limit = max(settings.token_budget + 1, tokens - tokens // _STEPS_DOWN)
            raise RowTooLong(f"{what} passes): trajectories of {limit} tokens or more are excluded. {failure}")
        if is_last:
            raise MemoryFull(
                f"{what} passes). {ROOM}, or set trainer.token_budget below {tokens}: longer trajectories then have "
                f"a pass of their own if they fit, and are excluded if not. {failure}"
            )
        self.pass_budget = smaller_budget(tokens, self.pass_budget)
        if self._ranks.is_lost:
            raise RankLost(
                f"a pass of {tokens} tokens did not fit into the memory of a process, while the others waited for its "
                f"share of the base: start the trainer again. A pass then has at most {self.pass_budget} tokens."
            )
        self.go_to(self._start)

    def became(self, version_id: str) -> None:
        """Declare that the weights and optimizer state in memory, which the last step wrote, are this version's."""
        assert self._written is not None
        published = self._written.published
        self._start = StartVersion(version_id, published.path, published.manifest_sha256)
        self._at, self._is_fresh = version_id, False
