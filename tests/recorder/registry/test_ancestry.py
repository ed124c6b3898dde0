"""What is trained is what the live version's line was trained on: through decisions, rollbacks, kills and an hour."""

from __future__ import annotations

import asyncio
import random
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recorder.errors import Conflict, LeaseLost, VersionPending
from recorder.queue import leases
from recorder.queue.training import steps
from recorder.registry import alias_moves, versions
from recorder.states import GroupState, VersionState
from recorder.store import ledger
from recorder.store.changes import Topic
from recorder.store.database import Project
from recorder.store.schema import groups
from tests.recorder.descending import LEASE_S, Line, counting, line
from tests.recorder.descending_child import LOOK_S
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]
IDLE_S = 2 * LOOK_S  # after so long both have looked, and found nothing


async def states(of: Line) -> Counter[str]:
    """How many of the alias's groups are in each state, with the reason where there is one."""
    found = [await of.rows.get(groups, group_id) for group_id in of.groups]
    return Counter(f"{row['state']} {row['reason'] or ''}".strip() for row in found)


async def trained(rows: Rows, decision: str = "live") -> Line:
    """An alias whose first version was trained on two groups, and decided."""
    one = await line(rows)
    await one.traffic(2)
    await one.train()
    await one.decide(decision)
    return one


async def test_groups_are_tried_until_the_version_is_live_and_trained_with_it(rows: Rows) -> None:
    one = await line(rows)
    await one.traffic(2)
    await one.train()
    assert await states(one) == {"tried": 2}
    assert await one.trained_runs() == set()
    await one.decide("live")
    assert await states(one) == {"trained": 2}
    assert len(await one.trained_runs()) == 2  # the first run of each group was not
    assert (await ledger.count_codes(Project(rows.store, PROJECT), "trajectory")) == {"trained": 2}


async def test_no_step_begins_while_a_version_is_not_decided(rows: Rows) -> None:
    one = await line(rows)
    await one.traffic(1)
    await one.train()
    for how in ("", "canary", "live"):
        with pytest.raises(VersionPending, match=r"helpdesk@1 is (written|gated|canary) and not decided"):
            await steps.begin_step(rows.store, one.alias.id, await one.live())
        await one.decide(how)
    assert (await steps.begin_step(rows.store, one.alias.id, await one.live())).number == 2


async def test_a_step_begins_on_the_live_version_alone(rows: Rows) -> None:
    one = await trained(rows)
    assert one.alias.live_version_id is not None
    with pytest.raises(Conflict, match="no longer live"):
        await steps.begin_step(rows.store, one.alias.id, one.alias.live_version_id)


async def test_a_version_whose_parent_left_is_not_accepted(rows: Rows) -> None:
    one = await trained(rows)
    await one.traffic(1)
    await one.train()
    await one.decide("gated")
    waiting = await versions.find_pending_version(rows.store, one.alias.id)
    assert waiting is not None
    await one.roll_back()
    with pytest.raises(Conflict, match="parent_left"):
        await alias_moves.set_live(rows.store, one.alias.id, waiting.id, why="gate")
    with pytest.raises(Conflict, match="parent_left"):
        await alias_moves.set_canary(rows.store, one.alias.id, waiting.id, 0.5)
    await one.decide("live")
    assert await states(one) == {"left_out version_rejected": 2, "scored": 1}
    await one.check()


async def test_what_came_to_nothing_is_given_back_twice_then_left_out(rows: Rows) -> None:
    one = await trained(rows, "unloadable")
    assert await states(one) == {"scored": 2}
    for _ in range(2):
        await one.train()
        await one.decide("unloadable")
    assert await states(one) == {"left_out versions_failed": 2}
    codes = [entry.code for entry in await ledger.object_entries(rows.store, "group", one.groups[0])]
    assert codes == ["given_back", "given_back", "versions_failed"]
    await one.check()


async def test_each_group_counts_its_own_versions_and_anew_when_a_person_asks_again(rows: Rows) -> None:
    one = await trained(rows, "unloadable")
    await one.train()
    await one.decide("unloadable")
    for left in ({"left_out versions_failed": 1, "scored": 1}, {"left_out versions_failed": 2}):
        half = await one.begin(limit=1)
        assert half is not None
        await one.finish(half)
        await one.decide("unloadable")
        assert await states(one) == left
    await one.again("versions_failed")
    await one.train()
    await one.decide("unloadable")
    assert await states(one) == {"left_out versions_failed": 1, "scored": 1}


async def test_what_made_a_version_behave_badly_is_left_out_until_a_person_asks_again(rows: Rows) -> None:
    one = await trained(rows, "bad")
    assert await states(one) == {"left_out version_rejected": 2}
    await one.again()
    assert await states(one) == {"left_out version_rejected": 1, "scored": 1}
    await one.check()


async def test_a_canary_that_is_taken_away_takes_its_groups_with_it(rows: Rows) -> None:
    one = await trained(rows, "canary")
    assert await states(one) == {"tried": 2}
    await alias_moves.set_canary(rows.store, one.alias.id, None, 0.0)
    assert await states(one) == {"left_out version_rejected": 2}
    await one.check()


async def test_a_rollback_untrains_and_making_the_version_live_again_trains(rows: Rows) -> None:
    one = await trained(rows)
    first = await one.live()
    await one.roll_back()
    assert await one.trained_runs() == set()
    assert await ledger.count_codes(Project(rows.store, PROJECT), "trajectory") == {"untrained": 2}
    [entry] = await ledger.latest_entries(Project(rows.store, PROJECT), code="untrained", limit=1)
    assert entry.detail == {"version": "helpdesk@1", "why": "rollback", "who": "hand"}
    await one.again()
    await one.train()  # one of the two groups, by another version
    await one.decide("live")
    await one.check()
    await one.promote(first)
    assert await states(one) == {"trained": 2}
    await one.check()
    assert await ledger.count_codes(Project(rows.store, PROJECT), "trajectory") == {"trained": 2}


async def test_a_trainer_that_lost_the_alias_makes_nothing_visible(rows: Rows) -> None:
    one = await line(rows)
    await one.traffic(2)
    late = await one.begin()
    assert late is not None
    await one.time_passes(LEASE_S + 1)
    await one.train()
    with pytest.raises(LeaseLost):
        await one.finish(late)
    await one.decide("live")
    await one.check()
    assert await states(one) == {"trained": 2}


async def test_a_group_that_kills_its_trainer_is_given_up(rows: Rows) -> None:
    one = await line(rows)
    await one.traffic(1)
    for _ in range(3):
        assert await one.begin() is not None
        await one.time_passes(LEASE_S + 1)
    assert await one.begin() is None
    assert await states(one) == {"left_out versions_failed": 1}


# --- killed between any two statements


@pytest.mark.slow
@pytest.mark.parametrize(
    "every", [pytest.param(5, id="every fifth"), pytest.param(1, id="every", marks=pytest.mark.long)]
)
@pytest.mark.parametrize("how", ["not yet", "live", "canary", "unloadable", "bad"])
async def test_a_kill_between_any_two_statements_of_step_and_decision_loses_nothing(
    rows: Rows, how: str, every: int
) -> None:
    """Of the step where the version is not decided yet, else of the decision on it."""

    async def decision(one: Line) -> None:
        await one.decide(how)
        if how == "canary":
            await one.decide("live")

    async def step_and_decision(one: Line) -> None:
        await one.train()
        await decision(one)

    whole = await line(rows, "whole")
    await whole.traffic()
    with counting(rows.store) as step:
        await whole.train()
    with counting(rows.store) as after:
        await decision(whole)
    assert min(step.seen, after.seen) > 5
    within = range(step.seen) if how == "not yet" else range(step.seen, step.seen + after.seen)
    for at in within[::every]:
        one = await line(rows, f"killed-{at}")
        await one.traffic()
        assert await one.until_killed(lambda one=one: step_and_decision(one), at)  # type: ignore[misc]  # bound in the loop
        await one.time_passes(LEASE_S + 1)
        await one.check()
        await one.decide("live")  # what was made
        await one.train()  # on what was given back
        await one.decide("live")
        await one.check()
        assert set(await states(one)) <= {"trained", "left_out version_rejected"}


# --- an hour


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "hours"), [(0, 0.25), *(pytest.param(seed, 1.0, marks=pytest.mark.long) for seed in (0, 1, 2))]
)
async def test_an_hour_of_live_traffic_under_kills(rows: Rows, seed: int, hours: float) -> None:
    """Everybody at once, killed at random: trainer, controller, person; a trainer that stalls and comes back."""
    luck = random.Random(seed)
    one = await line(rows)
    stalled = None
    clock = 0.0
    kills = 0
    while clock < hours * 3600:
        clock += (passed := luck.uniform(0, 30))
        await one.time_passes(passed)
        await one.traffic(luck.choice((0, 0, 1, 2)))
        await one.judge()
        kill_at = luck.choice((None, luck.randrange(25), luck.randrange(60)))
        decision = luck.choice(("live", "live", "live", "canary", "unloadable", "bad", "gated"))
        match luck.choice(("train", "train", "decide", "decide", "decide", "person", "stall", "back")):
            case "train":
                kills += await one.until_killed(one.train, kill_at)
            case "decide":
                kills += await one.until_killed(lambda how=decision: one.decide(how), kill_at)  # type: ignore[misc]  # bound in the loop
            case "person":
                kills += await one.until_killed(lambda: _person(one, luck), kill_at)
            case "stall":
                stalled = await one.begin()
            case "back" if stalled is not None:
                late, stalled = stalled, None
                work = luck.choice((one.finish, one.give_up))  # as if nothing had happened since
                kills += await one.until_killed(lambda late=late, work=work: work(late), kill_at)  # type: ignore[misc]  # bound in the loop
        await one.check()
    assert kills > hours * 20
    for _ in range(len(one.groups) + 2):  # the dust settles
        await one.time_passes(LEASE_S + 1)
        await one.judge()
        await one.decide("live")
        await one.train()
    await one.check()
    assert set(await states(one)) <= {"trained", "left_out version_rejected", "left_out versions_failed"}
    live = await versions.get_version(rows.store, await one.live())
    assert live.number > hours * 10
    assert (await states(one))[GroupState.TRAINED] > hours * 10


async def _person(one: Line, luck: random.Random) -> None:
    match luck.choice(("roll back", "promote", "again", "canary off")):
        case "roll back":
            await one.roll_back()
        case "promote":
            fit = [VersionState.GATED, VersionState.CANARY, VersionState.RETIRED]
            there = [v.id for v in await versions.get_versions(Project(one.store, PROJECT), fit)]
            if there:
                await one.promote(luck.choice(there[-4:]))
        case "again":
            await one.again()
        case "canary off":
            await alias_moves.set_canary(one.store, one.alias.id, None, 0.0)


# --- real processes


@pytest.mark.slow
@pytest.mark.parametrize("lives", [3, pytest.param(8, marks=pytest.mark.long)])
async def test_processes_that_are_killed_at_any_moment_lose_nothing(rows: Rows, lives: int) -> None:
    luck = random.Random(7)
    one = await line(rows)
    for _ in range(lives):
        with rows.store.watch.on(Topic.SERVICE, Topic.GROUPS) as news:
            async with _working(rows):
                await one.traffic(2)
                for _ in range(luck.randrange(2, 9)):  # so many commits later, both are gone at once
                    if not await news.wait(IDLE_S):
                        break  # nothing is left to do, and nothing would come
        await one.check()
    await leases.release_dead(Project(rows.store, PROJECT), leases.trainer_lease(one.alias.name))
    for _ in range(lives):
        await one.train()
        await one.decide("live")
    await one.check()
    assert (await states(one))["trained"] >= lives * 10 / 8
    assert set(await states(one)) <= {"trained", "left_out versions_failed"}


@asynccontextmanager
async def _working(rows: Rows) -> AsyncIterator[None]:
    """A trainer and a controller, who both look for work already; killed at the end."""
    both = [await _start(role, rows) for role in ("train", "decide")]
    try:
        for process in both:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"working\n"
        yield
    finally:
        for process in both:
            process.kill()
        for process in both:
            await process.wait()


async def _start(role: str, rows: Rows) -> asyncio.subprocess.Process:
    url = rows.store.url.render_as_string(hide_password=False)
    child = (sys.executable, "-m", "tests.recorder.descending_child", role, url)
    return await asyncio.create_subprocess_exec(*child, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
