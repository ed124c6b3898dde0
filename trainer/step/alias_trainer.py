"""The trainer of one alias: scored groups in, a published version out.

Owns: the alias's lease, opening and closing a trainer, and which groups a step is made of. Refuses: a step's phases
(`trainer.step.runner`), when to train (campaign and learner decide) and serving what it publishes (the proxy does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Coroutine, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from recorder.errors import LeaseLost
from recorder.queue import leases
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.leases import holder_name
from recorder.queue.training import refusals, steps
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.store.database import Project, Store
from trainer.batch.recorded_text import TextCheck
from trainer.errors import AliasBusy, RowTooLong, StepFailed, StepInterrupted, TrainerError
from trainer.objectives.group_rows import GroupRows, UntrainedChoice
from trainer.objectives.imitate_rows import ImitateBasis
from trainer.objectives.rehearsal import count_own
from trainer.policy.base_model import dtype_name, explain_target, load_decoder, read_config, resolve_base
from trainer.policy.optim import learning_rate
from trainer.ranks.group import ONE_RANK
from trainer.ranks.launch import Launcher, rank_count
from trainer.settings import TrainerSettings
from trainer.step import engine_gap, summary
from trainer.step.backends import check_backend, open_core
from trainer.step.drift.set_reader import DriftReader
from trainer.step.engine_gap import gap_bound, quantized_precision, text_gap
from trainer.step.fits.context import RowContext
from trainer.step.fits.joined_data import DataJoiner, check_conditions
from trainer.step.fits.lesson_joiner import LessonJoiner
from trainer.step.fits.report import FitReport
from trainer.step.fits.source import FitSource
from trainer.step.gpu_share import GpuShare
from trainer.step.group_reader import GroupReader
from trainer.step.lease_renewer import LeaseRenewer
from trainer.step.runner import RunningStep, StepEndedEarly, StepRunner
from trainer.step.state.base_match import check_base, require_same_base
from trainer.step.state.claims import exclude_untrainable, give_back_claims, limit_follow_ups
from trainer.step.state.engine_facts import NO_FACTS, EngineFacts
from trainer.step.state.folders import TrainerFolders, publish_missing, remove_unfinished, remove_unneeded
from trainer.step.state.pass_budget import PassBudgetMemory
from trainer.step.state.results import PhaseSeconds
from trainer.step.state.step_core import StepCore
from trainer.step.state.torch_thread import TorchThread
from trainer.step.state.trial import AdapterTrial
from trainer.step.summary import StepReport

log = logging.getLogger(__name__)

R = TypeVar("R")
T = TypeVar("T")


class AliasTrainer:
    """Trains one alias. Use as ``async with await AliasTrainer.open(...) as trainer``."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        data: Path,
        engine: EngineFacts = NO_FACTS,
    ) -> None:
        self._store = store
        self._engine = engine
        self._alias = alias
        self._project = Project(store, alias.project_id)
        self._settings = settings
        # the engine finds a version by its path, from anywhere
        self._folders = TrainerFolders.of(data.resolve(), engine.adapters_url)
        self._torch = TorchThread()
        self._launcher = Launcher(settings) if rank_count(settings) > 1 else None
        self._resources = AsyncExitStack()
        self._fingerprint: str
        self._keeper: LeaseRenewer
        self._gpu: GpuShare
        self._core: StepCore
        self._reader: GroupReader
        self._context: RowContext
        self._joiner: DataJoiner
        self._runner: StepRunner
        self._lessons: LessonJoiner
        self._drift: DriftReader
        self._trial: AdapterTrial | None = None
        self._target_note: str | None = None
        self._row_notice: str | None = None  # for the next report, of the last row that did not fit alone
        self.gap_bound: float  # nats a token

    @classmethod
    async def open(
        cls,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        data: Path,
        engine: EngineFacts = NO_FACTS,
    ) -> AliasTrainer:
        """Take the lease ``trainer:<alias>`` and load the base (`settings.base` must be set).

        Raises `AliasBusy` if another trainer holds the alias, `BaseMismatch` if the base is not the alias's,
        `UnsupportedModel` if its logprobs cannot be reproduced.
        """
        self = cls(store, alias, settings, data, engine)
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise
        return self

    async def _start(self) -> None:
        settings = self._settings
        if settings.base is None:
            raise TrainerError("no base model is known: set trainer.base (or engine.base) to its folder or hub id")
        check_conditions(settings)  # settings that cannot work fail before sampling
        check_backend(settings, self._engine.share)  # before a lease of a GPU that is not needed
        base = await asyncio.to_thread(resolve_base, settings.base)
        self._fingerprint = await check_base(self._alias, base, settings)
        await self._take_alias()
        precision = quantized_precision(self._engine.args, await asyncio.to_thread(read_config, base))
        self.gap_bound = gap_bound(dtype_name(settings), precision, settings.max_logprob_gap, settings.quantize)
        refused = await refusals.list_refused_groups(self._store, self._alias.id)
        await refusals.allow_groups(self._store, self._alias.project_id, refused, self.gap_bound)
        async with self._gpu.using(self._enter_gpu, self._leave_gpu):  # the base is checked on the device
            ranks = await self._torch.run(self._launcher.join) if self._launcher is not None else ONE_RANK
            self._core = await self._torch.run(open_core, base, settings, self._folders, self._stopped, ranks)
        said = await self._torch.run(explain_target, base, settings)
        self._target_note = f"{said} {self._core.note}" if self._core.note else said
        self._decode = await asyncio.to_thread(load_decoder, base)
        run, template = self._torch.run, self._engine.chat_template
        self._context = RowContext(self._project, self._alias, base, template, run)
        self._joiner = DataJoiner(self._context, settings)
        await self._joiner.check()
        await self._prepare_steps()
        fingerprint = self._fingerprint
        self._drift = DriftReader(self._project, self._alias.id, fingerprint, settings)
        self._trial = AdapterTrial(self._project, self._alias, fingerprint, self._core, self._folders, self._torch)
        await self._trial.start()

    async def _take_alias(self) -> None:
        """Take the alias's lease, and remove what a trainer before left unfinished."""
        name, lease_s = leases.trainer_lease(self._alias.name), self._settings.lease_s
        lease = await leases.acquire_lease(self._project, name, holder_name(), lease_s)
        if lease is None:
            raise AliasBusy(
                f"another trainer holds the alias {self._alias.name!r} (lease {name!r}). Stop it, or wait up to "
                f"{lease_s:.0f} s if it died."
            )
        self._keeper = LeaseRenewer(self._store, lease, lease_s)
        await self._resources.enter_async_context(self._keeper.running())
        self._gpu = GpuShare(self._project, self._engine.share, lease.owner, lease_s)
        await steps.take_over(self._store, self._alias.id, lease=lease)
        remove_unfinished(self._folders, self._alias)
        await remove_unneeded(self._store, self._alias, self._folders, self._settings)
        await publish_missing(self._store, self._alias, self._folders)

    async def _prepare_steps(self) -> None:
        core, settings = self._core, self._settings
        self._lessons = LessonJoiner(self._context, settings, self._fingerprint, core.fits_alone)
        await self._lessons.require_ready()
        self._reader = GroupReader(self._project, settings, self._fingerprint, core.fits_alone, self._torch)
        budget = PassBudgetMemory(self._project, self._fingerprint, core, settings)
        copy_gap = notice = None
        if (copied := core.copied) is not None:  # how far it is, before anything is sampled
            copy_gap, allowed = text_gap(copied.base, copied.copy, self.gap_bound)
            note = engine_gap.explain_copy(copy_gap, allowed)
            self._target_note = f"{self._target_note} {note}"
            notice = note if copy_gap > allowed else None
        await budget.load()
        self._runner = StepRunner(
            self._store, self._alias, settings, self._folders, self._fingerprint, core, self._torch, self._keeper,
            budget, self.gap_bound, copy_gap, self._stopped, notice,
        )  # fmt: skip

    async def _enter_gpu(self) -> None:
        if hasattr(self, "_core"):  # before that, it is made there
            await self._torch.run(self._core.enter_gpu)

    async def _leave_gpu(self) -> bool:
        if not hasattr(self, "_core"):
            return False  # it failed while it was made: what it holds is unknown
        await self._torch.run(self._core.leave_gpu)
        return True

    async def __aenter__(self) -> AliasTrainer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop a running step between two packs, end other processes and the torch thread, release the lease."""
        if self._trial is not None:
            await self._trial.close()
        if self._launcher is not None:
            self._torch.stop()
            await self._torch.run(self._launcher.leave)
        await self._torch.close()
        if hasattr(self, "_core"):
            await asyncio.to_thread(self._core.close)  # its thread has ended
        await self._resources.aclose()

    @property
    def owner(self) -> str:
        """The holder of the alias: claim groups under this name."""
        return self._keeper.lease.owner

    @property
    def target_note(self) -> str | None:
        """Which share of the base's weights is adapted, in one sentence."""
        return self._target_note

    async def train_once(self, claims: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        """Train one step on the claimed groups and publish the new version.

        The parent is the version live now. The groups are `tried` until the new version is decided, and trained when it
        goes live. Groups without a training signal are excluded, with the reason in the ledger; if none is left no step
        begins (`version` is None). After the end of the schedule none begins either, and the groups are given back. A
        step that changes nothing makes no version; its groups are excluded. Leases of alias and groups are renewed
        meanwhile.

        After a failed step the groups are given back, or excluded after `max_tries`, and the error is raised:
        `StepFailed` for a loss that is not finite and for an expired lease, `MemoryFull` if one row alone does not
        fit into memory, `UnsupportedModel` if the engine refuses such adapters, `AliasBusy` if another trainer took the
        alias, `VersionNotWritten` for a full disk, `VersionPending` while another version is undecided, `RankLost` if
        one of several processes ended: this one must end too, and be started again.
        """
        with self._keeper.keeping(claims):
            try:
                return await self._on_device(self._train(claims, campaign_id))
            except BaseException:  # cancellation included: no group may stay claimed
                await asyncio.shield(give_back_claims(self._store, claims))
                raise

    async def fit_once(self, source: FitSource[R]) -> FitReport[R]:
        """Train on demonstrations or on pairs alone and publish the new version; its parent is the version live now.

        Raises as `train_once`, and `DemonstrationsInvalid` or `ConditionInvalid` for a source that cannot be used.
        """
        return await self._on_device(self._fit(source))

    async def _on_device(self, work: Coroutine[Any, Any, T]) -> T:
        """Do the work of a step while the trainer has the device, once an engine has accepted the trial's adapter."""
        try:
            assert self._trial is not None
            await self._trial.require_accepted()
            async with self._gpu.using(self._enter_gpu, self._leave_gpu):
                return await work
        except (LeaseLost, StepInterrupted) as e:
            if self._keeper.lost.is_set():
                raise self._taken_over() from e
            if isinstance(e, LeaseLost):
                raise StepFailed(f"a lease expired during the step: {e}") from e
            raise
        finally:
            work.close()  # it may not have begun

    async def _train(
        self,
        claims: Sequence[GroupClaim],
        campaign_id: str | None,
        excluded: Sequence[GroupRows] = (),
        unasked: Collection[str] = (),
    ) -> StepReport:
        """Train a step on the claims. `excluded`: the step's groups that were excluded when it began before."""
        seconds = PhaseSeconds()
        await self._drift.draw(self._keeper.lease)
        parent = await self._live()
        steps_done = await steps.count_schedule_steps(self._store, self._alias.id, campaign_id)
        if (ended := self._settings.explain_ended_schedule(steps_done)) is not None:
            await give_back_claims(self._store, claims)
            return StepReport(None, None, ended)
        refused = await refusals.list_refused_groups(self._store, self._alias.id)
        await refusals.exclude_uncheckable_groups(self._store, refused, parent.id)
        scored = await self._reader.load_scores(claims, seconds)
        parts = [part for score in scored.values() for part in score.parts]
        text = TextCheck(self._decode, *self._engine.parsers) if self._decode is not None else None
        read = await self._reader.read(scored, parent, seconds, text)
        found = read.rows
        found = found if self._settings.uses_rewards else [group.rewards_alone() for group in found]
        trainable = await exclude_untrainable(self._store, self._keeper, found, claims)
        share = self._settings.follow_up_share if campaign_id is None else 1.0
        of_follow_ups = [id_ for id_, score in scored.items() if score.follow_up]
        limited = await limit_follow_ups(self._store, self._keeper, trainable, claims, of_follow_ups, share)
        teaching = limited.groups
        groups = [*excluded, *(group for group in found if group.group_id not in limited.waiting)]
        unasked = {*unasked, *scores.unasked_trajectories(parts)}
        # A campaign has such figures of its whole round.
        health = read.figures if campaign_id is None else {}
        metrics = {**summary.reward_metrics(groups, unasked), **limited.metrics, **health}
        left, masked = summary.excluded_counts(groups), summary.masked_counts(teaching)
        if not teaching:
            reason = "no group can be trained on" + (f": {left}" if left else "")
            return StepReport(None, None, reason, metrics, 0, left, masked, seconds.by_phase)
        metrics |= summary.part_metrics(teaching, parts)
        metrics["text_contradictions"] = float(len(text.contradictions)) if text is not None else 0.0
        taught = {group.group_id for group in teaching}
        used = [claim for claim in claims if claim.group_id in taught]
        attempt = RunningStep(parent, teaching, used, metrics, seconds, learning_rate(self._settings, steps_done))
        await self._join_data(attempt)
        with seconds.phase("read"):
            attempt.lessons = await self._lessons.join(parent.id, teaching, text)
        if not (self._settings.uses_rewards or attempt.lessons.trajectories):
            empty = [replace(group, code=UntrainedChoice.NO_LESSON) for group in teaching]
            await exclude_untrainable(self._store, self._keeper, empty, claims)
            return StepReport(None, None, "no turn has a lesson to train on", metrics, seconds=seconds.by_phase)
        metrics |= attempt.lessons.metrics
        await self._load_drift(attempt)
        try:
            made = await self._runner.run(attempt, campaign_id)
        except RowTooLong as e:
            log.warning("%s", e)
            self._row_notice = str(e)
            without = [group for group in groups if group.code is not None]
            return await self._train(used, campaign_id, without, unasked)  # its rows are read again, without that one
        if isinstance(made, StepEndedEarly):
            left = summary.add_counts(left, made.left_out)
            report = StepReport(None, None, made.reason, attempt.metrics, 0, left, {}, seconds.by_phase, code=made.code)
        else:
            step, version = made
            of_step = {group.group_id: group for group in attempt.groups}  # without the turns that it masked
            left = summary.excluded_counts([of_step.get(group.group_id, group) for group in groups])
            masked = summary.masked_counts(attempt.groups)
            trained = sum(len(group.trained) for group in attempt.groups)
            trained = trained if self._settings.uses_rewards else len(attempt.lessons.trajectories)
            report = StepReport(step, version, None, attempt.metrics, trained, left, masked, seconds.by_phase)
            fresh, by_probe = int(attempt.metrics["fresh_tokens"]), attempt.parent_gap is not None
            report = replace(report, note=engine_gap.explain_unchecked(fresh, by_probe=by_probe) or "")
        notices = [one for one in (self._runner.notice, self._row_notice, attempt.lessons.notice) if one]
        self._runner.notice = self._row_notice = None
        return replace(report, notice=" ".join(notices) or None)

    async def _join_data(self, attempt: RunningStep) -> None:
        """Read what joins a step on groups."""
        if not self._joiner.is_needed:
            return
        with attempt.seconds.phase("read"):
            most = count_own(attempt.groups)
            attempt.joined = await self._joiner.read(await self._imitate_basis(), attempt.parent.id, most)
        attempt.metrics |= attempt.joined.metrics

    async def _load_drift(self, attempt: RunningStep) -> None:
        """Read what the step's result is compared with."""
        with attempt.seconds.phase("read"):
            attempt.drift = await self._drift.load(attempt.parent)
        attempt.metrics |= attempt.drift.size if attempt.drift is not None else {}

    async def _imitate_basis(self) -> ImitateBasis:
        text = TextCheck(self._decode, *self._engine.parsers) if self._decode is not None else None
        room = self._settings.token_budget
        return await self._torch.run(self._context.basis, self._fingerprint, room, text, self._core.fits_alone)

    async def _fit(self, source: FitSource[R]) -> FitReport[R]:
        seconds = PhaseSeconds()
        await self._drift.draw(self._keeper.lease)
        parent = await self._live()
        with seconds.phase("read"):
            loaded = await source.load(self._context, await self._imitate_basis(), self._settings, parent.id)
        read, job = loaded.read, loaded.job
        if not job.plan.trained:
            return FitReport(read, None, loaded.why_nothing)
        attempt = RunningStep(parent, (), (), dict(loaded.metrics), seconds, job.settings.lr, fit=job)
        await self._load_drift(attempt)
        try:
            made = await self._runner.run(attempt, None)
        except RowTooLong as e:
            log.warning("%s", e)
            return await self._fit(source)  # its rows are made again, without that one
        notice, self._runner.notice = self._runner.notice, None
        if isinstance(made, StepEndedEarly):
            return FitReport(read, None, made.reason, notice=notice)
        result = attempt.trained.fit if attempt.trained is not None else None
        assert result is not None  # the step was one of a fit
        return FitReport(read, made[1], None, result.epochs, result.best, result.held_out_before, notice)

    def _taken_over(self) -> AliasBusy:
        return AliasBusy(
            f"the alias {self._alias.name!r} was taken over by another trainer, or its lease could not be renewed: "
            "open it again"
        )

    async def _live(self) -> VersionView:
        if self._keeper.lost.is_set():
            raise self._taken_over()
        alias = await aliases.get_alias(self._project, self._alias.name)
        require_same_base(alias, self._fingerprint, self._settings)
        if alias.live_version_id is None:
            raise TrainerError(f"the alias {alias.name!r} has no live version to train from")
        return await versions.get_version(self._store, alias.live_version_id)

    def _stopped(self) -> bool:
        return self._torch.stopped() or self._keeper.lost.is_set() or self._gpu.is_lost()
