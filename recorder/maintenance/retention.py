"""Which versions' adapter folders may be removed, and clearing them in the store.

Owns: the rule. These stay: the live version and the one before it, the canary, undecided versions, versions that open
trajectories or groups are pinned to, the best version of the newest campaign with a measure, the newest `keep`, those
that settings name, those of the live version's line that newer ones are compared with
(`recorder.registry.kept_versions`), and versions that an engine or proxy still uses. Refuses: files. The process that
wrote a folder removes it after the row is cleared; a kill in between leaves a folder without a row.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, exists, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry import kept_versions
from recorder.registry.replicas import PROXY_GONE_S
from recorder.states import GroupState, TrajectoryState, VersionState
from recorder.store import ledger, sql
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, campaigns, groups, proxies, replicas, steps, trajectories, versions
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now
from recorder.views.campaigns.events import VALIDATION, Validation, decode_event
from recorder.views.campaigns.measures import infer_measure, measure_value

FOLDER_REMOVED: Final = "folder_removed"  # ledger code of a version: it cannot be made live again
_ENDED: Final = (VersionState.RETIRED, VersionState.REJECTED, VersionState.ABANDONED)


@dataclass(frozen=True, slots=True)
class ReleasedFolders:
    """A version whose folders were cleared in the store and may be removed."""

    version_id: str
    path: str
    checkpoint_path: str | None


async def release_folders(store: Store, alias_id: str, keep: int, named: Collection[str] = ()) -> list[ReleasedFolders]:
    """Clear the folders of an alias's unneeded versions, except its `keep` newest ones and the versions `named`."""
    async with store.write() as conn:
        locked = select(aliases).where(aliases.c.id == alias_id).with_for_update()
        alias = (await conn.execute(locked)).one()
        held = await _held(conn, alias.project_id)
        kept_names = {await _best(conn, alias), *named}
        compared = await _compared(conn, alias)
        found = [
            row
            for row in await conn.execute(_ended(alias, keep))
            if row.id not in compared
            and not held & {row.id, row.engine_name}
            and f"{alias.name}@{row.number}" not in kept_names
        ]
        return [await _release(conn, row) for row in found]


async def _held(conn: AsyncConnection, project_id: str) -> set[str]:
    """Return the engine names of loaded adapters, and the ids of versions that running proxies may still request."""
    loaded = select(replicas.c.loaded).where(replicas.c.project_id == project_id)
    living = proxies.c.project_id == project_id, proxies.c.seen_at >= now() - PROXY_GONE_S
    asked = select(proxies.c.in_flight).where(*living)
    rows = [*(await conn.execute(loaded)).scalars(), *(await conn.execute(asked)).scalars()]
    return {name for row in rows for name in row}


async def _compared(conn: AsyncConnection, alias: Any) -> set[str]:
    """Return the ids of the versions that newer ones are compared with: one of each of the last days and weeks."""
    if alias.live_version_id is None:
        return set()
    line = await kept_versions.read_line(conn, alias.live_version_id)
    return kept_versions.keep_by_age(line, await sql.current_time(conn))


async def _best(conn: AsyncConnection, alias: Any) -> str | None:
    """Return the name of the best version of the newest campaign with a measure; of equal ones, the newest."""
    of_campaign = ledger_rows.join(campaigns, campaigns.c.id == ledger_rows.c.object_id)
    query = select(campaigns.c.id, ledger_rows.c.detail).select_from(of_campaign)
    query = query.where(ledger_rows.c.object_kind == "campaign", ledger_rows.c.code == VALIDATION)
    query = query.where(campaigns.c.alias_id == alias.id).order_by(campaigns.c.started_at, ledger_rows.c.id)
    rows = list(await conn.execute(query))
    events = [decode_event(VALIDATION, row.detail) for row in rows if row.id == rows[-1].id and row.detail is not None]
    validations = [event for event in events if isinstance(event, Validation)]
    measure = infer_measure(validations)
    values = {one.version: value for one in validations if (value := measure_value(one, measure)) is not None}
    return max(reversed(values), key=values.__getitem__, default=None)


def _ended(alias: Any, keep: int) -> Select[Any]:
    own = (versions.c.alias_id == alias.id, versions.c.number > 0, versions.c.path.is_not(None))
    newest = select(versions.c.id).where(*own).order_by(versions.c.number.desc()).limit(keep)
    pointed = [id_ for id_ in (alias.live_version_id, alias.previous_version_id, alias.canary_version_id) if id_]
    return select(versions).where(
        *own,
        versions.c.state.in_(_ENDED),
        versions.c.id.not_in(pointed),
        versions.c.id.not_in(newest.scalar_subquery()),
        ~_pinned(alias.project_id),
    )


def _pinned(project_id: str) -> ColumnElement[bool]:
    runs = exists().where(
        trajectories.c.project_id == project_id,
        trajectories.c.state == TrajectoryState.OPEN,
        trajectories.c.version_id == versions.c.id,
    )
    tasks = exists().where(
        groups.c.project_id == project_id, groups.c.state == GroupState.OPEN, groups.c.version_id == versions.c.id
    )
    return runs | tasks


async def _release(conn: AsyncConnection, version: Any) -> ReleasedFolders:
    made = steps.c.version_id == version.id
    checkpoint = (await conn.execute(select(steps.c.checkpoint_path).where(made))).scalars().first()
    await conn.execute(update(steps).where(made).values(checkpoint_path=None))
    await conn.execute(update(versions).where(versions.c.id == version.id).values(path=None))
    await ledger.write_rows(conn, [LedgerRow(version.project_id, "version", version.id, FOLDER_REMOVED)])
    return ReleasedFolders(version.id, version.path, checkpoint)


async def known_folders(store: Store) -> set[str]:
    """Return the folder names of all versions, and the prefixes (`<slug>@<number>`) of those being written."""
    query = select(versions.c.path, versions.c.engine_name, versions.c.state).where(versions.c.number > 0)
    async with store.read() as conn:
        rows = list(await conn.execute(query))
    paths = {row.path.rpartition("/")[2] for row in rows if row.path}
    return paths | {row.engine_name for row in rows if row.state == VersionState.ALLOCATED}
