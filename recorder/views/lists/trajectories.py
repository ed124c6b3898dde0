"""Lists of trajectories, newest first or sorted by a figure, for the terminal, the pages and `/hone/v1`.

Owns: a trajectory's line. Refuses: which trajectories are listed (`recorder.views.lists.scans`), conversations
(`recorder.views.trajectories.transcripts`), printing.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import Project, Store
from recorder.store.ledger import TRAINED
from recorder.store.schema import (
    aliases,
    groups,
    score_parts,
    scores,
    tool_calls,
    trajectories,
    trajectory_totals,
    versions,
)
from recorder.views.lists import scans
from recorder.views.lists.columns import exclusion_reason, first_words, is_reward, newest_reasons, version_name
from recorder.views.lists.filters import ALL_TRAJECTORIES, USUAL_ORIGINS, TrajectoryFilter
from recorder.views.lists.paging import Page, fill_page, find_page
from recorder.views.lists.sort_order import Sort, find_sorted_page, judging_share
from recorder.views.trajectories.shapes import TrajectoryRow, read_trajectory


@dataclass(frozen=True, slots=True, kw_only=True)
class TrajectoryLine(TrajectoryRow):
    """One trajectory. `reward`: by its group's current score."""

    group_id: str | None
    group_external_id: str | None
    alias: str | None
    version: str | None
    call_count: int
    reward: float | None
    session: str | None
    tool_errors: int
    """How many of its tool calls failed."""
    excluded: str | None
    """Why it is excluded: a ledger code (`recorder.reasons`)."""
    trained: bool
    """Whether the live version or one of its ancestors was trained on it."""
    task: str | None
    """The beginning of its first user message."""
    tokens_in: int | None
    """The prompt tokens of its calls together; null until they are counted."""
    tokens_out: int | None
    """The sampled tokens of its calls together; null until they are counted."""
    cost_usd: float | None
    """What other providers charged for its calls; null if none has a price."""
    judge_usd: float | None
    """Its share of the cost of its group's current score; null if no price is known."""
    first_token_s: float | None
    """The mean seconds until the first token of its complete calls."""


async def list_trajectories(
    project: Project,
    wanted: TrajectoryFilter = ALL_TRAJECTORIES,
    *,
    before: str | None = None,
    limit: int = 50,
    sort: Sort = Sort.TIME,
) -> Page[TrajectoryLine]:
    """Return a page of the trajectories that match the filter, after the place `before`.

    `sort` by time: newest first, of all; else largest first, of the newest matches. Where the filter has
    `USUAL_ORIGINS`, the page counts what they hide. Raises FilterInvalid.
    """
    walk = await scans.scan_trajectories(project, wanted)
    if sort is Sort.TIME:
        page = await find_page(project.store, scans.RUNS, walk.candidates, walk.checks, before=before, limit=limit)
    else:
        page = await find_sorted_page(project.store, sort, walk, before=before, limit=limit)
    hidden = await scans.count_hidden_trajectories(project, wanted) if wanted.origins == USUAL_ORIGINS else 0
    return fill_page(page, await trajectory_lines(project.store, page.lines), hidden)


async def trajectory_lines(store: Store, ids: Sequence[str]) -> list[TrajectoryLine]:
    """Return the lines of these trajectories, in their order."""
    t, totals = trajectories.c, trajectory_totals.c
    query = (
        select(
            trajectories,
            groups.c.external_id.label("group_external_id"),
            groups.c.state.label("group_state"),
            groups.c.reason.label("group_reason"),
            aliases.c.name.label("alias"),
            version_name().label("version"),
            score_parts.c.value.label("reward"),
            totals.tokens_in,
            totals.tokens_out,
            totals.cost_usd,
            (totals.first_token_s / func.nullif(totals.first_tokens, 0)).label("first_token_s"),
            judging_share().label("judge_usd"),
        )
        .outerjoin(groups, groups.c.id == t.group_id)
        .outerjoin(aliases, aliases.c.id == t.alias_id)
        .outerjoin(versions, versions.c.id == func.coalesce(t.version_id, groups.c.version_id))
        .outerjoin(score_parts, and_(is_reward(), score_parts.c.trajectory_id == t.id))
        .outerjoin(scores, scores.c.id == groups.c.current_score_id)
        .outerjoin(trajectory_totals, totals.trajectory_id == t.id)
        .where(t.id.in_(ids))
    )
    place = {id_: at for at, id_ in enumerate(ids)}
    async with store.read() as conn:
        rows = sorted(await conn.execute(query), key=lambda row: place[row.id])
        tasks = await first_words(conn, ids)
        words = await newest_reasons(conn, ids)
        failed = await _failed_tool_calls(conn, ids)
    return [_line(row, tasks.get(row.id), words.get(row.id), failed.get(row.id, 0)) for row in rows]


async def _failed_tool_calls(conn: AsyncConnection, ids: Collection[str]) -> dict[str, int]:
    of_runs = select(tool_calls.c.trajectory_id, func.count()).where(tool_calls.c.trajectory_id.in_(ids))
    query = of_runs.where(scans.FAILED_TOOL_CALLS).group_by(tool_calls.c.trajectory_id)
    return {row[0]: row[1] for row in await conn.execute(query)}


def _line(row: Any, task: str | None, word: str | None, tool_errors: int) -> TrajectoryLine:
    return read_trajectory(
        TrajectoryLine,
        row,
        tool_errors=tool_errors,
        excluded=exclusion_reason(word, row.group_state, row.group_reason),
        trained=word == TRAINED,
        task=task,
        first_token_s=None if row.first_token_s is None else round(row.first_token_s, 6),
    )
