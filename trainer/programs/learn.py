"""What `hone learn` puts together: a trainer, a learner and an examiner for each alias.

Owns: waiting for the store's aliases, for an alias that another trainer holds and for the end of a campaign on it.
Refuses: the steps (`trainer.programs.learner`), and what versions' gates ask for (`trainer.programs.examiner`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

from proxy.settings.hone import HoneSettings
from recorder.errors import StoreUnavailable
from recorder.holding import holders, leases
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.store.changes import Topic
from recorder.store.database import Store
from recorder.store.migrate import open_store
from recorder.store.project import Project
from recorder.telling.stages import waits_for_campaign
from recorder.work import campaigns
from recorder.work.campaigns import CampaignView
from trainer.errors import AliasBusy
from trainer.programs.examiner import Examiner
from trainer.programs.learner import Learner
from trainer.programs.train import OpenTrainer, open_trainer, opening, trainer_settings
from trainer.programs.waiting import Patience
from trainer.progress import WAITING, Progress, Said, Several, Status
from trainer.tracking import runs
from trainer.tracking.tracker import tracked

STORE_PAUSE_S: Final = 2.0  # after the store was away


async def learn(
    everything: HoneSettings, names: Sequence[str], progress: Progress, open_with: OpenTrainer = open_trainer
) -> None:
    """Train the named aliases, or all that there are once there is one, until cancelled. `open_with` opens another
    trainer than the real one.

    Raises what makes training impossible: `BaseMismatch`, `UnsupportedModel`, the recorder's errors.
    """
    store = await open_store(everything.data, everything.recorder, migrate=False, project=everything.project)
    try:
        found = await _aliases(Project(store, everything.project), names, progress)
        async with asyncio.TaskGroup() as learners:
            for alias in found:
                learners.create_task(_tracked(store, alias, everything, progress, open_with))
                learners.create_task(Examiner(store, alias, everything, progress).run())
    except ExceptionGroup as several:
        raise several.exceptions[0] from several
    finally:
        await store.close()


async def _aliases(project: Project, names: Sequence[str], progress: Progress) -> list[AliasView]:
    told = False
    with project.store.watch.on(Topic.SERVICE) as news:
        while True:
            await news.wait()
            there = await aliases.get_aliases(project)
            found = [alias for alias in there if not names or alias.name in names]
            if found and len(found) >= len(names):
                return found
            if not told:
                missing = ", ".join(sorted(set(names) - {alias.name for alias in there})) or "an alias"
                progress.tell(Status(0, WAITING, detail=f"Learning waits for the proxy to declare {missing}."))
                told = True


async def _tracked(
    store: Store, alias: AliasView, everything: HoneSettings, progress: Progress, open_with: OpenTrainer
) -> None:
    run = runs.of_alias(alias, everything.trainer, everything.data)
    async with tracked(everything.track, run, progress) as tracking:
        await _learn(store, alias, everything, Several(progress, tracking), open_with)


async def _learn(
    store: Store, alias: AliasView, everything: HoneSettings, progress: Progress, open_with: OpenTrainer
) -> None:
    told = False
    while True:
        try:
            for campaign in await campaigns.running_on(store, alias.id):
                await _until_over(store, alias, campaign, progress)
            async with opening(store, alias, everything, open_with) as trainer:
                opened = await trainer
                told = False
                settings = trainer_settings(everything)
                patience = Patience(store, alias, settings, everything.learn, everything.recorder)
                await Learner(store, alias, settings, opened, progress, patience).run()
        except AliasBusy as e:
            if not told:
                progress.tell(Status(0, WAITING, detail=str(e)))
                told = True
            with suppress(StoreUnavailable):  # the next round says so
                await holders.until_free(Project(store, alias.project_id), leases.trainer(alias.name))
        except StoreUnavailable as e:  # a step that could not be given up is taken over when the trainer is opened
            progress.tell(Said(f"nothing is learned until the store answers: {e}", warning=True))
            await asyncio.sleep(STORE_PAUSE_S)


async def _until_over(store: Store, alias: AliasView, campaign: CampaignView, progress: Progress) -> None:
    """Leave the alias to a campaign until nobody runs that any more: it ended, or was killed."""
    progress.tell(Status(0, WAITING, detail=waits_for_campaign(campaign.name, alias.name)))
    await holders.until_free(Project(store, alias.project_id), campaigns.lease_name(campaign.id))
