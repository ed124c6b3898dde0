"""Lists of runs and groups, newest first, as a terminal or a page shows them.

Owns: the queries and their rows. Refuses: conversations (`recorder.reading.transcripts`), printing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import ColumnElement, Select, String, Table, and_, cast, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.reading.tasks import first_words
from recorder.states import GroupState, Origin, Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import aliases, groups, score_parts, trajectories, versions
from recorder.work.scores import REWARD


@dataclass(frozen=True, slots=True)
class TrajectoryLine:
    """One run. `reward` is that of its group's current score; times are unix seconds."""

    id: str
    external_id: str | None
    group_id: str | None
    group_external_id: str | None
    alias: str | None
    version: str | None
    state: TrajectoryState
    end_reason: str | None
    purpose: Purpose
    origin: Origin
    selection: str | None
    mixed: bool
    call_count: int
    reward: float | None
    started_at: float
    last_call_at: float
    ended_at: float | None
    task: str | None
    """How the first thing that its user said begins."""


@dataclass(frozen=True, slots=True)
class GroupLine:
    """One group. `reward_*` are over the members of its current score."""

    id: str
    external_id: str | None
    alias: str | None
    version: str | None
    state: GroupState
    reason: str | None
    campaign_id: str | None
    declared_size: int | None
    members: int
    reward_mean: float | None
    reward_min: float | None
    reward_max: float | None
    opened_at: float
    last_call_at: float
    task: str | None
    """How the first thing that the user of its first run said begins."""


async def list_trajectories(
    store: Store,
    project_id: str,
    *,
    states: Sequence[TrajectoryState] = (),
    purpose: Purpose | None = None,
    alias: str | None = None,
    group: str | None = None,
    limit: int = 50,
    offset: int = 0,
) -> list[TrajectoryLine]:
    """The newest runs; `group` is an internal or external id."""
    t = trajectories.c
    these = select(t.id).where(t.project_id == project_id).order_by(t.id.desc())  # ids begin with the time
    these = _narrowed(these, trajectories, states, alias)
    if purpose is not None:
        these = these.where(t.purpose == purpose)
    if group is not None:
        named = select(groups.c.id).where(groups.c.project_id == project_id, groups.c.external_id == group)
        these = these.where(or_(t.group_id == group, t.group_id.in_(named)))
    query = (
        select(
            trajectories,
            groups.c.external_id.label("group_external_id"),
            aliases.c.name.label("alias"),
            _version_name().label("version"),
            score_parts.c.value.label("reward"),
        )
        .outerjoin(groups, groups.c.id == t.group_id)
        .outerjoin(aliases, aliases.c.id == t.alias_id)
        .outerjoin(versions, versions.c.id == func.coalesce(t.version_id, groups.c.version_id))
        .outerjoin(score_parts, and_(_is_reward(), score_parts.c.trajectory_id == t.id))
        .where(t.id.in_(_page(these, limit, offset)))
        .order_by(t.id.desc())
    )
    async with store.read() as conn:
        rows = list(await conn.execute(query))
        tasks = await first_words(conn, [row.id for row in rows])
    return [_trajectory_line(row, tasks.get(row.id)) for row in rows]


async def list_groups(
    store: Store,
    project_id: str,
    *,
    states: Sequence[GroupState] = (),
    alias: str | None = None,
    campaign_id: str | None = None,
    limit: int = 50,
    offset: int = 0,
) -> list[GroupLine]:
    """The newest groups."""
    newest = (groups.c.opened_at.desc(), groups.c.id.desc())
    these = select(groups.c.id).where(groups.c.project_id == project_id).order_by(*newest)
    these = _narrowed(these, groups, states, alias)
    if campaign_id is not None:
        these = these.where(groups.c.campaign_id == campaign_id)
    query = (
        select(groups, aliases.c.name.label("alias"), _version_name().label("version"))
        .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
        .outerjoin(versions, versions.c.id == groups.c.version_id)
        .where(groups.c.id.in_(_page(these, limit, offset)))
        .order_by(*newest)
    )
    async with store.read() as conn:
        rows = list(await conn.execute(query))
        members = await _member_counts(conn, [row.id for row in rows])
        rewards = await _reward_spans(conn, [row.current_score_id for row in rows if row.current_score_id])
        tasks = await first_words(conn, [first for _, first in members.values()])
    found = [(row, *members.get(row.id, (0, ""))) for row in rows]
    return [_group_line(row, n, rewards.get(row.current_score_id), tasks.get(first)) for row, n, first in found]


async def current_score_of(store: Store, group_id: str | None) -> str | None:
    """The id of a group's current score."""
    query = select(groups.c.current_score_id).where(groups.c.id == group_id)
    async with store.read() as conn:
        return (await conn.execute(query)).scalar_one_or_none()


def _version_name() -> ColumnElement[str]:
    owner = aliases.alias("version_alias")
    name = select(owner.c.name).where(owner.c.id == versions.c.alias_id).scalar_subquery()
    return name + "@" + cast(versions.c.number, String)


def _is_reward() -> ColumnElement[bool]:
    return and_(score_parts.c.score_id == groups.c.current_score_id, score_parts.c.part == REWARD)


def _page(these: Select[Any], limit: int, offset: int) -> Select[Any]:
    """The ids of one page. What is shown of them is looked up afterwards: a deep page passes over ids alone."""
    return select(these.limit(limit).offset(offset).subquery("page"))


def _narrowed(these: Select[Any], table: Table, states: Sequence[str], alias: str | None) -> Select[Any]:
    if states:
        these = these.where(table.c.state.in_(states))
    named = select(aliases.c.id).where(aliases.c.name == alias)
    return these if alias is None else these.where(table.c.alias_id.in_(named))


async def _member_counts(conn: AsyncConnection, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
    """How many members each group has, and its first."""
    t = trajectories.c
    query = select(t.group_id, func.count(), func.min(t.id)).where(t.group_id.in_(ids)).group_by(t.group_id)
    return {row[0]: (row[1], row[2]) for row in await conn.execute(query)}


async def _reward_spans(conn: AsyncConnection, score_ids: Sequence[str]) -> dict[str, tuple[float, float, float]]:
    value = score_parts.c.value
    query = (
        select(score_parts.c.score_id, func.avg(value), func.min(value), func.max(value))
        .where(score_parts.c.score_id.in_(score_ids), score_parts.c.part == REWARD)
        .group_by(score_parts.c.score_id)
    )
    return {row[0]: (row[1], row[2], row[3]) for row in await conn.execute(query)}


def _trajectory_line(row: Any, task: str | None) -> TrajectoryLine:
    typed = {"state": TrajectoryState(row.state), "purpose": Purpose(row.purpose), "origin": Origin(row.origin)}
    return sql.view(TrajectoryLine, row, task=task, **typed)


def _group_line(row: Any, members: int, span: tuple[float, float, float] | None, task: str | None) -> GroupLine:
    mean, low, high = span or (None, None, None)
    return sql.view(
        GroupLine,
        row,
        state=GroupState(row.state),
        members=members,
        reward_mean=mean,
        reward_min=low,
        reward_max=high,
        task=task,
    )
