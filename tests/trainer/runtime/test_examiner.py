"""A learner answers what a version's gate asks: the user's agent on held-out scenarios, as the version and as the live
one, never judged, never trained on; gone on with after a kill, given up when the gate has decided.

Against the scripted ring; which scenarios make a round is in campaign/test_examining.py.

Which held-out scenarios a gate's rounds hold: the rule alone. What is done with them: programs/test_examiner.py.
"""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.settings.hone import HoneSettings
from recorder.queue import campaigns, gate_requests, leases
from recorder.queue.claims import waiting_for_training
from recorder.queue.gate_requests import GatePair, GateResult
from recorder.registry.keys import Scope, create_key, list_keys
from recorder.registry.versions import VersionView, allocate_version, get_version
from recorder.states import CampaignState, GroupState, Purpose, TrajectoryState
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.views.lists.filters import GroupFilter, TrajectoryFilter
from recorder.views.lists.groups import list_groups
from recorder.views.lists.trajectories import list_trajectories
from tests.trainer.ring import (
    PROJECT,
    RecordedProgress,
    Ring,
    Script,
    held_to_scenarios,
    hone_settings,
    write_user_folder,
)
from tests.trainer.runtime.test_learner import until
from trainer.campaign_settings import CampaignSettings
from trainer.runtime.examiner import AGAIN, ROUND, Examiner, gate_rounds

pytestmark = pytest.mark.slow


def settings(tmp_path: Path, val: int = 3, **gate: Any) -> HoneSettings:
    """A learner's settings, with as many held-out scenarios."""
    write_user_folder(tmp_path / "user", val=val)
    return held_to_scenarios(tmp_path / "data", tmp_path / "user", **gate)


@asynccontextmanager
async def examining(ring: Ring, everything: HoneSettings, told: RecordedProgress | None = None) -> AsyncIterator[None]:
    """An examiner that runs."""
    task = asyncio.create_task(Examiner(ring.store, ring.alias, everything, told or RecordedProgress()).run())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def ask(ring: Ring, pairs: int = 64) -> tuple[str, VersionView]:
    """A version waits for its gate, which asks for scenarios."""
    assert ring.alias.live_version_id is not None
    live = await get_version(ring.store, ring.alias.live_version_id)
    version = await allocate_version(ring.store, ring.alias.id, live.id)
    return await gate_requests.request_gate(ring.store, version, live, pairs), version


async def over(ring: Ring, wish: str) -> GateResult:
    """Wait until a wish is over, and what was started for it has stopped: then nothing is cut off in the middle."""
    with ring.store.watch.on(Topic.CAMPAIGNS) as news:
        while True:
            await news.wait()
            found = await gate_requests.gate_result(ring.store, wish)
            if found.state is not CampaignState.RUNNING:
                await leases.wait_until_free(Project(ring.store, PROJECT), campaigns.lease_name(wish))
                return found


async def test_a_wish_is_answered_by_attempts_as_both_versions(tmp_path: Path) -> None:
    worse = Script(skill=lambda number: float(number == 0))
    async with Ring.running(tmp_path / "data", worse) as ring, examining(ring, settings(tmp_path)):
        wish, version = await ask(ring)
        found = await over(ring, wish)
        assert (found.state, found.reason) == (CampaignState.FINISHED, gate_requests.ATTEMPTED)
        assert found.pairs == [GatePair(candidate=0.0, live=1.0)] * 12  # three scenarios, four times each
        runs = (await list_trajectories(Project(ring.store, PROJECT), limit=100)).lines
        assert {(run.purpose, run.state) for run in runs} == {(Purpose.EVAL, TrajectoryState.COMPLETED)}
        groups = (await list_groups(Project(ring.store, PROJECT), limit=100)).lines
        assert {(group.state, group.reason) for group in groups} == {(GroupState.MEASURED, "measured")}
        assert (await waiting_for_training(ring.store, version.alias_id)).groups == 0
        assert ring.calls.total() == 24


async def test_no_more_pairs_are_made_than_were_asked_for(tmp_path: Path) -> None:
    async with Ring.running(tmp_path / "data", Script()) as ring, examining(ring, settings(tmp_path)):
        wish, _ = await ask(ring, pairs=2)
        assert len((await over(ring, wish)).pairs) == 2
        assert ring.calls.total() == 4


async def test_where_there_are_keys_the_agent_gets_one_that_may_name_versions(tmp_path: Path) -> None:
    async with Ring.running(tmp_path / "data", Script(hold=asyncio.Event(), hold_after=1)) as ring:
        await create_key(Project(ring.store, PROJECT), "somebody's", [Scope.INFER])
        wish, _ = await ask(ring, pairs=1)
        async with examining(ring, settings(tmp_path)):
            await ring.reached_hold.wait()
            [minted] = [key for key in await list_keys(Project(ring.store, PROJECT)) if wish in key.name]
            assert set(minted.scopes) == {Scope.INFER, Scope.EVAL}
            assert ring.script.hold is not None
            ring.script.hold.set()
            await over(ring, wish)


async def test_an_agent_that_fails_has_not_succeeded(tmp_path: Path) -> None:
    everything = settings(tmp_path, val=3, agent="my_agent:stubborn")
    everything.campaign = everything.campaign.model_copy(update={"on_agent_error": "judge"})
    async with Ring.running(tmp_path / "data", Script(skill=lambda _: 1.0)) as ring, examining(ring, everything):
        wish, _ = await ask(ring, pairs=3)
        pairs = (await over(ring, wish)).pairs
        assert sorted((pair.candidate, pair.live) for pair in pairs) == [(0.0, 0.0), (1.0, 1.0), (1.0, 1.0)]


async def test_what_one_learner_measured_the_next_does_not_attempt_again(tmp_path: Path) -> None:
    held = Script(hold=asyncio.Event(), hold_after=17 + 3)  # the second round, a few calls of it answered
    everything = settings(tmp_path, val=12)
    async with Ring.running(tmp_path / "data", held) as ring:
        wish, _ = await ask(ring, pairs=12)
        async with examining(ring, everything):
            await ring.reached_hold.wait()
        first = len((await gate_requests.gate_result(ring.store, wish)).pairs)
        assert first == 8
        assert held.hold is not None
        held.hold.set()
        async with examining(ring, everything):
            assert len((await over(ring, wish)).pairs) == 12
        of_first_round = [n for address, n in ring.calls.items() if f"{wish}.0001." in address]
        assert of_first_round == [1] * 16


async def test_after_a_learner_was_killed_another_goes_on_at_once(tmp_path: Path) -> None:
    held = Script(skill=lambda _: 1.0, hold=asyncio.Event(), hold_after=1, hold_at_once=3)
    everything = settings(tmp_path)
    async with Ring.running(tmp_path / "data", held) as ring:
        wish, _ = await ask(ring, pairs=3)
        command = ("-m", "tests.trainer.examining_child", str(everything.data), str(tmp_path / "user"))
        child = await asyncio.create_subprocess_exec(sys.executable, *command)
        await ring.reached_hold.wait()
        child.kill()
        await child.wait()
        assert held.hold is not None
        held.hold.set()
        async with examining(ring, everything):
            assert (await over(ring, wish)).pairs == [GatePair(1.0, 1.0)] * 3


async def test_a_wish_whose_gate_has_decided_is_given_up_and_nothing_stays_open(tmp_path: Path) -> None:
    async with Ring.running(tmp_path / "data", Script(hold=asyncio.Event(), hold_after=1)) as ring:
        wish, version = await ask(ring)
        async with examining(ring, settings(tmp_path)):
            await ring.reached_hold.wait()
            await gate_requests.end_request(ring.store, wish, CampaignState.FINISHED, gate_requests.DECIDED)
            await over(ring, wish)
        assert await _nothing_open(ring)
        assert ring.script.hold is not None
        ring.script.hold.set()
        assert await gate_requests.next_request(ring.store, version.alias_id) is None


async def _nothing_open(ring: Ring) -> bool:
    groups = (await list_groups(Project(ring.store, PROJECT), GroupFilter(states=(GroupState.OPEN,)), limit=100)).lines
    runs = (
        await list_trajectories(
            Project(ring.store, PROJECT), TrajectoryFilter(states=(TrajectoryState.OPEN,)), limit=100
        )
    ).lines
    return not groups and not runs


async def test_an_agent_that_cannot_be_imported_fails_the_wish_and_not_the_learner(tmp_path: Path) -> None:
    told = RecordedProgress()
    everything = settings(tmp_path, agent="no_agent:run")
    async with Ring.running(tmp_path / "data", Script()) as ring, examining(ring, everything, told):
        for _ in range(2):
            wish, version = await ask(ring)
            found = await over(ring, wish)
            assert found.state is CampaignState.FAILED
            assert "no_agent" in (found.reason or "")
        await until(lambda: _warned(told, f"the gate of {version.name} continues without its held-out scenarios"))


async def test_a_learner_without_the_scenarios_says_so(tmp_path: Path) -> None:
    everything = hone_settings(tmp_path / "data", CampaignSettings())
    async with Ring.running(tmp_path / "data", Script()) as ring, examining(ring, everything):
        wish, _ = await ask(ring)
        assert "aliases.helpdesk.gate" in ((await over(ring, wish)).reason or "")


async def _warned(told: RecordedProgress, words: str) -> bool:
    return any(words in warning for warning in told.warnings())


async def test_a_wish_that_another_learner_answers_is_left_to_it(tmp_path: Path) -> None:
    told = RecordedProgress()
    async with Ring.running(tmp_path / "data", Script()) as ring:
        wish, version = await ask(ring)
        await leases.acquire_lease(Project(ring.store, PROJECT), campaigns.lease_name(wish), "elsewhere:1:x", 60)
        async with examining(ring, settings(tmp_path), told):
            await until(lambda: _said(told, f"the gate of {version.name} waits: another process runs"))
        assert (await gate_requests.gate_result(ring.store, wish)).state is CampaignState.RUNNING
        assert ring.calls.total() == 0


async def _said(told: RecordedProgress, words: str) -> bool:
    return any(words in getattr(event, "text", "") for event in told.events)


@given(st.integers(1, 40), st.integers(1, 200), st.text(max_size=8))
def test_rounds_have_as_many_pairs_as_are_allowed_and_each_scenario_about_as_often(
    tasks: int, pairs: int, seed: str
) -> None:
    found = gate_rounds(range(tasks), pairs, seed)
    drawn = Counter(chain.from_iterable(found))
    assert drawn.total() == min(pairs, AGAIN * tasks)
    assert max(drawn.values()) - min(drawn[task] for task in range(tasks)) <= 1
    assert all(0 < len(one) <= ROUND for one in found)
    assert all(len(set(one)) == len(one) for one in found), "one round attempts a scenario once"
    assert found == gate_rounds(range(tasks), pairs, seed), "whoever goes on finds the same rounds"


def test_another_version_meets_other_scenarios_first() -> None:
    assert gate_rounds(range(100), 8, "helpdesk@1") != gate_rounds(range(100), 8, "helpdesk@2")
