"""`hone learn`: live learning, one step whenever enough scored groups wait for an alias.

Owns: a trainer, a learner and an examiner for each alias, excluding groups that are too old, reading the learning
status of an alias, taking a step when one is due, leaving the alias to a campaign or another trainer, and reporting
what learning waits for. No step begins before the last version is decided, so every step continues from what the
previous one learned. Refuses: when a step is due (`recorder.views.status.stages`), campaigns' groups
(`trainer.campaign.loop` trains on them), scoring, and putting versions into service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Final

from proxy.settings.hone import HoneSettings
from recorder.base.terminal import clock_time
from recorder.errors import StoreUnavailable, VersionPending
from recorder.processes.phase_file import LEARNER_PHASE, STARTING
from recorder.queue import campaigns, claims, leases
from recorder.queue.campaigns import CampaignView
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.queue.training import baselines, follow_up_share
from recorder.queue.training.follow_up_share import StepChoice
from recorder.registry import aliases, live_findings
from recorder.registry.aliases import AliasView
from recorder.registry.live_findings import DRIFT, FALL, LiveFinding
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import HealthSettings, RuleName
from recorder.states import GroupState
from recorder.stats.falls import describe_fall, find_fall
from recorder.store.bootstrap import open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import StepDone
from recorder.views.status.stage_facts import read_alias
from recorder.views.status.stages import (
    FEWEST,
    LoopSettings,
    StageCode,
    StageState,
    StageStatus,
    learning_stage,
    waits_for_campaign,
)
from recorder.views.versions.live_drift import find_drift
from recorder.views.versions.live_rewards import live_rounds
from trainer.campaign.health import RULES
from trainer.errors import AliasBusy, StepFailed
from trainer.progress import WAITING, CompositeProgress, Notice, PhaseFile, PhaseStatus, Progress
from trainer.runtime.examiner import Examiner
from trainer.runtime.health_watch import HealthWatch
from trainer.runtime.rank_program import require_one_alias
from trainer.runtime.resolved_settings import trainer_settings
from trainer.runtime.train import OpenTrainer, open_in_background, open_trainer
from trainer.settings import TrainerSettings
from trainer.step.engine_trial import require_accepted
from trainer.step.summary import StepTrainer
from trainer.trackers import base
from trainer.trackers.delivery import track_events


@dataclass(frozen=True, slots=True)
class LearningStage:
    """The learning status of an alias at a time (the store's clock, unix seconds)."""

    status: StageStatus
    at: float

    @property
    def is_step_due(self) -> bool:
        """Whether a step may begin now."""
        return self.status.is_step_due

    @property
    def due_in_s(self) -> float | None:
        """Seconds until a step may begin with the current groups; 0: now. None: not without a change."""
        if self.is_step_due:
            return 0.0
        by_time = self.status.state is StageState.PAUSED or self.status.code == StageCode.FIRST_WAIT
        return max(0.0, self.status.until - self.at) if by_time and self.status.until is not None else None

    @property
    def detail(self) -> str:
        """The status as a sentence, with the time when the next group closes if groups are missing."""
        status = self.status
        if status.code != StageCode.TOO_FEW_GROUPS or status.until is None:
            return status.text
        return f"{status.text} The next group closes at about {clock_time(status.until, self.at)}."


class StepSchedule:
    """Decides when one alias has enough groups."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        follower: SettingsFollower,
    ) -> None:
        self._store = store
        self._alias = alias
        self._trainer = settings
        self.follower = follower

    @property
    def _settings(self) -> LoopSettings:
        """The settings as they are now."""
        return LoopSettings.current(self.follower, trainer=self._trainer)

    async def look(self) -> LearningStage:
        """The learning status between two steps, for the process that trains the alias."""
        if (max_age_s := self._settings.learn.max_age_s) is not None:
            stale = (GroupState.SCORED,)
            await scores.exclude_old_groups(
                Project(self._store, self._alias.project_id), stale, max_age_s, self._alias.id
            )
        stage = await self._stage()
        if stage.is_step_due and (await self._found_drift() or await self._found_fall()):
            return await self._stage()
        return stage

    async def _stage(self) -> LearningStage:
        alias, facts = await read_alias(self._store, self._alias, self._settings)
        between_steps = replace(alias, has_learner=True, step_running=False)
        return LearningStage(learning_stage(between_steps, facts, self._settings), facts.at)

    async def _found_fall(self) -> bool:
        """Look whether the live version earns clearly less than those before it, and write that down once."""
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        live = alias.live_version_id
        if live is None or await live_findings.has_finding(self._store, live, FALL):
            return False
        fall = find_fall(await live_rounds(self._store, alias), FALL_AT)
        if fall is None:
            return False
        figures = {"before": fall.before, "now": fall.now, "low": fall.interval.low, "high": fall.interval.high}
        how = describe_fall(fall, "the mean reward", "task", "version")
        await live_findings.write_finding(self._store, alias, live, LiveFinding(FALL, how), figures)
        return True

    async def _found_drift(self) -> bool:
        """Look whether the live version is too far from the base, and write that down once, with its transcripts."""
        if (most := self._trainer.kl_base_max) is None:
            return False
        alias = await aliases.get_alias(Project(self._store, self._alias.project_id), self._alias.name)
        found = await find_drift(self._store, alias, most)
        if found is None or await live_findings.has_finding(self._store, found.version_id, DRIFT):
            return False
        finding = LiveFinding(DRIFT, found.describe())
        await live_findings.write_finding(self._store, alias, found.version_id, finding, found.figures)
        return True

    @property
    def health(self) -> Mapping[RuleName, HealthSettings]:
        """The health rules' settings."""
        return self.follower.learn.health

    def least(self) -> int:
        """The minimum number of groups of a step."""
        return min(FEWEST, self._trainer.min_groups, self._trainer.max_groups)


FALL_AT: Final = RULES["reward_fall"].at  # as in campaigns
FAILURE_PAUSE_S = 10.0
BREATH_S = 1.0  # shortest wait: groups that are due but not free are claimed by another process
_JUDGE_CHECK_S = 30.0  # a killed judge sends no signal


class Learner:
    """Trains one alias."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        trainer: StepTrainer,
        progress: Progress,
        schedule: StepSchedule,
    ) -> None:
        self._store = store
        self._alias = alias
        self._settings = settings
        self._trainer = trainer
        self._progress = progress
        self._schedule = schedule
        self._last_status = ""
        self._steps = 0
        self._health = HealthWatch(store, alias, schedule.health, progress)

    async def run(self) -> CampaignView:
        """Learn until cancelled, or until a campaign runs on the alias: return it, and the caller releases the alias.

        Raises errors that make the trainer useless (`AliasBusy`, `UnsupportedModel`), not those of one step.
        """
        within_s = _JUDGE_CHECK_S
        watch, follower = self._store.watch, self._schedule.follower
        with watch.on(Topic.GROUPS, Topic.LEASES, Topic.SERVICE) as news, follower.telling(news.tell):
            while True:
                await news.wait(within_s)
                await require_accepted(self._store, self._alias)
                while not (running := await campaigns.list_running(self._store, self._alias.id)):
                    stage = await self._schedule.look()
                    if stage.is_step_due and await self._health.pause():
                        stage = await self._schedule.look()
                    if not (claimed := await self._claim(stage)):
                        break
                    await self._try_step(claimed)
                if running:
                    return running[0]
                self._report_status(stage)
                due_s = stage.due_in_s
                within_s = _JUDGE_CHECK_S if due_s is None else min(_JUDGE_CHECK_S, max(due_s, BREATH_S))

    async def _try_step(self, claimed: Sequence[GroupClaim]) -> None:
        try:
            await self._step(claimed)
        except StepFailed as e:
            self._progress.tell(Notice(f"the step failed: {e}", warning=True))
            await asyncio.sleep(FAILURE_PAUSE_S)
        except VersionPending:  # another process began a step first
            return

    async def _claim(self, stage: LearningStage) -> list[GroupClaim]:
        """The groups of a step, or none if no step is due."""
        if not stage.is_step_due:
            return []
        lacking = await baselines.list_lacking_recipes(self._store, self._alias.id)
        choice = await self._choose(lacking)
        claimed = await claims.claim_for_training(
            self._store, self._alias.id, self._trainer.owner, self._settings.lease_s, limit=self._settings.max_groups,
            lacking=lacking, group_ids=None if choice is None else choice.taken,
        )  # fmt: skip
        if len(claimed) < self._schedule.least():  # another process took some of them
            for claim in claimed:
                await claims.return_claim(self._store, claim)
            return []
        if choice is not None:
            share, project = self._settings.follow_up_share, self._alias.project_id
            await follow_up_share.write_waiting(self._store, project, choice.waiting, share)
        return claimed

    async def _choose(self, lacking: Collection[str]) -> StepChoice | None:
        """The groups that the share of follow-ups allows; None: it allows all."""
        share, limit = self._settings.follow_up_share, self._settings.max_groups
        return await follow_up_share.choose_groups(self._store, self._alias.id, share, limit, lacking)

    async def _step(self, claimed: Sequence[GroupClaim]) -> None:
        self._last_status = ""
        self._steps += 1
        began = time.monotonic()
        self._progress.tell(PhaseStatus(self._steps, "training", detail=f"{len(claimed)} groups"))
        report = await self._trainer.train_once(claimed)
        metrics = report.metrics
        if report.notice is not None:
            self._progress.tell(Notice(report.notice, warning=True))
        done = StepDone(
            step=report.step.number if report.step else 0,
            version=report.version.name if report.version else None,
            sampled_by="",
            success=None,
            reward=metrics.get("reward_mean"),
            kl=metrics.get("kl_engine"),
            kl_base=metrics.get("kl_base"),
            tokens_per_s=metrics.get("tokens_per_s"),
            attempts=0,
            errored=0,
            trained=report.trained,
            left_out=dict(report.left_out),
            seconds={"training": time.monotonic() - began},
            note=report.reason or report.note,
            failed=report.is_fault,
            metrics=dict(metrics),
        )
        self._progress.tell(done)
        await self._health.note_step(done)

    def _report_status(self, stage: LearningStage) -> None:
        if not stage.is_step_due and stage.status.text != self._last_status:
            self._last_status = stage.status.text
            self._progress.tell(PhaseStatus(0, WAITING, detail=stage.detail))
            if stage.status.code in (StageCode.REWARD_FALL, StageCode.KL_BASE_MAX, StageCode.HEALTH_RULE):
                self._progress.tell(Notice(stage.status.text, warning=True))


STORE_PAUSE_S: Final = 2.0  # after the store was unavailable


async def learn(
    everything: HoneSettings, names: Sequence[str], progress: Progress, open_with: OpenTrainer = open_trainer
) -> None:
    """Train the named aliases, or all once there is one, until cancelled. `open_with` replaces the real trainer.

    Raises errors that make training impossible: `BaseMismatch`, `UnsupportedModel`, the recorder's errors.
    """
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    progress = CompositeProgress(progress, PhaseFile(everything.data / LEARNER_PHASE))
    try:
        project = Project(store, everything.project)
        follower = SettingsFollower(project, everything)
        found = await _aliases(project, names, progress)
        require_one_alias(everything.trainer, found)
        async with follower.running(), asyncio.TaskGroup() as learners:
            for alias in found:
                learners.create_task(_tracked(store, alias, follower, progress, open_with))
                learners.create_task(Examiner(store, alias, everything, progress).run())
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    finally:
        await store.close()


async def _aliases(project: Project, names: Sequence[str], progress: Progress) -> list[AliasView]:
    reported = False
    with project.store.watch.on(Topic.SERVICE) as news:
        while True:
            await news.wait()
            there = await aliases.get_aliases(project)
            found = [alias for alias in there if not names or alias.name in names]
            if found and len(found) >= len(names):
                return found
            if not reported:
                missing = ", ".join(sorted(set(names) - {alias.name for alias in there})) or "an alias"
                progress.tell(PhaseStatus(0, WAITING, detail=f"Learning waits for the proxy to declare {missing}."))
                reported = True


async def _tracked(
    store: Store, alias: AliasView, follower: SettingsFollower, progress: Progress, open_with: OpenTrainer
) -> None:
    everything = follower.started_with
    run = base.alias_run(alias, everything.trainer, everything.data)
    async with track_events(everything.track, run, progress) as tracking:
        await _learn(store, alias, follower, CompositeProgress(progress, tracking), open_with)


async def _learn(
    store: Store, alias: AliasView, follower: SettingsFollower, progress: Progress, open_with: OpenTrainer
) -> None:
    reported, everything = False, follower.started_with
    while True:
        try:
            for campaign in await campaigns.list_running(store, alias.id):
                await _until_over(store, alias, campaign, progress)
            progress.tell(PhaseStatus(0, STARTING))
            async with open_in_background(store, alias, everything, open_with, progress) as trainer:
                opened = await trainer
                reported = False
                settings = trainer_settings(everything)
                schedule = StepSchedule(store, alias, settings, follower)
                await Learner(store, alias, settings, opened, progress, schedule).run()
        except AliasBusy as e:
            if not reported:
                progress.tell(PhaseStatus(0, WAITING, detail=str(e)))
                reported = True
            with suppress(StoreUnavailable):  # the next round reports it
                await leases.wait_until_free(Project(store, alias.project_id), leases.trainer_lease(alias.name))
        except StoreUnavailable as e:  # the next trainer takes over a step that could not be abandoned
            progress.tell(Notice(f"learning waits until the store answers: {e}", warning=True))
            await asyncio.sleep(STORE_PAUSE_S)


async def _until_over(store: Store, alias: AliasView, campaign: CampaignView, progress: Progress) -> None:
    """Leave the alias to a campaign until no process runs it any more: it ended, or was killed."""
    progress.tell(PhaseStatus(0, WAITING, detail=waits_for_campaign(campaign.name, alias.name)))
    await leases.wait_until_free(Project(store, alias.project_id), campaigns.lease_name(campaign.id))
