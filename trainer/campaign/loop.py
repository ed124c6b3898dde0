"""The campaign loop: sample, judge, train, swap, and repeat until a stop rule applies.

Owns: the order of a campaign's steps, when it validates, how it continues after a rejected version, and the events that
let a killed campaign resume. Refuses: how each part is done (`trainer.campaign.sampling`,
`trainer.campaign.measurement`, `trainer.step`, the proxy).

A step is resumed from what the store holds: finished attempts are not repeated, scored or trained groups are not
touched, and a step is complete when the campaign's ledger says so.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from recorder.queue import campaigns, claims, entered_steps
from recorder.queue.campaign_requests import ASKED_BY
from recorder.queue.campaigns import CampaignView, GroupStatus, Scenario
from recorder.queue.entered_steps import CAMPAIGN_ENDED
from recorder.queue.judging.scores import StoredScore
from recorder.queue.training import steps
from recorder.registry import versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import CampaignState, Purpose, VersionState
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.views.campaigns.events import (
    BEGUN,
    CHANGE,
    ENDED,
    STEP,
    CampaignEnded,
    CampaignMeasure,
    SettingChanged,
    StepDone,
)
from recorder.views.campaigns.history import CampaignHistory, read_history
from trainer.campaign.draw import ScenarioDraw
from trainer.campaign.lag import LagRule, main_version, stale_share
from trainer.campaign.measurement import RoundMeasure, RoundMeasurer, scenario_figures
from trainer.campaign.pipeline import StepPipeline, open_pipeline
from trainer.campaign.record import summarize_campaign, write_event
from trainer.campaign.sampling import AttemptRound, RoundSampler, RoundTally, is_decided, refuse_broken_agent
from trainer.campaign.service import AliasService
from trainer.campaign.stop_evaluation import (
    StopEvaluator,
    changed_recipe,
    changed_settings,
    how_to_resume,
)
from trainer.campaign.stop_rules import StopCode, StopDecision
from trainer.campaign.validation import CampaignValidator
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError, StepFailed
from trainer.measures import judges
from trainer.measures.arms import Arms
from trainer.measures.round_figures import round_figures
from trainer.progress import PHASES, Notice, PhaseStatus, Progress
from trainer.settings import TrainerSettings
from trainer.step import engine_trial
from trainer.step.summary import StepReport, StepTrainer, add_counts, load_earlier_report, merge_reports


@dataclass(frozen=True, slots=True)
class VersionComparison:
    """How a campaign's versions are compared. `averaged`: the mean of its rewards is a measure."""

    measure: CampaignMeasure
    averaged: bool
    arms: Arms
    recipe: Mapping[str, Any]  # the judge recipe, to be compared with the earlier one


class Campaign:
    """One campaign, from its current state to its end."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        alias: AliasView,
        settings: CampaignSettings,
        compared: VersionComparison,
        *,
        sampler: RoundSampler,
        measurer: RoundMeasurer,
        trainer: Awaitable[StepTrainer],
        training: TrainerSettings,
        progress: Progress,
        still_ours: Callable[[], None],
        leave_report: Callable[[CampaignView], Awaitable[None]],
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._alias = alias
        self._settings = settings
        self._sampler = sampler
        self._measurer = measurer
        # Loading torch and the base takes longer than starting to sample: services and agents start meanwhile.
        self._trainer_to_be = asyncio.ensure_future(trainer)
        self._training = training
        self._progress = progress
        self._still_ours = still_ours  # raises CampaignBusy if the campaign's lease was lost
        self._leave_report = leave_report
        self._seconds: dict[str, float] = {}
        self._pipeline: StepPipeline | None = None  # where attempts are sampled ahead of their step
        self._compared = compared
        self._service = AliasService(store, alias, campaign.name, settings.live_timeout_s, progress)
        self._validator = CampaignValidator(
            store,
            campaign,
            settings,
            arms=compared.arms,
            measure=compared.measure,
            averaged=compared.averaged,
            sampler=sampler,
            measurer=measurer,
            progress=progress,
        )

    async def run(self) -> CampaignEnded:
        """Run to the end and mark the campaign finished.

        Raises `CampaignError`, and any other trainer error that makes it impossible to continue.
        """
        try:
            return await self._run()
        finally:
            if self._pipeline is not None:
                await self._pipeline.close()

    async def _run(self) -> CampaignEnded:
        began = time.monotonic()
        history = await read_history(self._store, self._campaign)
        train, val, test = await self._scenarios()
        evaluator = StopEvaluator(
            self._store,
            self._campaign,
            self._settings,
            self._compared.measure,
            train,
            self._scores,
            self._progress,
            self._schedule_ended,
        )
        await self._begin(history, evaluator)
        await self._until_accepted()
        s = self._settings
        draw = ScenarioDraw(self._store, self._campaign.id, s, train)
        self._pipeline = await open_pipeline(
            self._store,
            self._campaign,
            LagRule(s.max_lag, evaluator.last_step, s.val_every if val else None),
            s.group_size,
            train,
            draw.scenarios,
            done=history.steps_done,
            sampler=self._sampler,
            progress=self._progress,
        )
        await self._validate(history, val, last=False)
        while (stop := await evaluator.stop(history)) is None:
            held = bool(history.steps) and history.steps[-1].failed
            done = await self._step(history.steps_done + 1, draw, held=held)
            await self._tell(STEP, done)
            history.steps.append(done)
            self._refuse_hopeless(history)
            await self._validate(history, val, last=False)
        if stop.code is StopCode.PAUSED:
            return await self._pause(history, stop, began)
        return await self._end(history, stop, val, test, began)

    async def _begin(self, history: CampaignHistory, evaluator: StopEvaluator) -> None:
        """Record how this process starts the campaign, and which settings changed."""
        step, settings = history.steps_done, self._settings.model_dump(mode="json")
        stored = CampaignSettings.model_validate(self._campaign.settings).model_dump(mode="json")
        recipe = dict(self._compared.recipe)
        changes = changed_settings(step, stored, settings)
        if history.begun:
            changes += changed_recipe(step, history.begun[-1].recipe, recipe)
        for change in changes:
            if change not in history.changes:  # an earlier process was killed before it stored the new settings
                history.changes.append(change)
                await self._tell(CHANGE, change)
        await campaigns.set_settings(self._store, self._campaign.id, settings)
        paused = self._campaign.reason == StopCode.PAUSED  # before this process
        begun = evaluator.begun(step, recipe, paused=paused)
        await write_event(self._store, self._campaign, BEGUN, begun)
        history.begun.append(begun)

    async def _scenarios(self) -> tuple[list[Scenario], list[Scenario], list[Scenario]]:
        id_ = self._campaign.id
        return (
            await campaigns.list_scenarios(self._store, id_, "train"),
            await campaigns.list_scenarios(self._store, id_, "val"),
            await campaigns.list_scenarios(self._store, id_, "test"),
        )

    async def _end(
        self,
        history: CampaignHistory,
        stop: StopDecision,
        val: Sequence[Scenario],
        test: Sequence[Scenario],
        began: float,
    ) -> CampaignEnded:
        """Measure the live version, leave the best version in service, test it, and mark the campaign finished."""
        unused = await self._pipeline.end() if self._pipeline is not None else 0
        await self._validate(history, val, last=True)
        if self._settings.serve == "best":
            await self._serve_best(history, f"the campaign ended: {stop.code}")
        live = await self._service.live()
        if test:
            await self._validator.test(history, test, live)
        return await self._over(history, stop, live, CampaignState.FINISHED, began, unused)

    async def _pause(self, history: CampaignHistory, stop: StopDecision, began: float) -> CampaignEnded:
        """Leave the best validated version in service, and say how to resume."""
        if self._pipeline is not None:
            await self._pipeline.pause()
        live = await self._serve_best(history, f"the campaign was paused: {stop.detail}")
        how = how_to_resume(self._campaign.name, live.name, history)
        if stop.detail.startswith(ASKED_BY):
            again = f"`hone train --resume {self._campaign.name}` continues it"
            how = f"paused, {stop.detail}: {live.name} is in service, and nothing is lost. {again}."
        self._progress.tell(Notice(how, warning=True))
        return await self._over(history, stop, live, CampaignState.STOPPED, began)

    async def _serve_best(self, history: CampaignHistory, why: str) -> VersionView:
        return await self._service.serve_best(history.validations, self._compared.measure, why)

    async def _over(
        self,
        history: CampaignHistory,
        stop: StopDecision,
        live: VersionView,
        state: CampaignState,
        began: float,
        unused: int = 0,
    ) -> CampaignEnded:
        """`unused`: attempts that began ahead of a step that never came."""
        ended = summarize_campaign(self._campaign.name, stop, history, live.name, time.monotonic() - began)
        if unused:
            ended = replace(ended, left_out=add_counts(ended.left_out, {CAMPAIGN_ENDED: unused}))
        await write_event(self._store, self._campaign, ENDED, ended)
        # Before the campaign is marked: a finished campaign is never resumed, so its files must be complete.
        campaign = await campaigns.get_campaign(self._store, self._campaign.id)
        await self._leave_report(replace(campaign, state=state, reason=stop.code, ended_at=time.time()))
        await campaigns.finish_campaign(self._store, campaign.id, state, stop.code)
        return ended

    async def _scores(self, step: int) -> Collection[StoredScore]:
        """The scores of a step's attempts."""
        groups = await campaigns.group_states(self._store, self._campaign.id, step, Purpose.TRAIN)
        return (await self._measurer.load(groups)).scores.values()

    async def _schedule_ended(self) -> str | None:
        """Why no step of this campaign may begin from the live version, if its schedule has ended."""
        if self._training.schedule_end is None:
            return None
        done = await steps.count_schedule_steps(self._store, self._alias.id, self._campaign.id)
        return self._training.explain_ended_schedule(done)

    def _refuse_hopeless(self, history: CampaignHistory) -> None:
        """Give up when the newest steps all failed."""
        last = history.steps[-self._settings.max_rejected :]
        if len(last) == self._settings.max_rejected and all(step.failed for step in last):
            raise CampaignError(
                f"campaign {self._campaign.name!r} gave up after {len(last)} failed steps in a row "
                f"(campaign.max_rejected); the last: {last[-1].note}"
            )

    # --- a step

    async def _step(self, step: int, draw: ScenarioDraw, *, held: bool) -> StepDone:
        """`held`: the step before it failed, so that nothing is sampled ahead of this one's end."""
        self._seconds = {}
        self._still_ours()
        self._raise_early()
        await self._until_decided(step)
        before = await self._service.live()
        if self._pipeline is not None:
            with self._timed("sampling"):
                of, tally = await self._pipeline.fill(step, held=held)
            groups = await self._scored(of, tally)
        else:
            tally, groups = await self._attempt(step, await draw.scenarios(step))
            # Where the judge is too late already, more groups would make it later.
            while all(map(is_decided, groups)) and (refilled := await draw.refill(step)) is not None:
                tally, groups = await self._attempt(step, refilled)
        measured = await self._measurer.measure(groups)
        loaded = await self._measurer.load(groups)
        figures = round_figures(loaded.views, loaded.scores, measured.succeeded)
        figures |= await judges.judge_agreement(self._store, self._campaign.id)
        scenarios_now = scenario_figures(groups, loaded, measured.succeeded, averaged=self._compared.averaged)
        earlier = await load_earlier_report(self._store, self._alias.id, self._campaign.id, groups)
        if earlier and earlier.step:  # the live version may be the one that it made
            before = await versions.get_version(self._store, earlier.step.parent_version_id)
        if self._pipeline is not None:
            sampled_by = [group.version_id for group in groups]
            figures["stale_groups"] = stale_share(sampled_by, before.id)
            main = main_version(sampled_by)
            before = await versions.get_version(self._store, main) if main is not None else before
        with self._timed("training"):
            self._progress.tell(PhaseStatus(step, "training"))
            now, failure = await self._train(step, groups)
        report = merge_reports(earlier, now)
        with self._timed("swapping"):
            failure = (await self._swap(step, report.version) if report and report.version else None) or failure
        if failure is not None and self._pipeline is not None:
            self._pipeline.hold()
        done = await self._done(step, before, tally, measured, groups, report, failure, figures)
        by = CampaignMeasure.REWARD if self._compared.averaged else CampaignMeasure.SUCCESS
        return replace(done, scenarios=scenarios_now, scenario_measure=by)

    async def _attempt(self, step: int, scenarios: Sequence[Scenario]) -> tuple[RoundTally, list[GroupStatus]]:
        """Attempt what is not attempted yet of a step's scenarios, and wait for the scores of all."""
        of = AttemptRound(step, Purpose.TRAIN, scenarios, range(self._settings.group_size))
        with self._timed("sampling"):
            tally = await self._sampler.sample(of)
        return tally, await self._scored(of, tally)

    async def _scored(self, of: AttemptRound, tally: RoundTally) -> list[GroupStatus]:
        """Wait for the scores of a round's groups. Raises `CampaignError` if every attempt failed."""
        refuse_broken_agent(of, tally)
        with self._timed("judging"):
            return await self._sampler.scored(of)

    async def _until_decided(self, step: int) -> None:
        """Wait for the decision on any earlier version: no step begins while one is undecided."""
        deadline = time.monotonic() + self._settings.live_timeout_s
        with self._store.watch.on(Topic.SERVICE) as news:
            while (waiting := await versions.find_pending_version(self._store, self._alias.id)) is not None:
                self._progress.tell(PhaseStatus(step, "swapping", detail=f"{waiting.name} is still undecided"))
                if time.monotonic() >= deadline:
                    raise self._not_in_service(waiting)
                await news.wait(deadline - time.monotonic())

    async def _train(self, step: int, groups: Sequence[GroupStatus]) -> tuple[StepReport | None, str | None]:
        """Train on the scored groups; return the report, or why there is none. A failed step is retried with the rest.

        Groups of earlier steps that were rescored, because their version was rejected, are trained on too; groups that
        were sampled ahead of a later step are not.
        """
        trainer = await self._trainer_to_be
        only = None
        if self._pipeline is not None:
            only = await entered_steps.list_taken_ids(self._store, self._campaign.id, step)
        failure: str | None = None
        for _ in range(self._training.max_tries):
            claimed = await claims.claim_for_training(
                self._store,
                self._alias.id,
                trainer.owner,
                self._training.lease_s,
                limit=2 * len(groups),
                campaign_id=self._campaign.id,
                group_ids=only,
            )
            if not claimed:
                return None, failure
            try:
                report = await trainer.train_once(claimed, campaign_id=self._campaign.id)
            except StepFailed as e:
                failure = str(e)
                self._progress.tell(Notice(f"training failed: {e}", warning=True))
                continue
            if report.notice is not None:
                self._progress.tell(Notice(report.notice, warning=True))
            return report, report.reason if report.is_fault else None
        return None, failure

    async def _swap(self, step: int, version: VersionView) -> str | None:
        """Wait until a version is in service, or return why it will not be."""
        deadline = time.monotonic() + self._settings.live_timeout_s
        self._progress.tell(PhaseStatus(step, "swapping", detail=""))
        with self._store.watch.on(Topic.SERVICE) as news:
            while True:
                await news.wait(deadline - time.monotonic())
                version = await versions.get_version(self._store, version.id)
                if version.state in (VersionState.LIVE, VersionState.RETIRED):  # retired: another is live already
                    await self._service.seen()
                    return None
                if version.state in (VersionState.REJECTED, VersionState.ABANDONED):
                    live = await self._service.live()
                    text = f"{version.name} was {version.state}: {version.reason}"
                    self._progress.tell(Notice(f"{text}; continuing from {live.name}", warning=True))
                    return text
                if time.monotonic() >= deadline:
                    raise self._not_in_service(version)

    def _not_in_service(self, version: VersionView) -> CampaignError:
        return CampaignError(
            f"{version.name} is {version.state} and was not in service after {self._settings.live_timeout_s:g} s. "
            "Check that the proxy runs (`hone status`) and that versions are promoted automatically "
            f"(aliases.{self._alias.name}.promote, .canary_share). Then resume with the same command."
        )

    async def _done(
        self,
        step: int,
        before: VersionView,
        tally: RoundTally,
        measured: RoundMeasure,
        groups: Sequence[GroupStatus],
        report: StepReport | None,
        failure: str | None,
        figures: Mapping[str, float],
    ) -> StepDone:
        metrics = {**figures, **(report.metrics if report else {})}
        undecided = await self._sampler.why_undecided(groups)
        if undecided is None and all(group.current_score_id is None for group in groups):
            failure = failure or "no group was scored"
        return StepDone(
            step=step,
            version=(await self._service.live()).name,
            sampled_by=before.name,
            success=measured.success,
            reward=measured.reward,
            kl=metrics.get("kl_engine"),
            kl_base=metrics.get("kl_base"),
            tokens_per_s=metrics.get("tokens_per_s"),
            attempts=tally.total,
            errored=sum(tally.failed.values()),
            trained=report.trained if report and failure is None else 0,
            left_out=dict(report.left_out) if report else {},
            seconds=dict(self._seconds),
            note=failure or undecided or ((report.reason or report.note) if report else ""),
            failed=failure is not None,
            metrics=metrics,
            measured_attempts=measured.attempts,
            agent_failures=measured.agent_failures,
            undecided=undecided or "",
        )

    # --- validation

    async def _validate(self, history: CampaignHistory, tasks: Sequence[Scenario], *, last: bool) -> None:
        """Measure the live version when due: before the first step, every `val_every` steps, after the last."""
        if not tasks:
            return
        step, every = history.steps_done, self._settings.val_every
        due = last or step == 0 or (every is not None and step % every == 0)
        if due and not any(v.step == step for v in history.validations):
            self._raise_early()
            await self._validator.validate(history, tasks, await self._service.live())
        if due:
            await self._validator.baselines(history, tasks, await self._service.live())

    # --- helpers

    async def _until_accepted(self) -> None:
        """Wait until the trainer is open and the engine took an adapter of its settings, for at most `WAIT_S`.

        Settings that cannot work fail here, before anything is sampled.
        """
        began = time.monotonic()
        await asyncio.wait({self._trainer_to_be}, timeout=engine_trial.WAIT_S)
        self._raise_early()
        if self._trainer_to_be.done():
            left_s = max(0.0, engine_trial.WAIT_S - (time.monotonic() - began))
            notice = await engine_trial.require_accepted(self._store, self._alias, left_s)
        else:
            notice = f"the trainer is not open after {engine_trial.WAIT_S:.0f} s: sampling begins without it"
        if notice is not None:
            self._progress.tell(Notice(notice, warning=True))

    def _raise_early(self) -> None:
        """Raise errors of the trainer's start before attempts are wasted."""
        if self._trainer_to_be.done():
            self._trainer_to_be.result()

    async def _tell(self, code: str, event: StepDone | SettingChanged) -> None:
        await write_event(self._store, self._campaign, code, event)
        self._progress.tell(event)

    @contextmanager
    def _timed(self, phase: str) -> Iterator[None]:
        assert phase in PHASES
        began = time.monotonic()
        try:
            yield
        finally:
            self._seconds[phase] = self._seconds.get(phase, 0.0) + time.monotonic() - began
