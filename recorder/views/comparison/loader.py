"""A group's comparison, read from the store.

Owns: the queries, which attempts are compared by default, and how many trajectories of a group are read. Refuses:
comparing (`recorder.views.comparison.attempts`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final

from sqlalchemy import func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.queue.feedback import PREFERENCE, TIE, parse_choice
from recorder.queue.groups.disputes import agreement_of_dispute
from recorder.queue.judging.scores import NewPart
from recorder.queue.training.baselines import ComparedReward
from recorder.states import GroupState, StepState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import (
    aliases,
    feedback,
    groups,
    scenarios,
    score_parts,
    scores,
    step_baselines,
    step_groups,
    steps,
    trajectories,
    versions,
)
from recorder.views.comparison.alignment import ConversationTurn, conversation_turns
from recorder.views.comparison.attempts import (
    Attempt,
    Comparison,
    GroupHead,
    GroupRank,
    Member,
    Preference,
    best_and_worst,
    fold_identical,
    rank_attempts,
    side_by_side,
)
from recorder.views.lists.columns import version_name
from recorder.views.lists.titles import group_tasks
from recorder.views.trajectories.shapes import TrajectoryView, read_trajectory
from recorder.views.trajectories.transcripts import load_trajectories

MOST_MEMBERS: Final = 200  # trajectories of a group, in order of their start
MOST_COLUMNS: Final = 8  # attempts that are compared unless two are chosen
MOST_READ: Final = 16  # attempts whose turns are read, to fold identical ones into one column
MOST_PREFERENCES: Final = 200  # the newest


async def load_comparison(
    store: Store, group_id: str, *, left: str | None = None, right: str | None = None
) -> Comparison:
    """Compare attempts of a group (internal id): best and worst and others, or `left` and `right`.

    Of the best `MOST_READ - 1` attempts and the worst, identical ones share a column, and `MOST_COLUMNS` are shown.
    `left` and `right` are trajectory ids, Hone's or the caller's. Raises NotFound.
    """
    return (await load_with_two(store, group_id, left=left, right=right))[0]


async def load_with_two(
    store: Store, group_id: str, *, left: str | None = None, right: str | None = None
) -> tuple[Comparison, Comparison | None]:
    """Return `load_comparison`, and a second one of its first two columns, best and worst, for narrow screens.

    The second one is None if the first has at most two columns.
    """
    async with store.read() as conn:
        head, attempts, rule = await _attempts(conn, group_id)
        preferences = await _preferences(conn, group_id, attempts)
    chosen = _chosen(attempts, left, right)
    views = {view.id: view for view in await load_trajectories(store, [one.trajectory.id for one in chosen])}
    remaining = [one for one in chosen if one.trajectory.id in views]  # one may be deleted meanwhile

    def both() -> tuple[Comparison, Comparison | None]:
        turns = {one.trajectory.id: trajectory_turns(views[one.trajectory.id]) for one in remaining}
        these, identical = remaining, tuple[tuple[int, ...], ...]()
        if left is None and right is None:
            these, identical = fold_identical(remaining, turns, MOST_COLUMNS)

        def compare(these: Sequence[Attempt]) -> Comparison:
            beginning, rows, not_shown = side_by_side([(one.number, turns[one.trajectory.id]) for one in these])
            columns = tuple(one.number for one in these)
            return Comparison(
                head, rule, attempts, preferences, columns, beginning, rows, not_shown, identical[: len(these)]
            )

        return compare(these), compare(these[:2]) if len(these) > 2 else None

    return await asyncio.to_thread(both)  # comparing many long attempts would block the event loop


async def load_rank(store: Store, group_id: str, trajectory_id: str) -> GroupRank | None:
    """Return a trajectory's rank in its group (internal ids), or None if it is not among the first `MOST_MEMBERS`.

    Raises NotFound.
    """
    async with store.read() as conn:
        head, attempts, rule = await _attempts(conn, group_id)
    own = next((one for one in attempts if one.trajectory.id == trajectory_id), None)
    return GroupRank(own, head.members, rule) if own is not None else None


def trajectory_turns(view: TrajectoryView) -> list[ConversationTurn]:
    """Return the turns of a trajectory's main path, each with the call that sampled it."""
    lengths = {call.id: len(call.messages) for call in view.calls}
    sampled = {lengths[call_id]: call_id for call_id, _ in view.main_path if call_id in lengths}
    return conversation_turns(view.messages, sampled)


def _chosen(attempts: Sequence[Attempt], left: str | None, right: str | None) -> Sequence[Attempt]:
    """Return the requested attempts, or the best ones and the worst.

    A single requested attempt is paired with the best other.
    """
    if left is None and right is None:
        if len(attempts) <= MOST_READ:
            return attempts
        _, worst = best_and_worst(attempts)
        return [*[one for one in attempts[:MOST_READ] if one is not worst][: MOST_READ - 1], worst]
    picked = [_named(attempts, name) for name in (left, right) if name is not None]
    if len(picked) == 1:
        picked += [one for one in attempts if one is not picked[0]][:1]
    return [one for one in attempts if one in picked]


def _named(attempts: Sequence[Attempt], name: str) -> Attempt:
    found = [one for one in attempts if name in (one.trajectory.id, one.trajectory.external_id)]
    found = found or [one for one in attempts if len(name) >= 6 and one.trajectory.id.endswith(name)]
    if not found:
        raise NotFound(f"the group has no attempt {name[:200]!r}")
    return found[0]


# --- queries


async def _attempts(conn: AsyncConnection, group_id: str) -> tuple[GroupHead, tuple[Attempt, ...], str]:
    """Return the group, its attempts, best first, and the sentence that says how advantages are computed."""
    head = await _head(conn, group_id)
    members = await _members(conn, group_id)
    parts = await _parts(conn, head.score_id, [one.id for one in members])
    compared = await _compared(conn, head.step_id, [one.id for one in members])
    attempts, rule = rank_attempts(members, parts, compared, head.baseline)
    return head, attempts, rule


async def _head(conn: AsyncConnection, group_id: str) -> GroupHead:
    count = select(func.count()).where(trajectories.c.group_id == groups.c.id).scalar_subquery()
    columns = (
        groups,
        aliases.c.name.label("alias"),
        aliases.c.baseline,
        version_name().label("version"),
        scenarios.c.external_id.label("scenario"),
        func.coalesce(scores.c.judge_version, scores.c.judge_model).label("judge"),
        scores.c.created_at.label("judged_at"),
        scores.c.tokens_in,
        scores.c.tokens_out,
        scores.c.cost_usd,
        func.coalesce(scores.c.agreement, agreement_of_dispute()).label("agreement"),
        count.label("members"),
    )
    tables = groups.outerjoin(aliases, aliases.c.id == groups.c.alias_id)
    tables = tables.outerjoin(versions, versions.c.id == groups.c.version_id)
    tables = tables.outerjoin(scenarios, scenarios.c.id == groups.c.scenario_id)
    tables = tables.outerjoin(scores, scores.c.id == groups.c.current_score_id)
    row = (await conn.execute(select(*columns).select_from(tables).where(groups.c.id == group_id))).first()
    if row is None:
        raise NotFound(f"no group {group_id!r}")
    step = await _step(conn, group_id)
    task = (await group_tasks(conn, [group_id])).get(group_id)
    return sql.as_view(GroupHead, row, state=GroupState(row.state), score_id=row.current_score_id, task=task, **step)


async def _step(conn: AsyncConnection, group_id: str) -> dict[str, Any]:
    """Return the fields of `GroupHead` about the newest finished step that trained on the group."""
    query = select(steps).join(step_groups, step_groups.c.step_id == steps.c.id)
    query = query.where(step_groups.c.group_id == group_id, steps.c.state == StepState.DONE)
    row = (await conn.execute(query.order_by(steps.c.number.desc(), steps.c.id.desc()).limit(1))).first()
    if row is None:
        return {"step_id": None, "step": None, "step_version": None}
    version_names = await _version_names(conn, [row.version_id] if row.version_id else [])
    return {"step_id": row.id, "step": row.number, "step_version": version_names.get(row.version_id)}


async def _members(conn: AsyncConnection, group_id: str) -> list[Member]:
    query = select(trajectories).where(trajectories.c.group_id == group_id)
    query = query.order_by(trajectories.c.started_at, trajectories.c.id).limit(MOST_MEMBERS)
    rows = list(await conn.execute(query))
    names = await _version_names(conn, {row.version_id for row in rows if row.version_id is not None})
    return [read_trajectory(Member, row, version=names.get(row.version_id)) for row in rows]


async def _version_names(conn: AsyncConnection, ids: Collection[str]) -> Mapping[str, str]:
    query = select(versions.c.id, version_name().label("name")).where(versions.c.id.in_(sorted(ids)))
    rows = await conn.execute(query)
    return {row.id: row.name for row in rows}


async def _parts(conn: AsyncConnection, score_id: str | None, ids: Sequence[str]) -> list[NewPart]:
    query = select(score_parts).where(score_parts.c.score_id == score_id, score_parts.c.trajectory_id.in_(ids))
    return sql.as_views(NewPart, await conn.execute(query.order_by(score_parts.c.part))) if score_id else []


async def _compared(conn: AsyncConnection, step_id: str | None, ids: Sequence[str]) -> list[ComparedReward]:
    """Return the running baselines that a step compared trajectories with; empty if it used the group's mean."""
    if step_id is None:
        return []
    of_step = (step_baselines.c.step_id == step_id, step_baselines.c.trajectory_id.in_(ids))
    return sql.as_views(ComparedReward, await conn.execute(select(step_baselines).where(*of_step)))


async def _preferences(conn: AsyncConnection, group_id: str, attempts: Sequence[Attempt]) -> tuple[Preference, ...]:
    """Return people's choices between two attempts of the group, newest first, with ties."""
    numbers = {one.trajectory.id: one.number for one in attempts}
    f = feedback.c
    query = select(feedback).where(f.trajectory_id.in_(sorted(numbers)), f.name.in_((PREFERENCE, TIE)))
    query = query.order_by(f.created_at.desc(), f.id.desc()).limit(MOST_PREFERENCES)
    choices = [
        (row, parse_choice(row.trajectory_id, row.name, row.value, row.tags)) for row in await conn.execute(query)
    ]
    return tuple(
        Preference(numbers[chosen.better], numbers[chosen.worse], row.tags.get("by"), row.comment, row.created_at,
                   chosen.tie)
        for row, chosen in choices
        if chosen is not None and row.tags.get("group") == group_id and chosen.worse in numbers
    )  # fmt: skip
