"""Folders of old versions are let go of; those that anybody needs or holds are not."""

from __future__ import annotations

import time

import pytest

from recorder.errors import Conflict
from recorder.maintenance.retention import FOLDER_REMOVED, known_folders, release_folders
from recorder.queue import campaigns
from recorder.registry import alias_moves, replicas, versions
from recorder.registry.kept_versions import DAY_S
from recorder.states import VersionState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import proxies, steps
from recorder.store.schema import versions as version_rows
from recorder.store.sql import now
from recorder.views.campaigns.events import VALIDATION
from tests.recorder.descending import Line, line
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow


async def lived(rows: Rows, count: int) -> tuple[Line, list[str]]:
    """An alias with so many versions, each live after the other; their ids."""
    one, ids = await line(rows), []
    for number in range(count):
        await one.traffic()
        await one.train()
        await one.decide("live")
        ids.append(await one.live())
        await rows.set(version_rows, ids[-1], path=f"/data/adapters/helpdesk@{number + 1}-0123456789ab")
    return one, ids


async def released(one: Line, keep: int = 1) -> list[str]:
    return [row.version_id for row in await release_folders(one.store, one.alias.id, keep)]


async def test_all_but_the_live_version_and_the_one_before_go(rows: Rows) -> None:
    one, ids = await lived(rows, 4)
    step = next(row for row in await rows.all(steps) if row.version_id == ids[0])
    await rows.set(steps, step.id, checkpoint_path="/data/checkpoints/x")
    gone = await release_folders(one.store, one.alias.id, 1)
    assert [row.version_id for row in gone] == ids[:2]
    assert gone[0].path == "/data/adapters/helpdesk@1-0123456789ab"
    assert [row.checkpoint_path for row in gone] == ["/data/checkpoints/x", None]
    assert (await rows.get(steps, step.id))["checkpoint_path"] is None
    assert FOLDER_REMOVED in [entry.code for entry in await ledger.object_entries(rows.store, "version", ids[0])]
    assert await released(one) == []


async def test_a_version_that_settings_name_stays(rows: Rows) -> None:
    one, ids = await lived(rows, 4)
    named = await release_folders(one.store, one.alias.id, 1, {f"{one.alias.name}@1", "another@2"})
    assert [row.version_id for row in named] == [ids[1]]


async def test_one_version_of_each_day_and_week_is_kept_for_comparison(rows: Rows) -> None:
    """Days begin at midnight UTC: the ages are from the middle of this one."""
    one, ids = await lived(rows, 6)
    async with rows.store.read() as conn:
        midday = (await sql.current_time(conn) // DAY_S + 0.5) * DAY_S
    for id_, days in zip(ids, (60, 3.2, 3.1, 3.0, 0.2, 0), strict=True):
        await rows.set(version_rows, id_, created_at=midday - days * DAY_S)
    assert await released(one) == ids[:3]
    await rows.set(version_rows, ids[3], created_at=midday - 60 * DAY_S)
    assert await released(one) == [ids[3]]


async def test_a_version_off_the_line_is_not_kept_for_comparison(rows: Rows) -> None:
    one, ids = await lived(rows, 2)
    await one.roll_back()
    for _ in range(2):
        await one.traffic()
        await one.train()
        await one.decide("live")
    for id_, days in zip(ids, (4, 3), strict=True):
        await rows.set(version_rows, id_, created_at=time.time() - days * DAY_S)
    assert await released(one) == [ids[1]]


async def test_the_newest_are_kept(rows: Rows) -> None:
    one, ids = await lived(rows, 5)
    assert await released(one, keep=4) == ids[:1]


async def measured(one: Line, name: str, *found: tuple[int, float | None, float | None]) -> None:
    """A campaign that measured versions: number, success, reward."""
    campaign = await campaigns.create_campaign(Project(one.store, PROJECT), one.alias.id, name, {})
    rows = [
        LedgerRow(PROJECT, "campaign", campaign.id, VALIDATION, {"version": f"helpdesk@{n}", "success": s, "reward": r})
        for n, s, r in found
    ]
    async with one.store.write() as conn:
        await ledger.write_rows(conn, rows)


async def test_the_best_one_of_the_newest_campaign_that_measured_any_is_kept(rows: Rows) -> None:
    one, ids = await lived(rows, 6)
    await measured(one, "first", (1, 0.9, None))
    await measured(one, "second", (0, 0.1, None), (2, 0.8, 0.0), (3, 0.8, 0.0), (4, 0.5, 1.0))
    await measured(one, "third")
    assert await released(one) == [ids[0], ids[1], ids[3]]
    await measured(one, "by reward", (1, None, 0.3), (2, None, None))
    assert await released(one) == [ids[2]]


async def test_the_best_one_may_have_been_told_by_its_wins(rows: Rows) -> None:
    one, ids = await lived(rows, 4)
    campaign = await campaigns.create_campaign(Project(one.store, PROJECT), one.alias.id, "wins", {})
    said = [{"version": f"helpdesk@{n}", "success": None, "win_rate": won} for n, won in ((1, 0.7), (2, 0.4))]
    async with one.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", campaign.id, VALIDATION, row) for row in said])
    assert await released(one) == [ids[1]]


@pytest.mark.parametrize("how", ["run", "group"])
async def test_what_an_open_run_or_group_is_pinned_to_is_kept(rows: Rows, how: str) -> None:
    one, ids = await lived(rows, 3)
    if how == "run":
        await rows.trajectory(version_id=ids[0])
        await rows.trajectory(version_id=ids[1], state="completed")
    else:
        await rows.group(version_id=ids[0])
    assert await released(one) == []


async def test_what_an_engine_or_a_proxy_holds_is_kept_until_it_lets_go(rows: Rows, store: Store) -> None:
    one, ids = await lived(rows, 4)
    name = (await versions.get_version(store, ids[0])).engine_name
    await replicas.report_replica(Project(store, PROJECT), "http://engine", state="up", loaded=[name])
    await replicas.report_proxy(Project(store, PROJECT), "proxy_1", "", generations={}, in_flight={ids[1]: 1})
    assert await released(one) == []
    await replicas.report_replica(Project(store, PROJECT), "http://engine", state="up", loaded=[])
    assert await released(one) == [ids[0]]
    await replicas.forget_proxy(store, "proxy_1")
    assert await released(one) == [ids[1]]


async def test_what_a_killed_proxy_held_goes_once_it_was_not_heard_of_for_long_enough(rows: Rows, store: Store) -> None:
    one, ids = await lived(rows, 3)
    await replicas.report_proxy(Project(store, PROJECT), "killed", "", generations={}, in_flight={ids[0]: 1})
    await rows.set(proxies, "killed", seen_at=now() - replicas.PROXY_GONE_S + 10)
    assert ids[0] not in await released(one)
    await rows.set(proxies, "killed", seen_at=now() - replicas.PROXY_GONE_S - 1)
    assert ids[0] in await released(one)


async def test_what_waits_for_its_decision_is_kept_and_what_was_rejected_goes(rows: Rows) -> None:
    one, ids = await lived(rows, 2)
    await one.traffic()
    await one.train()
    waiting = await versions.find_pending_version(one.store, one.alias.id)
    assert waiting is not None
    assert await released(one) == []
    await one.decide("bad")
    await one.train()
    await one.traffic()
    await one.train()
    await one.decide("live")
    assert await released(one) == [ids[0], waiting.id]


async def test_a_version_without_its_folder_is_not_made_live(rows: Rows) -> None:
    one, ids = await lived(rows, 3)
    assert await released(one) == ids[:1]
    with pytest.raises(Conflict, match=r"helpdesk@1 cannot be made live: its folder was removed"):
        await one.promote(ids[0])
    await one.promote(ids[1])
    assert await one.live() == ids[1]
    with pytest.raises(Conflict, match="its folder was removed"):
        await one.promote(ids[0])
    await alias_moves.set_live(one.store, one.alias.id, ids[2], why="promote")


async def test_the_names_of_folders_that_are_known(rows: Rows) -> None:
    one, ids = await lived(rows, 1)
    writing = await versions.allocate_version(one.store, one.alias.id, ids[0])
    assert writing.state is VersionState.ALLOCATED
    assert await known_folders(one.store) == {"helpdesk@1-0123456789ab", "helpdesk@2"}
