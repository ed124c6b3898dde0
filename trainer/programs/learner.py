"""Learning from live traffic: whenever enough scored groups wait for an alias, one step on them, and again.

Owns: taking a step when one is due, leaving the alias to a campaign, and saying what is waited for: a learner that
starves says why. No step begins before the last version is decided: so every step goes on from what the one before it
learned. Refuses: when one is due (`recorder.telling.stages`), campaigns' groups (`trainer.campaign.loop` trains on
them), scoring, and putting versions into service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence

from recorder.errors import Undecided
from recorder.learned.campaign_events import StepDone
from recorder.registry.aliases import AliasView
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.work import baselines, campaigns, claims
from recorder.work.campaigns import CampaignView
from recorder.work.claims import GroupClaim
from trainer.errors import StepFailed
from trainer.programs.waiting import LearningStage, Patience
from trainer.progress import WAITING, Progress, Said, Status
from trainer.settings import TrainerSettings
from trainer.step.report import StepTrainer

FAILURE_PAUSE_S = 10.0
BREATH_S = 1.0  # what is due and cannot be taken is held by somebody else
_JUDGE_CHECK_S = 30.0  # a judge that was killed tells nobody


class Learner:
    """Trains one alias for as long as it runs."""

    def __init__(
        self,
        store: Store,
        alias: AliasView,
        settings: TrainerSettings,
        trainer: StepTrainer,
        progress: Progress,
        patience: Patience,
    ) -> None:
        self._store = store
        self._alias = alias
        self._settings = settings
        self._trainer = trainer
        self._progress = progress
        self._patience = patience
        self._said = ""
        self._steps = 0

    async def run(self) -> CampaignView:
        """Learn until cancelled, or until a campaign runs on the alias: it is returned, and the alias is to be let go.

        Raises what makes the trainer useless (`AliasBusy`), not what fails one step.
        """
        within_s = _JUDGE_CHECK_S
        with self._store.watch.on(Topic.GROUPS, Topic.LEASES, Topic.SERVICE) as news:
            while True:
                await news.wait(within_s)
                while not (running := await campaigns.running_on(self._store, self._alias.id)):
                    stage = await self._patience.look()
                    if not (claimed := await self._claim(stage)):
                        break
                    await self._try_step(claimed)
                if running:
                    return running[0]
                self._say_what_is_missing(stage)
                due_s = stage.due_in_s
                within_s = _JUDGE_CHECK_S if due_s is None else min(_JUDGE_CHECK_S, max(due_s, BREATH_S))

    async def _try_step(self, claimed: Sequence[GroupClaim]) -> None:
        try:
            await self._step(claimed)
        except StepFailed as e:
            self._progress.tell(Said(f"the step failed: {e}", warning=True))
            await asyncio.sleep(FAILURE_PAUSE_S)
        except Undecided:  # somebody else's step was faster: the next look sees its version
            return

    async def _claim(self, stage: LearningStage) -> list[GroupClaim]:
        """The groups of a step, or none while none is due."""
        if not stage.is_step_due:
            return []
        claimed = await claims.claim_for_training(
            self._store, self._alias.id, self._trainer.owner, self._settings.lease_s, limit=self._settings.max_groups,
            lacking=await baselines.lacking(self._store, self._alias.id),
        )  # fmt: skip
        if len(claimed) < self._patience.least():  # some of those counted were taken
            for claim in claimed:
                await claims.give_back(self._store, claim)
            return []
        return claimed

    async def _step(self, claimed: Sequence[GroupClaim]) -> None:
        self._said = ""
        self._steps += 1
        began = time.monotonic()
        self._progress.tell(Status(self._steps, "training", detail=f"{len(claimed)} groups"))
        report = await self._trainer.train_once(claimed)
        metrics = report.metrics
        self._progress.tell(
            StepDone(
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
                note=report.reason or "",
                metrics=dict(metrics),
            )
        )

    def _say_what_is_missing(self, stage: LearningStage) -> None:
        if not stage.is_step_due and stage.status.text != self._said:
            self._said = stage.status.text
            self._progress.tell(Status(0, WAITING, detail=stage.detail))
