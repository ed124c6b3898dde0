"""One step of a trainer, from its beginning in the store to its version or its failure.

Owns: the order of a step's phases, why a trained step makes no version, and the state of its groups after a failed one.
Refuses: reading groups (`trainer.step.group_reader`), computing (`trainer.step.core`), and the alias's lease.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from recorder.errors import Conflict, LeaseLost, RecorderError, VersionPending
from recorder.queue.claims import GroupClaim, return_claim_in
from recorder.queue.judging import scores
from recorder.queue.training import refusals, steps
from recorder.queue.training.refusals import RefusedGroup
from recorder.queue.training.steps import StepView
from recorder.queue.training.uses import ObjectiveUse
from recorder.registry import versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store import ledger
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from trainer.artifacts import probe
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.turn_mask import TurnMask
from trainer.errors import (
    CheckpointExpired,
    EngineMismatch,
    MemoryFull,
    RankLost,
    RowTooLong,
    StepFailed,
    StepInterrupted,
    TinkerRefused,
    TinkerUnavailable,
    TinkerUnsupported,
    VersionNotWritten,
)
from trainer.objectives.group_rows import GroupRows, UntrainedChoice
from trainer.objectives.registry import weigh_step
from trainer.objectives.step_data import StepData
from trainer.settings import TrainerSettings
from trainer.step import engine_gap, summary
from trainer.step.drift.limits import KL_PARENT_MAX, explain_refusal
from trainer.step.drift.request import DriftRequest
from trainer.step.engine_gap import ProbeGap, TokenGaps
from trainer.step.fits.job import FitJob
from trainer.step.fits.joined_data import JoinedData
from trainer.step.fits.lesson_joiner import StepLessons
from trainer.step.lease_renewer import LeaseRenewer
from trainer.step.state.folders import TrainerFolders, remove_unneeded
from trainer.step.state.pass_budget import PassBudgetMemory
from trainer.step.state.results import PhaseSeconds, StartVersion, TrainedStep, WrittenStep
from trainer.step.state.step_core import StepCore
from trainer.step.state.torch_thread import TorchThread
from trainer.step.summary import STEP_FAILED

OPTIMIZER_FRESH: Final = "optimizer_fresh"  # the ledger's code of a version whose optimizer lost its state


@dataclass(slots=True)
class RunningStep:
    """A step in progress: its inputs, and its results so far."""

    parent: VersionView
    groups: Sequence[GroupRows]
    claims: Sequence[GroupClaim]
    metrics: dict[str, float]
    seconds: PhaseSeconds
    rate: float  # the learning rate
    joined: JoinedData = field(default_factory=JoinedData)  # beside the groups
    lessons: StepLessons = field(default_factory=StepLessons)  # turns that teachers teach
    drift: DriftRequest | None = None  # what the result is measured on
    fit: FitJob[Any] | None = None  # a step on demonstrations or on pairs alone, without groups
    at_parent: bool = False  # the parent is in memory: the groups may have caused any later failure
    parent_gap: ProbeGap | None = None  # the engine's, where too few tokens are fresh to measure it
    version_id: str | None = None
    trained: TrainedStep | None = None
    written: WrittenStep | None = None


@dataclass(frozen=True, slots=True)
class StepEndedEarly:
    """A step that was trained and makes no version: why, and its excluded trajectories by ledger code."""

    code: str
    reason: str
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class StepRunner:
    """Runs the steps of one alias's trainer, one at a time.

    `gap_bound`, `copy_gap`: nats a token (`trainer.step.engine_gap`). `stopped`: asked between two packs. `notice`: for
    the next report.
    """

    store: Store
    alias: AliasView
    settings: TrainerSettings
    folders: TrainerFolders
    fingerprint: str
    core: StepCore
    torch: TorchThread
    keeper: LeaseRenewer
    budget: PassBudgetMemory
    gap_bound: float
    copy_gap: float | None
    stopped: Callable[[], bool]
    notice: str | None = None

    async def run(self, attempt: RunningStep, campaign_id: str | None) -> tuple[StepView, VersionView] | StepEndedEarly:
        """Train the step and write its version. Return both, or why it made none.

        Raises as `AliasTrainer.train_once`; then the groups that may be at fault are counted, and nothing is left of
        the version.
        """
        parent = attempt.parent
        step = await self._begin(attempt, campaign_id)
        try:
            try:
                attempt.trained = trained = await self.torch.run(self._compute, attempt)
            except EngineMismatch as e:
                attempt.metrics["engine_mismatch"] = 1.0
                return await self._end_excluded(step, attempt, UntrainedChoice.ENGINE_MISMATCH, str(e))
            notices = [self.notice, self._note_mask(attempt, trained.mask), await self.budget.remember()]
            self.notice = " ".join(one for one in notices if one is not None) or None
            if refused := self._find_refused(attempt):
                return await self._end_refused(step, attempt, refused)
            if not trained.changed:
                return await self._end_unchanged(step, attempt)
            if attempt.fit is None and (reason := explain_refusal(attempt.metrics, self.settings)) is not None:
                return await self._end_too_far(step, attempt, reason)
            version = await versions.allocate_version(self.store, self.alias.id, parent.id, step_id=step.id)
            attempt.version_id = version.id
            origin = AdapterOrigin(
                self.alias.name, version.number, parent.name, self.alias.base_model, self.fingerprint
            )
            attempt.written = await self.torch.run(self.core.write, origin, trained, attempt.seconds)
            attempt.metrics |= {f"seconds.{phase}": spent for phase, spent in attempt.seconds.by_phase.items()}
            with attempt.seconds.phase("commit"):
                step = await self._finish(step, version, attempt)
        except BaseException as e:
            if isinstance(e, RankLost):  # the next process begins with what would have fitted
                await asyncio.shield(self.budget.remember())
            # After any error, cancellation included, no group may stay claimed and no version incomplete.
            await asyncio.shield(self._give_up(step, attempt, e))
            raise
        self.core.became(version.id)
        await remove_unneeded(self.store, self.alias, self.folders, self.settings)
        return step, await versions.get_version(self.store, version.id)

    async def _begin(self, attempt: RunningStep, campaign_id: str | None) -> StepView:
        lease, held = self.keeper.lease, attempt.claims
        try:
            return await steps.begin_step(
                self.store, self.alias.id, attempt.parent.id, campaign_id, groups=held, lease=lease
            )
        except (VersionPending, LeaseLost):
            raise
        except Conflict as e:  # the alias was moved while the groups were read
            raise StepFailed(str(e)) from e

    def _note_mask(self, attempt: RunningStep, mask: TurnMask) -> str | None:
        """Take the masked turns out of the groups. Return what to report, if they are too many."""
        if mask.masked:
            attempt.groups = [group.without_turns(mask.masked) for group in attempt.groups]
            attempt.metrics["groups_trained"] = float(sum(group.code is None for group in attempt.groups))
        return engine_gap.explain_masked(len(mask.masked), mask.compared, self.settings.mask_ratio)

    def _find_refused(self, attempt: RunningStep) -> list[RefusedGroup]:
        """The groups of a step that is further from the engine than their precision explains; none if it is not."""
        assert attempt.trained is not None
        gaps, metrics = attempt.trained.gaps, attempt.metrics
        alone = frozenset() if self.settings.uses_rewards else attempt.lessons.trajectories
        if metrics["fresh_tokens"] >= engine_gap.MIN_TOKENS:
            metrics["logprob_gap_bound"] = self.gap_bound
        if (known := attempt.parent_gap) is not None:  # no group is more at fault than another
            metrics |= {"probe_gap": known.gap, "probe_gap_bound": known.bound}
            if known.gap <= known.bound:
                return []
            return [
                RefusedGroup(group.group_id, known.gap, known.bound, known.tokens, attempt.parent.id)
                for group in attempt.groups
            ]
        by_group = {
            # where no rewards are trained on, the groups stand for the turns that were read for them
            group.group_id: sum((TokenGaps(*gaps[id_]) for id_ in (group.trained or alone) if id_ in gaps), TokenGaps())
            for group in attempt.groups
        }
        return [
            RefusedGroup(group_id, one.mean, self.gap_bound, one.tokens, attempt.parent.id)
            for group_id, one in engine_gap.find_refused(by_group, self.gap_bound).items()
        ]

    async def _end_refused(
        self, step: StepView, attempt: RunningStep, refused: Sequence[RefusedGroup]
    ) -> StepEndedEarly:
        """Give back the groups, without a count, and mark those at fault: no step takes them again."""
        if (known := attempt.parent_gap) is not None:
            how_far = refusals.describe_probe_gap(known.gap, known.bound)
        else:
            gap, tokens = attempt.metrics["logprob_gap"], int(attempt.metrics["fresh_tokens"])
            how_far = refusals.describe_gap(gap, self.gap_bound, tokens)
        copy = f" (it computes on a copy in {self.settings.quantize})" if self.settings.quantize else ""
        reason = f"{how_far}{copy}: no version was made, and the groups stay scored"
        rows = [refusals.refusal_row(step.project_id, one) for one in refused]
        for claim in attempt.claims:
            self.keeper.drop(claim)
        await steps.abandon_step(
            self.store,
            step.id,
            f"{refusals.LOGPROB_GAP}: {reason}",
            claims=attempt.claims,
            metrics=self._recorded(attempt),
            ledger_rows=rows,
        )
        return StepEndedEarly(refusals.LOGPROB_GAP, reason)

    async def _end_unchanged(self, step: StepView, attempt: RunningStep) -> StepEndedEarly:
        """Exclude the groups of a step whose adapter equals its parent's: they would pass every test of a version."""
        section = "trainer" if attempt.fit is None else attempt.fit.objective.section
        reason = (
            f"the step changed nothing: at learning rate {attempt.rate:g} its adapter equals that of "
            f"{attempt.parent.name}. If steps go on like this, raise {section}.lr"
        )
        return await self._end_excluded(step, attempt, UntrainedChoice.NO_CHANGE, reason)

    async def _end_excluded(self, step: StepView, attempt: RunningStep, code: str, reason: str) -> StepEndedEarly:
        """Exclude the groups of a step that made no version."""
        for claim in attempt.claims:
            self.keeper.drop(claim)
            await scores.exclude_group(self.store, claim, code, {"reason": reason})
        await steps.abandon_step(self.store, step.id, f"{code}: {reason}", metrics=self._recorded(attempt))
        return StepEndedEarly(code, reason, summary.excluded_as(code, attempt.groups))

    async def _end_too_far(self, step: StepView, attempt: RunningStep, reason: str) -> StepEndedEarly:
        """Give back the groups of a step that goes too far from its parent, or exclude them after too many."""
        excluded = set()
        for claim in attempt.claims:
            self.keeper.drop(claim)
            if await self._count_failure(claim, reason, KL_PARENT_MAX):
                excluded.add(claim.group_id)
        what = f"{KL_PARENT_MAX}: {reason}"
        await steps.abandon_step(self.store, step.id, what, metrics=self._recorded(attempt))
        gone = [group for group in attempt.groups if group.group_id in excluded]
        left = summary.excluded_as(KL_PARENT_MAX, gone) if gone else {}
        return StepEndedEarly(KL_PARENT_MAX, reason, left)

    def _compute(self, attempt: RunningStep) -> TrainedStep:
        """The blocking part, in the torch thread."""
        parent, seconds = attempt.parent, attempt.seconds
        with seconds.phase("load"):
            path = Path(parent.path) if parent.path else None
            self.core.go_to(StartVersion(parent.id, path, parent.manifest_sha256))
        attempt.at_parent = True
        if attempt.fit is not None:
            rows = attempt.fit.trained_rows
            trained = self.core.fit(attempt.fit, attempt.rate, self.stopped, seconds, attempt.drift)
        else:
            joined = attempt.joined
            data = StepData(attempt.groups, joined.demonstrations, joined.pairs, joined.rehearsal, attempt.lessons.rows)
            rows = weigh_step(data, self.settings)
            trained = self.core.step(rows, attempt.rate, self.stopped, seconds, attempt.drift, joined.reference)
        attempt.metrics |= {**trained.metrics, **summary.row_metrics(rows, seconds.by_phase["train"])}
        if self.copy_gap is not None:
            attempt.metrics["copy_gap"] = self.copy_gap
        if attempt.groups and path is not None and trained.metrics["fresh_tokens"] < engine_gap.MIN_TOKENS:
            attempt.parent_gap = engine_gap.probe_gap(parent.metrics, probe.read_probe(path), self.gap_bound)
        return trained

    def _recorded(self, attempt: RunningStep) -> dict[str, float | str]:
        """The metrics of a step as the store keeps them."""
        quantize = self.settings.quantize
        return {**attempt.metrics, **({steps.COMPUTED_ON: quantize} if quantize else {})}

    async def _finish(self, step: StepView, version: VersionView, attempt: RunningStep) -> StepView:
        assert attempt.written is not None
        published = attempt.written.published
        return await steps.finish_step(
            self.store,
            step.id,
            version_id=version.id,
            path=str(published.path),
            engine_name=published.engine_name,
            manifest_sha256=published.manifest_sha256,
            metrics=self._recorded(attempt),
            checkpoint_path=str(attempt.written.checkpoint),
            groups=attempt.claims,
            excluded={group.group_id: group.code for group in attempt.groups if group.code is not None},
            trained=[id_ for group in attempt.groups for id_ in group.trained],
            ledger_rows=_ledger_rows(attempt, version),
            compared=[one for group in attempt.groups for one in group.compared()],
            used=_uses(attempt),
            lease=self.keeper.lease,
        )

    async def _give_up(self, step: StepView, attempt: RunningStep, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        try:
            await steps.abandon_step(self.store, step.id, reason)
        except Conflict:  # committed after all (only the reply was lost), or already abandoned by another process
            if attempt.version_id is not None and await steps.step_of_version(self.store, attempt.version_id):
                return
        if attempt.written is not None:
            await asyncio.to_thread(self.folders.remove_written, attempt.written)
        if not (attempt.at_parent and _may_be_the_groups_fault(error)):
            return
        for claim in attempt.claims:
            with suppress(LeaseLost):  # then another process has it
                await self._count_failure(claim, reason)

    async def _count_failure(self, claim: GroupClaim, reason: str, code: str = STEP_FAILED) -> bool:
        """Give a group back, or exclude it after too many steps that ended so. Return whether it is excluded."""
        earlier = [row for row in await ledger.object_entries(self.store, "group", claim.group_id) if row.code == code]
        if len(earlier) + 1 >= self.settings.max_tries:
            await scores.exclude_group(self.store, claim, code, {"reason": reason})
            return True
        row = LedgerRow(claim.project_id, "group", claim.group_id, code, {"reason": reason})
        async with self.store.write() as conn:
            await ledger.write_rows(conn, [row])
            await return_claim_in(conn, claim)
        return False


def _uses(attempt: RunningStep) -> list[ObjectiveUse]:
    """What the step's demonstrations, pairs, or turns with lessons were used for."""
    if attempt.fit is None:
        return [*attempt.joined.uses(), *attempt.lessons.uses]
    assert attempt.trained is not None
    assert attempt.trained.fit is not None
    return attempt.fit.uses(attempt.trained.fit.best)


def _ledger_rows(attempt: RunningStep, version: VersionView) -> list[LedgerRow]:
    """The ledger rows of a step: the excluded trajectories, and an optimizer that lost its state."""
    # An excluded group's rows are written with its exclusion.
    rows = [row for group in attempt.groups if group.code is None for row in group.ledger_rows()]
    rows += attempt.lessons.ledger_rows
    if attempt.metrics["optimizer_fresh"]:
        lost = {"parent": attempt.parent.name, "why": "the parent has no checkpoint: the optimizer started fresh"}
        rows.append(LedgerRow(version.project_id, "version", version.id, OPTIMIZER_FRESH, lost))
    return rows


def _may_be_the_groups_fault(error: BaseException) -> bool:
    """Whether the same groups may fail again; then their retries are limited."""
    innocent = RecorderError | StepInterrupted | MemoryFull | RankLost | RowTooLong | VersionNotWritten
    of_service = TinkerRefused | TinkerUnavailable | TinkerUnsupported | CheckpointExpired
    return isinstance(error, Exception) and not isinstance(error, innocent | of_service)
