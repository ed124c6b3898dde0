"""What engine replicas and proxies report about themselves, so that the controller knows when unloading is safe.

Owns: the rows of `replicas` and `proxies`. Refuses: talking to engines.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Update, delete, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import new_id
from recorder.store import sql
from recorder.store.changes import mark_quiet
from recorder.store.database import Project, Store
from recorder.store.schema import proxies, replicas
from recorder.store.sql import now

PROXY_GONE_S: Final = 30.0  # a proxy without a report for this long uses no version
REMEMBERED_S: Final = 86_400.0  # rows without a report for this long are deleted

ReplicaState = Literal["up", "down", "starting", "asleep"]


@dataclass(frozen=True, slots=True)
class ReplicaView:
    """One engine. `loaded`: engine names of the adapters it holds. Times are unix seconds."""

    id: str
    project_id: str
    url: str
    base_model: str | None
    base_fingerprint: str | None
    state: ReplicaState
    detail: str | None
    loaded: list[str]
    seen_at: float


@dataclass(frozen=True, slots=True)
class ProxyView:
    """One proxy. `generations`: alias id → generation it has seen; `in_flight`: version id → requests."""

    id: str
    project_id: str
    url: str
    generations: dict[str, int]
    in_flight: dict[str, int]
    seen_at: float


async def report_replica(
    project: Project,
    url: str,
    *,
    state: ReplicaState,
    loaded: Sequence[str] = (),
    base_model: str | None = None,
    base_fingerprint: str | None = None,
    detail: str | None = None,
) -> None:
    """Write the current facts about the replica at `url`."""
    values = {
        "id": new_id("rep"),
        "project_id": project.id,
        "url": url,
        "base_model": base_model,
        "base_fingerprint": base_fingerprint,
        "state": state,
        "detail": detail,
        "loaded": list(loaded),
        "seen_at": now(),
    }
    async with project.store.write() as conn:
        await conn.execute(sql.upsert(conn, replicas, ("project_id", "url"), values, keep=("id",)))


async def touch_replica(project: Project, url: str) -> bool:
    """A heartbeat of the unchanged replica at `url`, which sends no notification. Return False if it has no row."""
    statement = update(replicas).where(replicas.c.project_id == project.id, replicas.c.url == url)
    return await _seen(project.store, statement)


async def forget_replica(project: Project, url: str) -> None:
    """Delete the row of a replica that is no longer configured."""
    async with project.store.write() as conn:
        await conn.execute(delete(replicas).where(replicas.c.project_id == project.id, replicas.c.url == url))


async def list_replicas(project: Project, within_s: float | None = None) -> list[ReplicaView]:
    """Return the project's replicas by URL; `within_s`: only those that reported within these seconds."""
    async with project.store.read() as conn:
        return await read_replicas(conn, project.id, within_s)


async def read_replicas(conn: AsyncConnection, project_id: str, within_s: float | None = None) -> list[ReplicaView]:
    """`list_replicas`, inside the caller's transaction."""
    query = select(replicas).where(replicas.c.project_id == project_id).order_by(replicas.c.url)
    if within_s is not None:
        query = query.where(replicas.c.seen_at >= now() - within_s)
    return sql.as_views(ReplicaView, await conn.execute(query))


async def report_proxy(
    project: Project,
    proxy_id: str,
    url: str,
    *,
    generations: Mapping[str, int],
    in_flight: Mapping[str, int],
) -> None:
    """Write which generations a proxy has seen, and which versions it still serves."""
    values = {
        "id": proxy_id,
        "project_id": project.id,
        "url": url,
        "generations": dict(generations),
        "in_flight": dict(in_flight),
        "seen_at": now(),
    }
    async with project.store.write() as conn:
        await conn.execute(sql.upsert(conn, proxies, ("id",), values))


async def touch_proxy(store: Store, proxy_id: str) -> bool:
    """A heartbeat of an unchanged proxy, which sends no notification. Return False if it has no row."""
    return await _seen(store, update(proxies).where(proxies.c.id == proxy_id))


async def _seen(store: Store, rows: Update) -> bool:
    async with store.write() as conn:
        return (await conn.execute(mark_quiet(rows.values(seen_at=now())))).rowcount > 0


async def forget_proxy(store: Store, proxy_id: str) -> None:
    """Delete the row of a proxy that has stopped."""
    async with store.write() as conn:
        await conn.execute(delete(proxies).where(proxies.c.id == proxy_id))


async def forget_gone_proxies(project: Project) -> None:
    """Delete the rows of proxies that were killed long ago; a proxy that stops deletes its own row."""
    gone = proxies.c.project_id == project.id, proxies.c.seen_at < now() - REMEMBERED_S
    async with project.store.write() as conn:
        await conn.execute(delete(proxies).where(*gone))


async def list_live_proxies(project: Project, within_s: float) -> list[ProxyView]:
    """Return the proxies that reported within `within_s` seconds."""
    query = (
        select(proxies)
        .where(proxies.c.project_id == project.id, proxies.c.seen_at >= now() - within_s)
        .order_by(proxies.c.id)
    )
    async with project.store.read() as conn:
        return sql.as_views(ProxyView, await conn.execute(query))
