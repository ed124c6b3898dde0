"""The drift set is drawn by the ids of trajectories alone, once there is enough traffic, and is never trained on."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import LeaseLost
from recorder.maintenance.deletion import delete_trajectory
from recorder.queue import leases
from recorder.queue.groups.same_request import open_shadow
from recorder.queue.leases import Lease
from recorder.queue.training import drift_set, steps, uses
from recorder.queue.training.drift_set import DRIFT_SET, SHARE, DriftCandidate, choose_members
from recorder.queue.training.uses import ObjectiveUse
from recorder.registry.aliases import AliasView
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import calls, choices, step_trajectories, trajectories
from recorder.store.sql import now
from recorder.views.trajectories.transcripts import load_trajectory
from tests.recorder.rows import PROJECT, Rows

BASE = "fingerprint-1"
CANDIDATES = st.lists(
    st.builds(DriftCandidate, st.text("ab", min_size=1), st.sampled_from("xyzuvw")), unique_by=lambda one: one.id
)


async def hold(rows: Rows, alias: AliasView) -> Lease:
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), leases.trainer_lease(alias.name), "trainer", 60)
    assert lease is not None
    return lease


async def record(rows: Rows, alias: AliasView, *, fingerprint: str = BASE, **values: Any) -> str:
    """A completed trajectory with one answer."""
    given = {"alias_id": alias.id, "state": "completed", "ended_at": now(), **values}
    id_ = await rows.trajectory(answered=False, **given)
    await rows.call(id_, base_fingerprint=fingerprint)
    return id_


async def draw(rows: Rows, alias: AliasView, size: int, lease: Lease) -> list[str]:
    await drift_set.draw_members(Project(rows.store, PROJECT), alias.id, BASE, size, lease)
    return await drift_set.list_members(rows.store, alias.id, BASE, 100)


@given(CANDIDATES, st.integers(1, 3), st.randoms())
def test_who_is_chosen_depends_on_the_ids_alone(found: list[DriftCandidate], missing: int, order: Random) -> None:
    chosen = choose_members(found, missing)
    shuffled = list(found)
    order.shuffle(shuffled)
    assert choose_members(shuffled, missing) == chosen
    tasks = {one.id: one.task for one in found}
    enough = len({one.task for one in found}) >= SHARE * missing
    assert len(chosen) == len({tasks[id_] for id_ in chosen}) == (missing if enough else 0)


@given(CANDIDATES, st.sets(st.sampled_from("xyzuvw")))
def test_a_task_gives_one_member(found: list[DriftCandidate], taken: set[str]) -> None:
    of = {one.id: one.task for one in found}
    assert not {of[id_] for id_ in choose_members(found, 1, taken)} & taken


async def test_nothing_is_drawn_before_four_tasks_wait_for_each_member(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)
    for _ in range(2 * SHARE - 1):
        await record(rows, alias)
    assert await draw(rows, alias, 2, lease) == []
    await record(rows, alias)
    drawn = await draw(rows, alias, 2, lease)
    assert len(drawn) == 2
    for _ in range(8):
        await record(rows, alias)
    assert await draw(rows, alias, 2, lease) == drawn  # it stays as it is
    assert [one.code for one in await ledger.object_entries(rows.store, "trajectory", drawn[0])] == [DRIFT_SET]
    assert (await load_trajectory(rows.store, drawn[0])).drift_set_at is not None


async def test_a_campaigns_group_gives_one_member_and_later_attempts_at_its_scenario_none(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)

    async def attempt_all() -> dict[str, str]:
        made: dict[str, str] = {}
        for _ in range(2 * SHARE):
            group = await rows.group(alias_id=alias.id)
            made |= {await record(rows, alias, group_id=group, origin="campaign"): group for _ in range(2)}
        return made

    first = await attempt_all()
    drawn = await draw(rows, alias, 2, lease)
    assert len({first[one] for one in drawn}) == 2  # each group keeps its other member
    await attempt_all()
    assert await draw(rows, alias, 2, lease) == drawn


async def test_only_untrained_answers_of_this_base_are_drawn(rows: Rows) -> None:
    alias, other = await rows.alias(), await rows.alias("other")
    lease = await hold(rows, alias)
    await record(rows, other)
    await record(rows, alias, fingerprint="fingerprint-2")
    for values in ({"purpose": "eval"}, {"state": "errored"}, {"origin": "shadow"}, {"mixed": True},
                   {"selection": "not_selected"}):  # fmt: skip
        await record(rows, alias, **values)
    redacted = await record(rows, alias)
    of_it = next(one.id for one in await rows.all(calls) if one.trajectory_id == redacted)
    async with rows.store.write() as conn:
        await conn.execute(choices.update().where(choices.c.call_id == of_it).values(trainable=False))
    trained, imitated = await record(rows, alias), await record(rows, alias)
    step = await steps.begin_step(rows.store, alias.id, str(alias.live_version_id))
    await rows.insert(step_trajectories, {"step_id": step.id, "trajectory_id": trained})
    async with rows.store.write() as conn:
        await uses.write_uses(conn, step.id, [ObjectiveUse("imitate", "trajectory", imitated)])
    free = [await record(rows, alias) for _ in range(SHARE - 1)]
    assert await draw(rows, alias, 1, lease) == []
    free.append(await record(rows, alias))
    assert set(await draw(rows, alias, 1, lease)) < set(free)


async def test_a_deleted_member_is_gone_and_replaced(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)
    for _ in range(2 * SHARE):
        await record(rows, alias)
    gone, kept = await draw(rows, alias, 2, lease)
    await delete_trajectory(Project(rows.store, PROJECT), gone)
    assert await drift_set.list_members(rows.store, alias.id, BASE, 100) == [kept]
    after = await draw(rows, alias, 2, lease)
    assert kept in after
    assert len(after) == 2


async def test_an_answer_of_the_set_gets_no_shadow_answers_and_one_with_them_is_not_drawn(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)
    ids = [await record(rows, alias) for _ in range(SHARE)]
    [drawn] = await draw(rows, alias, 1, lease)
    of = {one.trajectory_id: one.id for one in await rows.all(calls)}
    assert await open_shadow(rows.store, of[drawn], 1) is None
    for id_ in ids:
        await rows.set(trajectories, id_, drift_set_at=None)
        assert await open_shadow(rows.store, of[id_], 1) is not None
    assert await draw(rows, alias, 1, lease) == []


async def test_only_the_trainer_of_the_alias_draws(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)
    for _ in range(SHARE):
        await record(rows, alias)
    await leases.release_lease(rows.store, lease)
    with pytest.raises(LeaseLost):
        await draw(rows, alias, 1, lease)


async def test_a_set_of_another_base_does_not_count(rows: Rows) -> None:
    alias = await rows.alias()
    lease = await hold(rows, alias)
    for _ in range(SHARE):
        await record(rows, alias)
    [drawn] = await draw(rows, alias, 1, lease)
    assert await drift_set.list_members(rows.store, alias.id, "fingerprint-2", 100) == []
    assert await drift_set.list_members(rows.store, alias.id, BASE, 0) == []
    assert await drift_set.list_members(rows.store, alias.id, BASE, 1) == [drawn]
