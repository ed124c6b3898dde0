"""Lists of groups, newest first, for the terminal, the pages and `/hone/v1`.

Owns: a group's line. Refuses: which groups are listed (`recorder.views.lists.scans`), conversations
(`recorder.views.trajectories.transcripts`), printing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.judging.scores import REWARD
from recorder.states import GroupState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, groups, score_parts, trajectories, versions
from recorder.views.lists import scans
from recorder.views.lists.columns import first_words, version_name
from recorder.views.lists.filters import ALL_GROUPS, USUAL_ORIGINS, GroupFilter
from recorder.views.lists.paging import Page, fill_page, find_page


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
    """The beginning of its first trajectory's first user message."""


async def list_groups(
    project: Project, wanted: GroupFilter = ALL_GROUPS, *, before: str | None = None, limit: int = 50
) -> Page[GroupLine]:
    """Return a page of the groups that match the filter, newest first, after the place `before`.

    Where the filter has `USUAL_ORIGINS`, the page counts what they hide. Raises FilterInvalid.
    """
    walk = await scans.scan_groups(project, wanted)
    page = await find_page(project.store, scans.GROUPS, walk.candidates, walk.checks, before=before, limit=limit)
    hidden = await scans.count_hidden_groups(project, wanted) if wanted.origins == USUAL_ORIGINS else 0
    return fill_page(page, await _lines(project.store, page.lines), hidden)


async def _lines(store: Store, ids: Sequence[str]) -> list[GroupLine]:
    query = (
        select(groups, aliases.c.name.label("alias"), version_name().label("version"))
        .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
        .outerjoin(versions, versions.c.id == groups.c.version_id)
        .where(groups.c.id.in_(ids))
        .order_by(*(column.desc() for column in scans.GROUPS.columns))
    )
    async with store.read() as conn:
        rows = list(await conn.execute(query))
        members = await _member_counts(conn, ids)
        rewards = await _reward_spans(conn, [row.current_score_id for row in rows if row.current_score_id])
        tasks = await first_words(conn, [first for _, first in members.values()])
    found = [(row, *members.get(row.id, (0, ""))) for row in rows]
    return [_group_line(row, n, rewards.get(row.current_score_id), tasks.get(first)) for row, n, first in found]


async def current_score_of(store: Store, group_id: str | None) -> str | None:
    """Return the id of a group's current score, or None."""
    query = select(groups.c.current_score_id).where(groups.c.id == group_id)
    async with store.read() as conn:
        return (await conn.execute(query)).scalar_one_or_none()


async def _member_counts(conn: AsyncConnection, ids: Sequence[str]) -> dict[str, tuple[int, str]]:
    """Return the number of members of each group, and its first member."""
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


def _group_line(row: Any, members: int, span: tuple[float, float, float] | None, task: str | None) -> GroupLine:
    mean, low, high = span or (None, None, None)
    return sql.as_view(
        GroupLine,
        row,
        state=GroupState(row.state),
        members=members,
        reward_mean=mean,
        reward_min=low,
        reward_max=high,
        task=task,
    )
