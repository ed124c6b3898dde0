"""The trainer of one alias: scored groups in, a published version out.

Owns: the alias's lease, the order of a step's phases, and the state of its groups after a failed step. Refuses: when to
train (campaign and learner decide) and serving what it publishes (the proxy does).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping, Sequence
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path
from typing import Final

from recorder.errors import Conflict, LeaseLost, RecorderError, StoreUnavailable, VersionPending
from recorder.queue import leases
from recorder.queue.claims import GroupClaim, return_claim, return_claim_in
from recorder.queue.groups.same_request import counts_in_own_group
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart, part_rewards
from recorder.queue.leases import holder_name
from recorder.queue.training import pass_budgets, refusals, steps
from recorder.queue.training.refusals import RefusedGroup
from recorder.queue.training.steps import StepView
from recorder.registry import aliases, versions
from recorder.registry.aliases import AliasView
from recorder.registry.fingerprint import base_fingerprint
from recorder.registry.versions import VersionView, alias_slug
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.views.trajectories import transcripts
from trainer.artifacts import adapters, durable_folders
from trainer.artifacts.adapters import AdapterOrigin, PublishedAdapter
from trainer.batch.recorded_text import NO_PARSERS, Parsers, TextCheck
from trainer.batch.rows import RowBasis
from trainer.errors import (
    AliasBusy,
    BaseMismatch,
    MemoryFull,
    RowTooLong,
    StepFailed,
    StepInterrupted,
    TrainerError,
    VersionNotWritten,
)
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import GroupRows, UntrainedChoice, group_rows
from trainer.policy.base_model import dtype_name, explain_target, load_decoder, read_config, resolve_base
from trainer.policy.optim import learning_rate
from trainer.settings import TrainerSettings
from trainer.step import baselines, engine_gap, engine_trial, summary
from trainer.step.core import (
    PhaseSeconds,
    StartVersion,
    TorchThread,
    TrainedStep,
    TrainerCore,
    TrainerFolders,
    WrittenStep,
    remove_unneeded,
)
from trainer.step.engine_gap import TokenGaps, gap_bound, quantized_precision, text_gap
from trainer.step.engine_trial import trial_running
from trainer.step.gpu_share import GpuShare
from trainer.step.lease_renewer import LeaseRenewer
from trainer.step.summary import STEP_FAILED, StepReport

log = logging.getLogger(__name__)

__all__ = ["OPTIMIZER_FRESH", "STEP_FAILED", "AliasTrainer", "StepReport"]

OPTIMIZER_FRESH = "optimizer_fresh"  # the ledger's code of a version whose optimizer lost its state


@dataclass(slots=True)
class _RunningStep:
    """A step in progress: its inputs, and its results so far."""

    parent: VersionView
    groups: Sequence[GroupRows]
    claims: Sequence[GroupClaim]
    metrics: dict[str, float]
    seconds: PhaseSeconds
    rate: float  # the learning rate
    at_parent: bool = False  # the parent is in memory: the groups may have caused any later failure
    version_id: str | None = None
    trained: TrainedStep | None = None
    written: WrittenStep | None = None


@dataclass(frozen=True, slots=True)
class StepEndedEarly:
    """A step that was trained and makes no version: why, and its excluded trajectories by ledger code."""

    code: str
    reason: str
    left_out: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What is known of the engine whose answers are trained on.

    `parsers`: of tool calls and reasoning, to compare answers with their ids (`trainer.batch.recorded_text`).
    `args`: vLLM's arguments, which tell whether it quantises (`trainer.step.engine_gap`). `share`: `engine.share`.
    """

    parsers: Parsers = NO_PARSERS
    args: Sequence[str] = ()
    share: str = "split"


NO_FACTS: Final = EngineFacts()


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
        self._folders = TrainerFolders.of(data.resolve())  # the engine finds a version by its path, from anywhere
        self._torch = TorchThread()
        self._resources = AsyncExitStack()
        self._trial = AsyncExitStack()
        self._has_waited = False  # for an answer to the trial, in vain
        self._fingerprint: str
        self._keeper: LeaseRenewer
        self._gpu: GpuShare
        self._core: TrainerCore
        self._pass_budget: int  # as stored
        self._notice: str | None = None  # for the next report
        self._target_note: str | None = None
        self._row_notice: str | None = None  # the same, of the last row that did not fit alone
        self.gap_bound: float  # nats a token
        self._copy_gap: float | None = None  # the same, of a quantised copy and the base after the fixed text

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
        if self._settings.base is None:
            raise TrainerError("no base model is known: set trainer.base (or engine.base) to its folder or hub id")
        base = await asyncio.to_thread(resolve_base, self._settings.base)
        await self._check_base(base)
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
        for folder in (self._folders.adapters, self._folders.checkpoints):
            durable_folders.remove_unfinished(folder, alias_slug(self._alias.name))
        adapters.remove_trials(self._folders.adapters, self._alias.name)
        await self._remove_unneeded()
        precision = quantized_precision(self._engine.args, await asyncio.to_thread(read_config, base))
        settings = self._settings
        self.gap_bound = gap_bound(dtype_name(settings), precision, settings.max_logprob_gap, settings.quantize)
        refused = await refusals.list_refused_groups(self._store, self._alias.id)
        await refusals.allow_groups(self._store, self._alias.project_id, refused, self.gap_bound)
        async with self._gpu.using(self._enter_gpu, self._leave_gpu):  # the base is checked on the device
            self._core = await self._torch.run(TrainerCore, base, self._settings, self._folders)
        self._target_note = await self._torch.run(explain_target, base, self._settings)
        self._measure_copy()
        self._decode = await asyncio.to_thread(load_decoder, base)
        self._core.pass_budget = self._pass_budget = await pass_budgets.load_pass_budget(
            self._project, self._fingerprint, self._core.device_name, self._settings.token_budget
        )
        self._has_folder = self._folders.adapters.exists()
        await self._remove_trial((await self._publish_trial()).path)  # settings that cannot work fail before sampling
        trial = trial_running(self._project, self._alias, self._publish_trial, self._remove_trial)
        await self._trial.enter_async_context(trial)

    async def _enter_gpu(self) -> None:
        if hasattr(self, "_core"):  # before that, it is made there
            await self._torch.run(self._core.enter_gpu)

    async def _leave_gpu(self) -> bool:
        if not hasattr(self, "_core"):
            return False  # it failed while it was made: what it holds is unknown
        await self._torch.run(self._core.leave_gpu)
        return True

    def _measure_copy(self) -> None:
        """Say how far a quantised copy is from the base after the fixed text, before anything is sampled."""
        copied = self._core.policy.copied
        if copied is None:
            return
        self._copy_gap, allowed = text_gap(copied.base, copied.copy, self.gap_bound)
        note = engine_gap.explain_copy(self._copy_gap, allowed)
        self._target_note = f"{self._target_note} {note}"
        if self._copy_gap > allowed:
            self._notice = note

    async def _publish_trial(self) -> PublishedAdapter:
        """Publish an adapter as a step would."""
        alias = self._alias
        origin = AdapterOrigin(alias.name, None, f"{alias.name}@0", alias.base_model, self._fingerprint)
        return await self._torch.run(self._core.publish_trial, origin)

    async def _remove_trial(self, path: Path) -> None:
        await asyncio.to_thread(durable_folders.remove_folder, path)
        if not self._has_folder:
            await asyncio.to_thread(durable_folders.remove_empty, self._folders.adapters)

    async def _remove_unneeded(self) -> None:
        await remove_unneeded(self._store, self._alias, self._folders, self._settings.keep_versions)

    async def _check_base(self, base: Path) -> None:
        settings = self._settings
        self._fingerprint = await asyncio.to_thread(
            base_fingerprint, base, dtype_name(settings), settings.max_model_len
        )
        if (
            self._alias.base_fingerprint is not None
        ):  # otherwise the engine still starts, and the first step checks again
            self._require_same_base(self._alias)

    def _require_same_base(self, alias: AliasView) -> None:
        if alias.base_fingerprint is None:
            raise BaseMismatch(
                f"the base of the alias {alias.name!r} is not recorded yet, so none of its tokens may be "
                "trained on: set engine.base to the engine's model and restart the proxy."
            )
        if alias.base_fingerprint != self._fingerprint:
            raise BaseMismatch(
                f"the alias {alias.name!r} is served by another base than {self._settings.base} in "
                f"{dtype_name(self._settings)}: weights, dtype, tokenizer, chat template, the factors of "
                "longrope or Llama 4's scale of late queries differ. Set trainer.base, trainer.dtype and "
                "trainer.max_model_len to the engine's values."
            )

    async def __aenter__(self) -> AliasTrainer:
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.close()

    async def close(self) -> None:
        """Stop a running step between two packs, end the torch thread, release the lease."""
        await self._trial.aclose()
        await self._torch.close()
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
        alias, `VersionNotWritten` for a full disk, `VersionPending` while another version is undecided.
        """
        with self._keeper.keeping(claims):
            try:
                await self._require_accepted()
                async with self._gpu.using(self._enter_gpu, self._leave_gpu):
                    return await self._train(claims, campaign_id)
            except BaseException as e:  # cancellation included: no group may stay claimed
                await asyncio.shield(self._give_back(claims))
                if isinstance(e, LeaseLost | StepInterrupted) and self._keeper.lost.is_set():
                    raise self._taken_over() from e
                if isinstance(e, LeaseLost):
                    raise StepFailed(f"a lease expired during the step: {e}") from e
                raise

    async def _require_accepted(self) -> None:
        """Wait for the engine's answer to the trial. Raises `UnsupportedModel` if it refuses the adapter."""
        wait_s = 0.0 if self._has_waited else engine_trial.WAIT_S
        notice = await engine_trial.require_accepted(self._store, self._alias, wait_s)
        if notice is not None and not self._has_waited:
            self._has_waited = True
            log.warning("%s", notice)

    async def _train(
        self,
        claims: Sequence[GroupClaim],
        campaign_id: str | None,
        excluded: Sequence[GroupRows] = (),
        unasked: Collection[str] = (),
    ) -> StepReport:
        """Train a step on the claims. `excluded`: the step's groups that were excluded when it began before."""
        seconds = PhaseSeconds()
        parent = await self._live()
        steps_done = await steps.count_schedule_steps(self._store, self._alias.id, campaign_id)
        if (ended := self._settings.explain_ended_schedule(steps_done)) is not None:
            await self._give_back(claims)
            return StepReport(None, None, ended)
        refused = await refusals.list_refused_groups(self._store, self._alias.id)
        await refusals.exclude_uncheckable_groups(self._store, refused, parent.id)
        parts = await self._parts(claims, seconds)
        text = TextCheck(self._decode, *self._engine.parsers) if self._decode is not None else None
        found = await self._read(parts, parent, seconds, text)
        teaching = await self._exclude(found, claims)
        groups = [*excluded, *found]
        unasked = {*unasked, *scores.unasked_trajectories(chain.from_iterable(parts.values()))}
        metrics = summary.reward_metrics(groups, unasked)
        left, masked = summary.excluded_counts(groups), summary.masked_counts(teaching)
        if not teaching:
            reason = "no group can be trained on" + (f": {left}" if left else "")
            return StepReport(None, None, reason, metrics, 0, left, masked, seconds.by_phase)
        metrics |= summary.part_metrics(teaching, chain.from_iterable(parts.values()))
        metrics["text_contradictions"] = float(len(text.contradictions)) if text is not None else 0.0
        taught = {group.group_id for group in teaching}
        used = [claim for claim in claims if claim.group_id in taught]
        attempt = _RunningStep(parent, teaching, used, metrics, seconds, learning_rate(self._settings, steps_done))
        try:
            made = await self._step(attempt, campaign_id)
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
            trained = sum(len(group.trained) for group in teaching)
            report = StepReport(step, version, None, attempt.metrics, trained, left, masked, seconds.by_phase)
            report = replace(report, note=engine_gap.explain_unchecked(int(attempt.metrics["fresh_tokens"])) or "")
        notices = [one for one in (self._notice, self._row_notice) if one is not None]
        self._notice = self._row_notice = None
        return replace(report, notice=" ".join(notices) or None)

    async def _give_back(self, claims: Sequence[GroupClaim]) -> None:
        """Give back the groups that are still claimed; if the store is unavailable, the leases expire."""
        for claim in claims:
            with suppress(LeaseLost, StoreUnavailable):
                await return_claim(self._store, claim)

    def _taken_over(self) -> AliasBusy:
        return AliasBusy(
            f"the alias {self._alias.name!r} was taken over by another trainer, or its lease could not be renewed: "
            "open it again"
        )

    async def _live(self) -> VersionView:
        if self._keeper.lost.is_set():
            raise self._taken_over()
        alias = await aliases.get_alias(self._project, self._alias.name)
        self._require_same_base(alias)
        if alias.live_version_id is None:
            raise TrainerError(f"the alias {alias.name!r} has no live version to train from")
        return await versions.get_version(self._store, alias.live_version_id)

    async def _parts(self, held: Sequence[GroupClaim], seconds: PhaseSeconds) -> dict[str, Sequence[NewPart]]:
        """The parts of the scores that the groups were claimed with, by group."""
        of_group: dict[str, str] = {}
        for claim in held:
            if claim.score_id is None:
                raise TrainerError(f"group {claim.group_id} was claimed for training but has no score")
            of_group[claim.group_id] = claim.score_id
        with seconds.phase("read"):
            found = await scores.get_scores(self._store, of_group.values())
        return {group_id: found[id_].parts if id_ in found else () for group_id, id_ in of_group.items()}

    async def _read(
        self,
        parts: Mapping[str, Sequence[NewPart]],
        parent: VersionView,
        seconds: PhaseSeconds,
        text: TextCheck | None,
    ) -> list[GroupRows]:
        ancestry = await versions.list_ancestors(self._store, parent.id)
        ids = list(parts)
        in_own = await counts_in_own_group(self._store, ids)
        settings = self._settings
        basis = RowBasis(
            self._fingerprint, ancestry, settings.max_age, settings.token_budget, in_own, text, self._core.fits_alone
        )
        with seconds.phase("read"):
            views = await transcripts.load_groups(self._store, ids, with_tokens=True)
            rewards = [part_rewards(parts[view.id]) for view in views]
            compared = await baselines.load_baselines(self._store, views)

        def all_rows() -> list[GroupRows]:
            rule = self._settings.advantage
            return [
                group_rows(view, given, basis, rule=rule, baselines=compared.get(view.id))
                for view, given in zip(views, rewards, strict=True)
            ]

        with seconds.phase("rows"):
            return await self._torch.run(all_rows)

    async def _exclude(self, groups: Sequence[GroupRows], held: Sequence[GroupClaim]) -> list[GroupRows]:
        by_id = {claim.group_id: claim for claim in held}
        for group in groups:
            if group.code is not None:
                claim = by_id[group.group_id]
                self._keeper.drop(claim)
                await scores.exclude_group(self._store, claim, group.code)
        return [group for group in groups if group.code is None]

    async def _step(
        self, attempt: _RunningStep, campaign_id: str | None
    ) -> tuple[StepView, VersionView] | StepEndedEarly:
        parent = attempt.parent
        step = await self._begin(attempt, campaign_id)
        try:
            attempt.trained = trained = await self._torch.run(self._compute, attempt)
            await self._remember_pass_budget()
            if refused := self._find_refused(attempt):
                return await self._end_refused(step, attempt, refused)
            if not trained.changed:
                return await self._end_unchanged(step, attempt)
            version = await versions.allocate_version(self._store, self._alias.id, parent.id, step_id=step.id)
            attempt.version_id = version.id
            origin = AdapterOrigin(
                self._alias.name, version.number, parent.name, self._alias.base_model, self._fingerprint
            )
            attempt.written = await self._torch.run(self._core.write, origin, trained, attempt.seconds)
            attempt.metrics |= {f"seconds.{phase}": spent for phase, spent in attempt.seconds.by_phase.items()}
            with attempt.seconds.phase("commit"):
                step = await self._finish(step, version, attempt)
        except BaseException as e:
            # After any error, cancellation included, no group may stay claimed and no version incomplete.
            await asyncio.shield(self._give_up(step, attempt, e))
            raise
        self._core.became(version.id)
        await self._remove_unneeded()
        return step, await versions.get_version(self._store, version.id)

    async def _begin(self, attempt: _RunningStep, campaign_id: str | None) -> StepView:
        lease, held = self._keeper.lease, attempt.claims
        try:
            return await steps.begin_step(
                self._store, self._alias.id, attempt.parent.id, campaign_id, groups=held, lease=lease
            )
        except (VersionPending, LeaseLost):
            raise
        except Conflict as e:  # the alias was moved while the groups were read
            raise StepFailed(str(e)) from e

    def _find_refused(self, attempt: _RunningStep) -> list[RefusedGroup]:
        """The groups of a step that is further from the engine than their precision explains; none if it is not."""
        assert attempt.trained is not None
        gaps, metrics = attempt.trained.gaps, attempt.metrics
        if metrics["fresh_tokens"] >= engine_gap.MIN_TOKENS:
            metrics["logprob_gap_bound"] = self.gap_bound
        by_group = {
            group.group_id: sum((TokenGaps(*gaps[id_]) for id_ in group.trained if id_ in gaps), TokenGaps())
            for group in attempt.groups
        }
        return [
            RefusedGroup(group_id, one.mean, self.gap_bound, one.tokens, attempt.parent.id)
            for group_id, one in engine_gap.find_refused(by_group, self.gap_bound).items()
        ]

    async def _end_refused(
        self, step: StepView, attempt: _RunningStep, refused: Sequence[RefusedGroup]
    ) -> StepEndedEarly:
        """Give back the groups, without a count, and mark those at fault: no step takes them again."""
        gap, tokens = attempt.metrics["logprob_gap"], int(attempt.metrics["fresh_tokens"])
        how_far = refusals.describe_gap(gap, self.gap_bound, tokens)
        copy = f" (it computes on a copy in {self._settings.quantize})" if self._settings.quantize else ""
        reason = f"{how_far}{copy}: no version was made, and the groups stay scored"
        rows = [refusals.refusal_row(step.project_id, one) for one in refused]
        for claim in attempt.claims:
            self._keeper.drop(claim)
        await steps.abandon_step(
            self._store,
            step.id,
            f"{refusals.LOGPROB_GAP}: {reason}",
            claims=attempt.claims,
            metrics=self._recorded(attempt),
            ledger_rows=rows,
        )
        return StepEndedEarly(refusals.LOGPROB_GAP, reason)

    async def _end_unchanged(self, step: StepView, attempt: _RunningStep) -> StepEndedEarly:
        """Exclude the groups of a step whose adapter equals its parent's: they would pass every test of a version."""
        reason = (
            f"the step changed nothing: at learning rate {attempt.rate:g} its adapter equals that of "
            f"{attempt.parent.name}. If steps go on like this, raise trainer.lr"
        )
        for claim in attempt.claims:
            self._keeper.drop(claim)
            await scores.exclude_group(self._store, claim, UntrainedChoice.NO_CHANGE, {"reason": reason})
        await steps.abandon_step(
            self._store, step.id, f"{UntrainedChoice.NO_CHANGE}: {reason}", metrics=self._recorded(attempt)
        )
        return StepEndedEarly(
            UntrainedChoice.NO_CHANGE, reason, summary.excluded_as(UntrainedChoice.NO_CHANGE, attempt.groups)
        )

    def _compute(self, attempt: _RunningStep) -> TrainedStep:
        """The blocking part, in the torch thread."""
        rows = weigh_groups(attempt.groups, self._settings)
        parent, seconds = attempt.parent, attempt.seconds
        with seconds.phase("load"):
            path = Path(parent.path) if parent.path else None
            self._core.go_to(StartVersion(parent.id, path, parent.manifest_sha256))
        attempt.at_parent = True
        trained = self._core.step(rows, attempt.rate, self._stopped, seconds)
        attempt.metrics |= {**trained.metrics, **summary.row_metrics(rows, seconds.by_phase["train"])}
        if self._copy_gap is not None:
            attempt.metrics["copy_gap"] = self._copy_gap
        return trained

    def _recorded(self, attempt: _RunningStep) -> dict[str, float | str]:
        """The metrics of a step as the store keeps them."""
        quantize = self._settings.quantize
        return {**attempt.metrics, **({steps.COMPUTED_ON: quantize} if quantize else {})}

    async def _remember_pass_budget(self) -> None:
        """Store the tokens of a pass that fitted, and report it once, if they are fewer than before."""
        before, now, limit = self._pass_budget, self._core.pass_budget, self._settings.token_budget
        if now == before:
            return
        device = self._core.device_name
        await pass_budgets.record_pass_budget(
            self._project, self._fingerprint, device, token_budget=limit, pass_budget=now
        )
        self._pass_budget = now
        self._notice = (
            f"passes of {before} tokens did not fit into the memory of {device}: a pass now has at most {now} tokens, "
            "and a longer trajectory has one of its own. Results are the same; steps take longer. This is remembered "
            f"until trainer.token_budget ({limit}) changes."
        )

    def _stopped(self) -> bool:
        return self._torch.stopped() or self._keeper.lost.is_set() or self._gpu.is_lost()

    async def _finish(self, step: StepView, version: VersionView, attempt: _RunningStep) -> StepView:
        assert attempt.written is not None
        published = attempt.written.published
        return await steps.finish_step(
            self._store,
            step.id,
            version_id=version.id,
            path=str(published.path),
            engine_name=published.engine_name,
            manifest_sha256=published.manifest_sha256,
            metrics=self._recorded(attempt),
            checkpoint_path=str(attempt.written.checkpoint),
            groups=attempt.claims,
            trained=[id_ for group in attempt.groups for id_ in group.trained],
            ledger_rows=_ledger_rows(attempt, version),
            compared=[one for group in attempt.groups for one in group.compared()],
            lease=self._keeper.lease,
        )

    async def _give_up(self, step: StepView, attempt: _RunningStep, error: BaseException) -> None:
        reason = f"{type(error).__name__}: {error}"
        try:
            await steps.abandon_step(self._store, step.id, reason)
        except Conflict:  # committed after all (only the reply was lost), or already abandoned by another process
            if attempt.version_id is not None and await steps.step_of_version(self._store, attempt.version_id):
                return
        if attempt.written is not None:
            attempt.written.remove()
        if not (attempt.at_parent and _may_be_the_groups_fault(error)):
            return
        for claim in attempt.claims:
            with suppress(LeaseLost):  # then another process has it
                await self._count_failure(claim, reason)

    async def _count_failure(self, claim: GroupClaim, reason: str) -> None:
        """Give a group back, or exclude it after too many failed steps."""
        earlier = [
            row for row in await ledger.object_entries(self._store, "group", claim.group_id) if row.code == STEP_FAILED
        ]
        if len(earlier) + 1 >= self._settings.max_tries:
            await scores.exclude_group(self._store, claim, STEP_FAILED, {"reason": reason})
            return
        row = LedgerRow(claim.project_id, "group", claim.group_id, STEP_FAILED, {"reason": reason})
        async with self._store.write() as conn:
            await ledger.write_rows(conn, [row])
            await return_claim_in(conn, claim)


def _ledger_rows(attempt: _RunningStep, version: VersionView) -> list[LedgerRow]:
    """The ledger rows of a step: the excluded trajectories, and an optimizer that lost its state."""
    rows = [row for group in attempt.groups for row in group.ledger_rows()]
    if attempt.metrics["optimizer_fresh"]:
        lost = {"parent": attempt.parent.name, "why": "the parent has no checkpoint: the optimizer started fresh"}
        rows.append(LedgerRow(version.project_id, "version", version.id, OPTIMIZER_FRESH, lost))
    return rows


def _may_be_the_groups_fault(error: BaseException) -> bool:
    """Whether the same groups may fail again; then their retries are limited."""
    innocent = RecorderError | StepInterrupted | MemoryFull | RowTooLong | VersionNotWritten
    return isinstance(error, Exception) and not isinstance(error, innocent)
