"""The values that exist for each filter, for forms and shell completion.

Owns: these queries, each by an index or over the newest rows. Refuses: the filters themselves
(`recorder.views.lists.filters`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Select, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.curation.datasets import list_datasets
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.ledger import TRAINED
from recorder.store.schema import aliases, calls, campaigns, groups, keys, ledger, trajectory_facets, versions
from recorder.totals.call_facts import Facet

MOST: Final = 200  # values of one filter
_NEWEST_CALLS: Final = 500  # calls whose attribution is read
_SAID_OF_RUNS: Final = (ledger.c.object_kind == "trajectory",)
_NOT_OFFERED: Final = frozenset({"deleted"})  # deleted trajectories are in no list


@dataclass(frozen=True, slots=True)
class FilterValues:
    """Values by filter; `reasons` differ between trajectories and groups."""

    aliases: list[str]
    versions: list[str]
    reasons: list[str]
    sources: list[str]
    campaigns: list[str]
    clients: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)  # names
    tools: list[str] = field(default_factory=list)
    finish_reasons: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)  # names


async def trajectory_filter_values(project: Project) -> FilterValues:
    """Return the values of the trajectories' filters."""
    named = [one.name for one in await list_datasets(project)][:MOST]
    async with project.store.read() as conn:
        said = await _distinct(conn, ledger.c.code, ledger.c.project_id == project.id, *_SAID_OF_RUNS)
        of_groups = await _distinct(conn, groups.c.reason, groups.c.project_id == project.id)
        reasons = sorted({*said, *of_groups} - _NOT_OFFERED, key=lambda code: (code != TRAINED, code))
        return FilterValues(
            aliases=await _aliases(conn, project.id),
            versions=await _versions(conn, project.id),
            reasons=reasons,
            sources=await _sources(conn, project.id),
            campaigns=[],
            clients=await _facets(conn, project.id, Facet.CLIENT),
            keys=await _keys(conn, project.id),
            tools=await _facets(conn, project.id, Facet.TOOL),
            finish_reasons=await _facets(conn, project.id, Facet.FINISH_REASON),
            datasets=named,
        )


async def group_filter_values(project: Project) -> FilterValues:
    """Return the values of the groups' filters."""
    async with project.store.read() as conn:
        reasons = await _distinct(conn, groups.c.reason, groups.c.project_id == project.id)
        return FilterValues(
            aliases=await _aliases(conn, project.id),
            versions=await _versions(conn, project.id),
            reasons=reasons,
            sources=[],
            campaigns=await _campaigns(conn, project.id),
        )


async def _distinct(conn: AsyncConnection, column: Column[Any], *which: ColumnElement[bool]) -> list[str]:
    """Return the distinct values of an index's last column, by one seek each: few values, however many rows."""
    found: list[str] = []
    above: Select[Any] = select(func.min(column)).where(*which, column.is_not(None))
    while len(found) < MOST:
        query = above if not found else above.where(column > found[-1])
        value: str | None = (await conn.execute(query)).scalar_one()
        if value is None:
            break
        found.append(value)
    return found


async def _aliases(conn: AsyncConnection, project_id: str) -> list[str]:
    query = select(aliases.c.name).where(aliases.c.project_id == project_id).order_by(aliases.c.name)
    return list((await conn.execute(query.limit(MOST))).scalars())


async def _versions(conn: AsyncConnection, project_id: str) -> list[str]:
    """Return the newest version names, alias by alias."""
    query = select(aliases.c.name, versions.c.number).join(versions, versions.c.alias_id == aliases.c.id)
    query = query.where(aliases.c.project_id == project_id).order_by(aliases.c.name, versions.c.number.desc())
    return [f"{name}@{number}" for name, number in await conn.execute(query.limit(MOST))]


async def _sources(conn: AsyncConnection, project_id: str) -> list[str]:
    newest = select(calls.c.attribution_source.label("source")).order_by(calls.c.id.desc()).limit(_NEWEST_CALLS)
    some = newest.where(sql.without_index(calls.c.project_id) == project_id).subquery()
    return list((await conn.execute(select(some.c.source).distinct().order_by(some.c.source))).scalars())


async def _facets(conn: AsyncConnection, project_id: str, facet: Facet) -> list[str]:
    f = trajectory_facets.c
    return await _distinct(conn, f.value, f.project_id == project_id, f.facet == facet.value)


async def _keys(conn: AsyncConnection, project_id: str) -> list[str]:
    """Return the names of the newest keys that belong to no trajectory."""
    query = select(keys.c.name).where(keys.c.project_id == project_id, keys.c.trajectory_id.is_(None))
    newest = (await conn.execute(query.order_by(keys.c.id.desc()).limit(MOST))).scalars()
    return sorted(set(newest))


async def _campaigns(conn: AsyncConnection, project_id: str) -> list[str]:
    query = select(campaigns.c.name).where(campaigns.c.project_id == project_id, campaigns.c.version_id.is_(None))
    newest = (await conn.execute(query.order_by(campaigns.c.id.desc()).limit(MOST))).scalars()
    return list(dict.fromkeys(newest))
