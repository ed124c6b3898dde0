"""What a gate has judged is paid for like any judging: it counts, and where it may cost no more, sanity decides."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from proxy.engine.replica import Replica
from proxy.gate import behaviour
from proxy.gate.behaviour import BehaviourArms
from proxy.gate.examination import GateVerdict, examine_version
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import GateSettings
from recorder.capture.recorder import Recorder
from recorder.queue.claims import claim_for_judging
from recorder.queue.judging.scores import NewPart, record_score
from recorder.queue.leases import JUDGE, keep_presence
from recorder.queue.training import budgets
from recorder.registry.versions import VersionView, get_version
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings, RecorderSettings
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.trajectories.transcripts import load_group
from tests.proxy.controlled import World
from tests.proxy.gate.test_examination import recorded
from tests.recorder.score_rows import new_score

pytestmark = pytest.mark.slow

EACH = 100  # tokens a judging
SPENT = "sane: judging of pairs has stopped: the judge used its"


@pytest.fixture(autouse=True)
def look_often(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(behaviour, "LOOK_S", 0.02)


@asynccontextmanager
async def judging(world: World, learn: LearnSettings) -> AsyncIterator[None]:
    """A judge that finds all equal, at a price, and keeps to `learn` as the real one does."""

    async def judge() -> None:
        with world.store.watch.on(Topic.GROUPS) as news:
            while True:
                await news.wait()
                while await budgets.judging_hold(Project(world.store, "default"), learn) is None:
                    claim = await claim_for_judging(Project(world.store, "default"), "judge", 60)
                    if claim is None:
                        break
                    members = (await load_group(world.store, claim.group_id)).members
                    parts = [NewPart(m.id, "reward", 0.5) for m in members]
                    score = new_score("recipe", judge_model="m", tokens_in=EACH, parts=parts)
                    await record_score(world.store, claim, score)

    async with keep_presence(Project(world.store, "default"), JUDGE, "judge", 60):
        task = asyncio.create_task(judge())
        yield
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def examined(world: World, version: VersionView, learn: LearnSettings) -> GateVerdict:
    """What the gate finds of a version beside the base."""
    recorder = Recorder(world.store, RecorderSettings())
    await recorder.start()
    replica = Replica(world.engine.url, world.engine.key)
    base = await get_version(world.store, version.parent_id or "")
    alias = await world.alias()
    follower = SettingsFollower(Project(world.store, alias.project_id), HoneSettings(learn=learn))
    arms = BehaviourArms(world.store, recorder, replica, alias, version, base, follower)
    async with judging(world, learn):
        found = await examine_version(arms, "gate", GateSettings(timeout_s=60))
    await recorder.stop()
    return found


async def test_what_a_gate_has_judged_counts_as_spent(world: World) -> None:
    await recorded(world)
    found = await examined(world, await world.live(), LearnSettings())
    spent = await budgets.judging_cost_since(Project(world.store, "default"), 0.0)
    assert found.why == ""
    assert sum(one.tokens for one in spent) == EACH * 2 * found.figures["pairs"]


async def test_what_was_judged_before_the_budget_ended_counts_and_no_timeout_is_waited_for(world: World) -> None:
    await recorded(world)
    found = await examined(world, await world.live(), LearnSettings(judge_tokens_per_day=20 * EACH))
    assert found.passed
    assert found.summary.startswith(SPENT)
    assert 8 + 2 <= found.figures["pairs"] <= 8 + 4  # the second eight had four judgings, of two pairs or more


async def test_where_all_is_spent_before_nothing_is_asked_that_only_a_judge_could_use(world: World) -> None:
    await recorded(world)
    version = await world.live()
    await examined(world, version, LearnSettings())
    before = (await list_trajectories(Project(world.store, "default"), limit=200)).lines
    found = await examined(world, version, LearnSettings(judge_tokens_per_day=1))
    assert found.summary.startswith(SPENT)
    assert found.figures["pairs"] == 0
    assert (await list_trajectories(Project(world.store, "default"), limit=200)).lines == before
