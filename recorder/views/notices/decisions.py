"""Rows of the ledger as notices: decisions about versions, findings that pause learning, and health rules.

Owns: which rows are told, and their sentences. Refuses: free text of a row, which a person, a model or users' code may
have written: a notice has its code instead.
"""

from __future__ import annotations

import hashlib
import math
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.notifications import Notice, NoticeCursor, NoticeKind, newest_ledger_row
from recorder.registry.learning_health import HEALTH_RULES
from recorder.registry.live_findings import DRIFT, FALL, HEALTH
from recorder.states import VersionState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import aliases, campaigns, ledger, versions
from recorder.views.campaigns.events import ALARM

OLDEST_S: Final = 7 * 86400.0  # older events are not told: notifications were off, or the store is a backup
SETTLE_S: Final = 60.0  # a transaction that takes longer is not told
_MOST_ROWS: Final = 1000  # of one look
_MOST_FIGURES: Final = 20
_CODE: Final = re.compile(r"[a-z][a-z0-9_]{0,63}(?=:|\Z)")
_LIVE: Final = ("promote", "gate")
_FINDINGS: Final = (FALL, DRIFT, HEALTH)
_OF_VERSIONS: Final = (
    *_LIVE, "rollback", "canary_ended", *_FINDINGS, str(VersionState.REJECTED), str(VersionState.GATED),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class LedgerEvent:
    """A row of the ledger, with the name of what it is about: a version's, an alias's or a campaign's."""

    id: int
    kind: str
    code: str
    detail: Mapping[str, Any]
    at: float
    name: str


async def read_decisions(
    project: Project, cursor: NoticeCursor, by_hand: Collection[str]
) -> tuple[list[Notice], NoticeCursor]:
    """Return the notices of rows after the cursor, oldest first, and the cursor after them.

    A look repeats the rows that have not settled, so some notices may be written already. `by_hand`: the aliases whose
    versions wait for a person. Raises StoreError.
    """
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        newest = await newest_ledger_row(conn)
        rows = await _read_rows(conn, project.id, cursor.settled_id, at - OLDEST_S)
        names = await _read_names(conn, rows)
    found = [
        LedgerEvent(row.id, row.object_kind, row.code, row.detail or {}, row.at, names[row.object_id])
        for row in rows
        if row.object_id in names
    ]
    notices = [one for event in found if (one := notice_of(event, by_hand)) is not None]
    if len(rows) == _MOST_ROWS:  # more than one look reads: the rest comes with the next
        last = int(rows[-1].id)
        return notices, NoticeCursor(last, max(last, cursor.mark_id), cursor.marked_at, cursor.present)
    return notices, settle(cursor, newest, at)


def settle(cursor: NoticeCursor, newest: int, at: float) -> NoticeCursor:
    """Return the cursor at a time (unix seconds) at which `newest` is the newest row of the ledger."""
    if at - cursor.marked_at < SETTLE_S:
        return cursor
    # a restored store continues with lower numbers
    settled = min(cursor.mark_id, newest)
    return NoticeCursor(settled, newest, at, cursor.present)


async def _read_rows(conn: AsyncConnection, project_id: str, after: int, since: float) -> list[Any]:
    query = (
        select(ledger)
        .where(
            ledger.c.id > after,
            sql.without_index(ledger.c.project_id) == project_id,
            # by the ids alone: new rows are few, and those of a kind may be many
            sql.without_index(ledger.c.object_kind).in_(("version", "campaign", "alias")),
            sql.without_index(ledger.c.code).in_((*_OF_VERSIONS, ALARM, HEALTH_RULES)),
            ledger.c.at >= since,
        )
        .order_by(ledger.c.id)
        .limit(_MOST_ROWS)
    )
    return list(await conn.execute(query))


async def _read_names(conn: AsyncConnection, rows: Iterable[Any]) -> dict[str, str]:
    """Return the names of the objects of rows, by id."""
    ids = {
        kind: {row.object_id for row in rows if row.object_kind == kind} for kind in ("version", "campaign", "alias")
    }
    names: dict[str, str] = {}
    if ids["version"]:
        of_alias = versions.join(aliases, aliases.c.id == versions.c.alias_id)
        query = select(versions.c.id, aliases.c.name, versions.c.number).select_from(of_alias)
        found = await conn.execute(query.where(versions.c.id.in_(ids["version"])))
        names |= {id_: f"{alias}@{number}" for id_, alias, number in found}
    for table, kind in ((campaigns, "campaign"), (aliases, "alias")):
        if ids[kind]:
            named = await conn.execute(select(table.c.id, table.c.name).where(table.c.id.in_(ids[kind])))
            names.update((row.id, row.name) for row in named)
    return names


# --- rows as notices


def notice_of(event: LedgerEvent, by_hand: Collection[str]) -> Notice | None:
    """Return the notice of a row, or None if it is not told."""
    said = _of_version(event, by_hand) if event.kind == "version" else _of_health(event)
    if said is None:
        return None
    kind, what, link = said
    key = hashlib.sha256(f"ledger {event.id} {event.at!r}".encode()).hexdigest()[:32]
    return Notice(kind, key, what, link, event.at, numbers_of(event.detail.get("figures")))


def _of_version(event: LedgerEvent, by_hand: Collection[str]) -> tuple[NoticeKind, str, str] | None:
    name, alias, link = event.name, event.name.rpartition("@")[0], version_link(event.name)
    hand = event.detail.get("who") != "controller"
    if event.code in _LIVE:
        how = "the gate decided" if event.code == "gate" else "a person or a key decided"
        return NoticeKind.VERSION_LIVE, f"{name} is live: {how}.", link
    if event.code == "rollback":
        how = "a person or a key rolled back" if hand else "the version after it was shown to be worse"
        return NoticeKind.VERSION_ROLLED_BACK, f"{name} is live again: {how}.", link
    if event.code == "canary_ended":
        how = "a person or a key decided" if hand else "it was shown to be worse"
        return NoticeKind.VERSION_ROLLED_BACK, f"The canary {name} was removed: {how}.", link
    if event.code == VersionState.REJECTED:
        return NoticeKind.VERSION_REJECTED, f"{name} was rejected{_because(event.detail.get('reason'))}.", link
    if event.code == VersionState.GATED:
        what = f"{name} passed its checks and waits for a person: `hone promote {name}` makes it live."
        return (NoticeKind.REVIEW_WAITING, what, link) if alias in by_hand else None
    what = (
        f"Learning of {alias} is paused: {event.code} was found about {name}. `hone promote {name}` keeps it, "
        f"`hone rollback {alias}` takes it back."
    )
    return NoticeKind.LEARNER_PAUSED, what, link


def _of_health(event: LedgerEvent) -> tuple[NoticeKind, str, str] | None:
    step = int(event.detail.get("step") or 0)
    if event.code == HEALTH_RULES:
        rules = sorted(code_of(one.get("rule")) for one in event.detail.get("signals") or ())
        if not rules:
            return None  # the last signal has ended
        what = f"{', '.join(rules)}: a health rule signals in learning of {event.name}, at step {step}."
        return NoticeKind.ALARM, what, "/hone/training"
    what = f"{code_of(event.detail.get('rule'))}: a health rule fired in campaign {event.name}, after step {step}"
    if event.detail.get("then") == "pause":
        return NoticeKind.LEARNER_PAUSED, f"{what}. The campaign is paused.", "/hone/training"
    ended = ". The campaign ended." if event.detail.get("then") == "stop" else "."
    return NoticeKind.ALARM, f"{what}{ended}", "/hone/training"


def version_link(name: str) -> str:
    """Return the path of a version's page."""
    return f"/hone/versions/{quote(name, safe='/@:~')}"


def code_of(text: object) -> str:
    """Return the code that a text begins with; `unknown` if it begins with none."""
    found = _CODE.match(str(text or ""))
    return found[0] if found is not None else "unknown"


def _because(reason: object) -> str:
    code = code_of(reason)
    return "" if code == "unknown" else f" ({code})"


def numbers_of(figures: object) -> dict[str, float]:
    """Return the finite numbers of recorded figures, at most twenty; nothing else of them is told."""
    if not isinstance(figures, Mapping):
        return {}
    numbers = {
        str(name): value
        for name, value in figures.items()
        if isinstance(value, int | float) and math.isfinite(value) and str(name).isascii() and len(str(name)) <= 64
    }
    return dict(list(numbers.items())[:_MOST_FIGURES])
