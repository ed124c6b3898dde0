"""Notifications in the store: each event once, one of a kind at a time, and further tries with an end."""

from __future__ import annotations

import pytest
from sqlalchemy import update

from recorder.errors import LeaseLost
from recorder.ids import first_id_at
from recorder.queue import leases, notifications
from recorder.queue.leases import Lease
from recorder.queue.notifications import (
    INTERVAL_S,
    KEPT_DAYS,
    LONGEST_WAIT_S,
    MOST_TRIES,
    NOTIFIER,
    Notice,
    NoticeCursor,
    NoticeKind,
    retry_wait_s,
)
from recorder.states import NotificationState
from recorder.store import schema
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT

CURSOR = NoticeCursor(7, 9, 100.0, ("a",))


def notice(event: str, kind: NoticeKind = NoticeKind.ALARM, at: float = 5.0) -> Notice:
    return Notice(kind, event, f"{event} happened.", "/hone/", at, {"n": 1})


@pytest.fixture
async def project(store: Store) -> Project:
    made = Project(store, PROJECT)
    await notifications.load_cursor(made)
    return made


async def hold(project: Project, owner: str = "a") -> Lease:
    lease = await leases.acquire_lease(project, NOTIFIER, owner, 60)
    assert lease is not None
    return lease


async def test_an_event_is_written_once_and_with_its_cursor(project: Project) -> None:
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice("one"), notice("two")], CURSOR)
    await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    listed = await notifications.list_notifications(project)
    assert sorted(one.what for one in listed) == ["one happened.", "two happened."]
    assert {one.state for one in listed} == {NotificationState.WAITING}
    assert await notifications.load_cursor(project) == CURSOR


async def test_a_sender_that_lost_its_lease_writes_neither(project: Project) -> None:
    lease = await hold(project)
    before = await notifications.load_cursor(project)
    async with project.store.write() as conn:
        await conn.execute(update(schema.leases).values(lease_owner="b", lease_epoch=2))
    with pytest.raises(LeaseLost):
        await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    with pytest.raises(LeaseLost):
        await notifications.claim_due(project, lease)
    assert await notifications.list_notifications(project) == []
    assert await notifications.load_cursor(project) == before


async def test_of_several_of_a_kind_the_newest_is_sent_and_counts_the_others(project: Project) -> None:
    lease = await hold(project)
    live = notice("live", NoticeKind.VERSION_LIVE)
    many = [notice("one", at=1.0), notice("two", at=3.0), notice("three", at=2.0), live]
    await notifications.write_notices(project, lease, many, CURSOR)
    claimed = await notifications.claim_due(project, lease)
    assert [(one.kind, one.what, one.omitted, one.tries) for one in claimed] == [
        ("alarm", "two happened.", 2, 1),
        ("version_live", "live happened.", 0, 1),
    ]
    for one in claimed:
        await notifications.note_sent(project, one)
    listed = {one.what: one for one in await notifications.list_notifications(project)}
    assert listed["one happened."].state == listed["three happened."].state == NotificationState.COUNTED
    assert listed["one happened."].counted_in == claimed[0].id
    assert listed["two happened."].state == NotificationState.SENT
    assert listed["two happened."].sent_at is not None


async def test_a_kind_rests_for_a_minute_and_others_do_not(project: Project) -> None:
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    (first,) = await notifications.claim_due(project, lease)
    await notifications.note_sent(project, first)
    later = [notice("two"), notice("three"), notice("live", NoticeKind.VERSION_LIVE)]
    await notifications.write_notices(project, lease, later, CURSOR)
    (live,) = await notifications.claim_due(project, lease)
    assert live.kind == "version_live"
    await notifications.note_sent(project, live)
    await _tried_s_ago(project, INTERVAL_S + 1)
    again = await notifications.claim_due(project, lease)
    assert [(one.kind, one.omitted) for one in again] == [("alarm", 1)]


async def test_a_failed_try_is_repeated_with_the_same_id_and_new_ones_wait(project: Project) -> None:
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    (first,) = await notifications.claim_due(project, lease)
    await notifications.note_failure(project, first, "h answered 500", final=False)
    await notifications.write_notices(project, lease, [notice("two")], CURSOR)
    assert await notifications.claim_due(project, lease) == []
    await _tried_s_ago(project, INTERVAL_S + 1)
    (again,) = await notifications.claim_due(project, lease)
    assert (again.id, again.tries, again.omitted) == (first.id, 2, 0)
    await _tried_s_ago(project, INTERVAL_S + 1)  # the second pause is longer
    assert await notifications.claim_due(project, lease) == []
    await notifications.note_sent(project, again)
    listed = {one.what: one for one in await notifications.list_notifications(project)}
    assert (listed["one happened."].state, listed["one happened."].error) == (NotificationState.SENT, None)
    assert listed["two happened."].state == NotificationState.WAITING


async def test_tries_end(project: Project) -> None:
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    for tries in range(1, MOST_TRIES + 1):
        (one,) = await notifications.claim_due(project, lease)
        assert one.tries == tries
        await notifications.note_failure(project, one, "h answered 500", final=False)
        await _tried_s_ago(project, LONGEST_WAIT_S + 1)
    (listed,) = await notifications.list_notifications(project)
    assert (listed.state, listed.error) == (NotificationState.FAILED, "h answered 500")
    assert not await notifications.has_waiting(project)


async def test_a_final_failure_is_not_repeated(project: Project) -> None:
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice("one")], CURSOR)
    (one,) = await notifications.claim_due(project, lease)
    await notifications.note_failure(project, one, "h answered 404", final=True)
    assert not await notifications.has_waiting(project)


def test_the_pauses_of_further_tries() -> None:
    pauses = [retry_wait_s(tries) for tries in range(1, MOST_TRIES)]
    assert pauses[:5] == [60.0, 120.0, 240.0, 480.0, 900.0]
    assert min(pauses) >= INTERVAL_S
    assert 3600.0 < sum(pauses) < 3 * 3600.0


async def test_old_ones_are_removed_and_recent_ones_are_kept(project: Project, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifications, "MOST_KEPT", 2)
    lease = await hold(project)
    await notifications.write_notices(project, lease, [notice(f"{n}") for n in range(4)], CURSOR)
    at = 1_000_000_000.0
    async with project.store.write() as conn:
        for number, age_days in enumerate((0.0, 1.0, 2.0, KEPT_DAYS + 1)):
            row = schema.notifications.c.event == f"{number}"
            new = first_id_at("ntf", at - age_days * 86400.0)
            await conn.execute(update(schema.notifications).where(row).values(id=new))

    async def kept(now: float) -> list[str]:
        await notifications.remove_old(project, now)
        return [one.what for one in await notifications.list_notifications(project)]

    assert await kept(at - 3 * 86400.0) == ["0 happened.", "1 happened.", "2 happened."]  # older than 30 days
    assert await kept(at - 2 * 86400.0 + 500) == ["0 happened.", "1 happened.", "2 happened."]  # one more, just written
    assert await kept(at) == ["0 happened.", "1 happened."]  # the newest two


async def _tried_s_ago(project: Project, ago_s: float) -> None:
    """As if the last tries were so long ago."""
    table = schema.notifications
    moved = update(table).where(table.c.tried_at.is_not(None))
    async with project.store.write() as conn:
        await conn.execute(moved.values(tried_at=table.c.tried_at - ago_s, try_after=table.c.try_after - ago_s))
