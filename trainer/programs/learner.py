"""Learning from live traffic: whenever enough scored groups wait for an alias, one step on them, and again.

Owns: when a step is due, and saying what is waited for: a learner that starves says why. Refuses: campaigns' groups
(`trainer.campaign.loop` trains on them), scoring, and putting versions into service.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from recorder.groups import lookup
from recorder.registry.aliases import AliasView
from recorder.states import GroupState
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.work import baselines, claims, leases, presence
from recorder.work.claims import GroupClaim
from trainer.errors import StepFailed
from trainer.progress import Progress, Said, Status, StepDone
from trainer.settings import TrainerSettings
from trainer.step.report import StepTrainer

FAILURE_PAUSE_S = 10.0
_JUDGE_CHECK_S = 30.0  # a judge that was killed tells nobody

_ON_THE_WAY = (
    (GroupState.SCORED, "scored"),
    (GroupState.UNSCORED, "could not be scored yet"),
    (GroupState.JUDGING, "being judged"),
    (GroupState.READY, "ready for the judge"),
    (GroupState.OPEN, "still open"),
)


class Learner:
    """Trains one alias for as long as it runs."""

    def __init__(
        self, store: Store, alias: AliasView, settings: TrainerSettings, trainer: StepTrainer, progress: Progress
    ) -> None:
        self._store = store
        self._alias = alias
        self._settings = settings
        self._trainer = trainer
        self._progress = progress
        self._said = ""
        self._steps = 0

    async def run(self) -> None:
        """Learn until cancelled. Raises what makes the trainer useless (`AliasBusy`), not what fails one step."""
        with self._store.watch.on(Topic.GROUPS, Topic.LEASES) as news:
            while True:
                await news.wait(_JUDGE_CHECK_S)
                while claimed := await self._claim():
                    try:
                        await self._step(claimed)
                    except StepFailed as e:
                        self._progress.tell(Said(f"the step failed: {e}", warning=True))
                        await asyncio.sleep(FAILURE_PAUSE_S)
                await self._say_what_is_missing()

    async def _claim(self) -> list[GroupClaim]:
        """The groups of a step, or none while fewer than `min_groups` wait that there is something to compare with."""
        lacking = await baselines.lacking(self._store, self._alias.id)
        if await claims.count_for_training(self._store, self._alias.id, lacking) < self._settings.min_groups:
            return []
        claimed = await claims.claim_for_training(
            self._store, self._alias.id, self._trainer.owner, self._settings.lease_s, limit=self._settings.max_groups,
            lacking=lacking,
        )  # fmt: skip
        if len(claimed) < self._settings.min_groups:  # some of those counted were taken
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

    async def _say_what_is_missing(self) -> None:
        counts = await lookup.counts(self._store, self._alias.id)
        text = waits_for(counts, self._settings.min_groups)
        if not counts.get(GroupState.SCORED) and any(counts.get(s) for s in (GroupState.READY, GroupState.UNSCORED)):
            text += await self._without_judge()
        text += without_baseline(await baselines.lacking(self._store, self._alias.id))
        if text != self._said:
            self._said = text
            self._progress.tell(Status(0, "waiting", detail=text))

    async def _without_judge(self) -> str:
        judges = await leases.holders(self._store, self._alias.project_id, presence.JUDGE)
        return "" if judges else "; no judge runs: start one with `hone judge`"


def without_baseline(lacking: Mapping[str, int]) -> str:
    """What is said of runs that wait for a running baseline, from how many rewards their recipes have each."""
    if not lacking:
        return ""
    most = max(lacking.values())
    return f"; a running baseline needs more than {baselines.FEWEST} rewards by one recipe: {most} are there"


def waits_for(counts: Mapping[GroupState, int], min_groups: int) -> str:
    """What a learner waits for, in words, from the number of groups in each state."""
    there = [f"{counts[state]} {words}" for state, words in _ON_THE_WAY if counts.get(state)]
    needed = f"{min_groups} scored group" + ("s" if min_groups > 1 else "")
    return f"for {needed}; there is: {', '.join(there) or 'no group yet'}"
