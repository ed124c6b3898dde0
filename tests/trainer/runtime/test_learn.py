"""A learner and a campaign on one alias: the campaign has it while it runs, the learner before and afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.queue import campaigns, leases
from recorder.queue.claims import GroupClaim
from recorder.queue.leases import Lease
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from tests.postgres import Postgres
from tests.trainer.ring import (
    ALIAS,
    PROJECT,
    RecordedProgress,
    Ring,
    Script,
    ScriptedTrainer,
    hone_settings,
    write_user_folder,
)
from tests.trainer.runtime.test_learner import live_group, until
from trainer.campaign import record
from trainer.campaign_settings import CampaignSettings
from trainer.errors import AliasBusy
from trainer.progress import Notice, PhaseStatus
from trainer.runtime import train
from trainer.runtime.learner import learn
from trainer.runtime.services import ServiceRequest
from trainer.step.summary import StepReport
from trainer.track_settings import TrackSettings


class HoldingTrainer(ScriptedTrainer):
    """A scripted trainer that holds the alias, as the real one does."""

    def __init__(self, store: Store, alias: AliasView, lease: Lease) -> None:
        super().__init__(store, alias)
        self._lease = lease

    async def close(self) -> None:
        await leases.release_lease(self._store, self._lease)


async def hold(store: Store, alias: AliasView, _: object) -> HoldingTrainer:
    lease = await leases.acquire_lease(
        Project(store, PROJECT), leases.trainer_lease(alias.name), leases.holder_name(), 60
    )
    if lease is None:
        raise AliasBusy(f"another trainer holds {alias.name}")
    return HoldingTrainer(store, alias, lease)


def waited_for(told: RecordedProgress, words: str) -> bool:
    return any(isinstance(event, PhaseStatus) and words in event.detail for event in told.events)


@pytest.mark.slow
async def test_a_campaign_beside_a_learner_has_the_alias_until_it_ends(tmp_path: Path) -> None:
    data = tmp_path / "data"
    settings = CampaignSettings.model_validate(write_user_folder(tmp_path / "user") | {"steps": 2})
    track = TrackSettings(tensorboard=tmp_path / "runs")
    everything = hone_settings(data, settings, track=track)
    async with Ring.running(data, Script()) as ring:
        learner, campaign = RecordedProgress(), RecordedProgress()
        learning = asyncio.create_task(learn(everything, [], learner, hold))
        await until(lambda: _held(ring))
        wanted = ServiceRequest(data, PROJECT, everything.recorder, ring.url, found_timeout_s=10.0)
        ended = await train.train(record.plan_campaign(settings), everything, wanted, campaign, hold)
        assert [step.version for step in campaign.steps()] == ["helpdesk@1", "helpdesk@2"]
        assert ended.steps == 2
        assert waited_for(learner, "for campaign 'train' to end")
        await live_group(ring, "afterwards", [0.0, 1.0])
        await until(lambda: _trained(learner))
        assert learner.steps()[0].version == "helpdesk@3"
        learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)
    tracked = {
        run.name.partition("-")[0]: b"".join(f.read_bytes() for f in run.iterdir())
        for run in (tmp_path / "runs").iterdir()
    }
    assert tracked.keys() == {"helpdesk", "train"}
    assert all(b"step/trained" in figures for figures in tracked.values())


class Halting(ScriptedTrainer):
    """A trainer under whose first step the database stops."""

    def __init__(self, store: Store, alias: AliasView, server: Postgres, halted: asyncio.Event) -> None:
        super().__init__(store, alias)
        self._server = server
        self._halted = halted

    async def train_once(self, claimed: Sequence[GroupClaim], *, campaign_id: str | None = None) -> StepReport:
        if not self._halted.is_set():
            await asyncio.to_thread(self._server.halt)
            self._halted.set()
        return await super().train_once(claimed, campaign_id=campaign_id)


@pytest.mark.slow
async def test_a_learner_goes_on_behind_a_database_that_was_stopped_under_its_step(tmp_path: Path) -> None:
    server, told, halted = Postgres(), RecordedProgress(), asyncio.Event()
    server.create("hone")
    settings = RecorderSettings(url=server.url("hone"))
    store = await open_store(tmp_path, settings, migrate=True)
    recorder = Recorder(store, settings)
    await recorder.start()
    ring = Ring(store, recorder, await aliases.ensure_alias(Project(store, PROJECT), ALIAS, "base", None), Script())

    async def open_with(of: Store, alias: AliasView, _: object) -> Halting:
        return Halting(of, alias, server, halted)

    everything = hone_settings(tmp_path, CampaignSettings(), recorder=settings)
    learning = asyncio.create_task(learn(everything, [], told, open_with))
    try:
        async with asyncio.timeout(120):
            await live_group(ring, "before", [0.0, 1.0])
            await until(lambda: _was_told(told, "learning waits until the store answers"))
            await asyncio.to_thread(server.start)
            await live_group(ring, "afterwards", [0.0, 1.0])
            await until(lambda: _trained(told))
        assert not learning.done()
    finally:
        learning.cancel()
        await asyncio.gather(learning, return_exceptions=True)
        await recorder.stop()
        await store.close()
        server.stop()


async def _was_told(told: RecordedProgress, words: str) -> bool:
    return any(isinstance(event, Notice) and words in event.text for event in told.events)


async def _held(ring: Ring) -> bool:
    return bool(await leases.list_holders(Project(ring.store, PROJECT), "trainer:"))


async def _trained(told: RecordedProgress) -> bool:
    return bool(told.steps())


async def test_a_second_campaign_on_an_alias_is_refused(tmp_path: Path) -> None:
    async with Ring.running(tmp_path / "data", Script()) as ring:
        first, second = [
            await campaigns.create_campaign(Project(ring.store, PROJECT), ring.alias.id, n, {}) for n in ("one", "two")
        ]
        for campaign in (first, second):
            await leases.acquire_lease(
                Project(ring.store, PROJECT), campaigns.lease_name(campaign.id), campaign.name, 60
            )
        opened = await hold(ring.store, ring.alias, None)
        everything = hone_settings(tmp_path / "data", CampaignSettings())
        with pytest.raises(AliasBusy, match="campaign 'one' trains the alias 'helpdesk' now"):
            await train.open_when_free(hold, second, RecordedProgress(), ring.store, ring.alias, everything)
        await opened.close()
