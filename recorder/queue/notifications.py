"""What an operator is told: notices of events, the notifications made of them, and which one is sent next.

Owns: the rows, the cursor of reading events, the pace (one notification a minute by kind), the times of further tries,
and how long rows are kept. Refuses: what is worth telling (`recorder.views.notices`), and sending
(`proxy.notifications`).

Notices and the cursor that they were read with are written in one transaction, guarded by the sender's lease. So a
restart loses none and writes none twice. A notification is claimed before it is sent, and noted as sent afterwards: a
sender that dies in between leaves it to be sent again, with the same id.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import groupby
from typing import Any, Final

from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at, new_id
from recorder.queue.leases import Lease, require_lease
from recorder.states import NotificationState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import ledger, notification_cursors, notifications
from recorder.store.transitions import guarded_update

NOTIFIER: Final = "notifier"  # the lease of the process that sends
INTERVAL_S: Final = 60.0  # between two notifications of a kind, tries included
MOST_TRIES: Final = 12  # over about two hours
LONGEST_WAIT_S: Final = 900.0
KEPT_DAYS: Final = 30.0
MOST_KEPT: Final = 1000
_SURELY_KEPT_S: Final = 600.0  # a newer row shows that its event is told; the cursor looks back for a minute
_PREFIX: Final = "ntf"


class NoticeKind(StrEnum):
    """What a notice is about. Each kind has its own pace."""

    VERSION_LIVE = "version_live"
    VERSION_REJECTED = "version_rejected"
    VERSION_ROLLED_BACK = "version_rolled_back"
    ALARM = "alarm"
    LEARNER_PAUSED = "learner_paused"
    STORE_TROUBLE = "store_trouble"
    REVIEW_WAITING = "review_waiting"
    TEST = "test"  # a person asked for it


@dataclass(frozen=True, slots=True)
class Notice:
    """One event. `event`: its key in the project; `what`: a sentence without recorded text; `link`: a path of the
    pages; `at`: unix seconds.
    """

    kind: NoticeKind
    event: str
    what: str
    link: str
    at: float
    figures: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class NoticeCursor:
    """How far a project's events are read: the ledger up to `settled_id`, and the conditions that held (`present`).

    A row may be committed after one with a higher id. So rows settle only a while after they were seen: `mark_id` is
    the newest row of `marked_at` (unix seconds).
    """

    settled_id: int
    mark_id: int
    marked_at: float
    present: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Notification:
    """A stored notification. `omitted`: how many others of its kind it counts; `error`: why the last try failed.

    Times are unix seconds.
    """

    id: str
    kind: str
    what: str
    link: str
    figures: Mapping[str, Any]
    at: float
    state: str
    omitted: int
    counted_in: str | None
    tries: int
    tried_at: float | None
    try_after: float | None
    sent_at: float | None
    error: str | None


def new_notification_id() -> str:
    """Return a new id of a notification, by which a receiver recognizes a repetition."""
    return new_id(_PREFIX)


def retry_wait_s(tries: int) -> float:
    """Return the seconds from try number `tries` (from 1 on) to the next: 60, 120, … up to 900."""
    return min(INTERVAL_S * 2.0 ** (tries - 1), LONGEST_WAIT_S)


# --- events


async def load_cursor(project: Project) -> NoticeCursor:
    """Return how far events are read. A project without a cursor begins at the newest row: its past is not told."""
    query = select(notification_cursors).where(notification_cursors.c.project_id == project.id)
    async with project.store.read() as conn:
        row = (await conn.execute(query)).first()
        if row is not None:
            return NoticeCursor(row.settled_id, row.mark_id, row.marked_at, tuple(row.present))
        newest, at = await newest_ledger_row(conn), await sql.current_time(conn)
    first = NoticeCursor(newest, newest, at)
    async with project.store.write() as conn:  # another process may be faster, with its own beginning
        row_of = sql.insert_ignore(conn, notification_cursors).values(project_id=project.id, **_cursor_values(first))
        await conn.execute(row_of)
    return first


async def newest_ledger_row(conn: AsyncConnection) -> int:
    """Return the id of the newest ledger row of any project; 0 without one."""
    return int((await conn.execute(select(func.max(ledger.c.id)))).scalar_one() or 0)


async def write_notices(project: Project, lease: Lease, notices: Iterable[Notice], cursor: NoticeCursor) -> None:
    """Write notices that are not written yet, and the cursor, in one transaction. Raises LeaseLost."""
    async with project.store.write() as conn:
        await require_lease(conn, lease)
        for one in notices:
            await conn.execute(sql.insert_ignore(conn, notifications).values(**_waiting_row(project.id, one)))
        changed = update(notification_cursors).where(notification_cursors.c.project_id == project.id)
        await conn.execute(changed.values(**_cursor_values(cursor)))


async def add_sent(project: Project, one: Notification) -> None:
    """Add a notification that has ended, and had no row: a test, or one about the store itself."""
    row = {name: getattr(one, name) for name in Notification.__slots__}
    async with project.store.write() as conn:
        values = {**row, "project_id": project.id, "event": one.id, "figures": dict(one.figures)}
        await conn.execute(insert(notifications).values(**values))


def _waiting_row(project_id: str, one: Notice) -> dict[str, Any]:
    return {
        "id": new_notification_id(),
        "project_id": project_id,
        "kind": one.kind,
        "event": one.event,
        "what": one.what,
        "link": one.link,
        "figures": dict(one.figures),
        "at": one.at,
        "state": NotificationState.WAITING,
    }


def _cursor_values(cursor: NoticeCursor) -> dict[str, Any]:
    return {
        "settled_id": cursor.settled_id,
        "mark_id": cursor.mark_id,
        "marked_at": cursor.marked_at,
        "present": list(cursor.present),
    }


# --- sending


async def has_waiting(project: Project) -> bool:
    """Return whether a notification waits for a try, now or later."""
    async with project.store.read() as conn:
        return (await conn.execute(_waiting(project.id).limit(1))).first() is not None


async def claim_due(project: Project, lease: Lease, interval_s: float = INTERVAL_S) -> list[Notification]:
    """Claim the notifications that are due: at most one of each kind, and none within `interval_s` of the last try.

    Of several new ones the newest is claimed, and the others are counted in it. While one of a kind is tried again, new
    ones of the kind wait. Raises LeaseLost.
    """
    async with project.store.write() as conn:
        await require_lease(conn, lease)
        at = await sql.current_time(conn)
        waiting = sorted(_views(await conn.execute(_waiting(project.id))), key=lambda one: (one.kind, one.at, one.id))
        recent = await _recent_kinds(conn, project.id, at - interval_s)
        claimed = []
        for kind, group in groupby(waiting, key=lambda one: one.kind):
            of_kind = list(group)
            if kind not in recent and (one := _next(of_kind, at)) is not None:
                claimed.append(await _claim(conn, one, of_kind if not one.tries else [one], at))
        return claimed


def _next(of_kind: Sequence[Notification], at: float) -> Notification | None:
    """The notification of a kind to send now: the one that is tried again, if it is due, else the newest."""
    again = next((one for one in of_kind if one.tries), None)
    if again is None:
        return of_kind[-1]
    return again if (again.try_after or 0.0) <= at else None


async def _claim(conn: AsyncConnection, one: Notification, counted: Sequence[Notification], at: float) -> Notification:
    others = [other.id for other in counted if other.id != one.id]
    if others:
        merge = guarded_update(notifications, NotificationState.COUNTED, counted_in=one.id)
        await conn.execute(merge.where(notifications.c.id.in_(others)))
    tries, omitted = one.tries + 1, one.omitted + len(others)
    try_after = at + retry_wait_s(tries)
    values = {"tries": tries, "omitted": omitted, "tried_at": at, "try_after": try_after}
    await conn.execute(update(notifications).where(notifications.c.id == one.id).values(**values))
    fields = {name: getattr(one, name) for name in Notification.__slots__}
    return Notification(**{**fields, **values})


async def _recent_kinds(conn: AsyncConnection, project_id: str, since: float) -> set[str]:
    """Return the kinds of which one was tried since a time."""
    tried = (notifications.c.project_id == project_id, notifications.c.tried_at > since)
    return set((await conn.execute(select(notifications.c.kind).where(*tried).distinct())).scalars())


async def note_sent(project: Project, one: Notification) -> None:
    """Note that a claimed notification arrived."""
    statement = guarded_update(notifications, NotificationState.SENT, sent_at=sql.now(), try_after=None, error=None)
    async with project.store.write() as conn:
        await conn.execute(statement.where(notifications.c.id == one.id))


async def note_failure(project: Project, one: Notification, error: str, *, final: bool) -> None:
    """Note why a claimed notification did not arrive. It is tried again, unless `final` or after `MOST_TRIES`."""
    if final or one.tries >= MOST_TRIES:
        statement = guarded_update(notifications, NotificationState.FAILED, error=error, try_after=None)
    else:
        statement = update(notifications).values(error=error)
    async with project.store.write() as conn:
        await conn.execute(statement.where(notifications.c.id == one.id, notifications.c.tries == one.tries))


# --- lists


async def list_notifications(project: Project, limit: int = 50) -> list[Notification]:
    """Return the newest notifications, newest first."""
    query = select(*_COLUMNS).where(notifications.c.project_id == project.id)
    async with project.store.read() as conn:
        return _views(await conn.execute(query.order_by(notifications.c.id.desc()).limit(limit)))


async def remove_old(project: Project, at: float) -> None:
    """Delete the notifications that are older than `KEPT_DAYS` at a time (unix seconds), or not of the newest ones."""
    own = notifications.c.project_id == project.id
    spare = select(notifications.c.id).where(own).order_by(notifications.c.id.desc()).offset(MOST_KEPT).limit(1)
    async with project.store.read() as conn:
        first_spare = (await conn.execute(spare)).scalar_one_or_none() or ""
    last = max(first_spare, first_id_at(_PREFIX, at - KEPT_DAYS * 86400.0))
    last = min(last, first_id_at(_PREFIX, at - _SURELY_KEPT_S))
    async with project.store.write() as conn:
        await conn.execute(delete(notifications).where(own, notifications.c.id <= last))


_COLUMNS: Final = tuple(notifications.c[name] for name in Notification.__slots__)


def _waiting(project_id: str) -> Any:
    return select(*_COLUMNS).where(
        notifications.c.project_id == project_id, notifications.c.state == NotificationState.WAITING
    )


def _views(rows: Any) -> list[Notification]:
    return sql.as_views(Notification, rows)
