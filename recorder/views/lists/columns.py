"""Columns that several lists share: a version's name, the reward, a trajectory's task, why it is excluded.

Owns: these columns, and which ledger row of a trajectory counts. Refuses: whole lines, whole conversations
(`recorder.views.trajectories.transcripts`), and the reasons' sentences (`recorder.reasons`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import ColumnElement, CompoundSelect, String, and_, cast, exists, func, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.plain_text import message_text
from recorder.queue.feedback import LATE
from recorder.queue.groups.readiness import GroupCode
from recorder.queue.judging.scores import REWARD
from recorder.states import GroupState
from recorder.store import ledger as rows
from recorder.store.ledger import TRAINED
from recorder.store.schema import aliases, calls, groups, ledger, nodes, score_parts, trajectories, versions


def version_name() -> ColumnElement[str]:
    """A column: the name of the version that a query joins."""
    owner = aliases.alias("version_alias")
    name = select(owner.c.name).where(owner.c.id == versions.c.alias_id).scalar_subquery()
    return name + "@" + cast(versions.c.number, String)


def is_reward() -> ColumnElement[bool]:
    """A condition: whether a part is the reward in its group's current score."""
    return and_(score_parts.c.score_id == groups.c.current_score_id, score_parts.c.part == REWARD)


MOST_CHARS: Final = 48


async def first_words(conn: AsyncConnection, trajectory_ids: Collection[str]) -> dict[str, str]:
    """Return the beginning of the first user message by trajectory id; trajectories without one are absent."""
    first = (
        select(func.min(calls.c.id)).where(calls.c.trajectory_id.in_(trajectory_ids)).group_by(calls.c.trajectory_id)
    )
    columns = (nodes.c.parent_id, nodes.c.depth, nodes.c.role, nodes.c.message)
    up = (
        select(calls.c.trajectory_id, *columns)
        .join(nodes, nodes.c.id == calls.c.prompt_node_id)
        .where(calls.c.id.in_(first))
        .cte("up", recursive=True)
    )
    above = select(up.c.trajectory_id, *columns).select_from(nodes.join(up, nodes.c.id == up.c.parent_id))
    whole = up.union_all(above)
    said = select(whole.c.trajectory_id, whole.c.message).where(whole.c.role == "user").order_by(whole.c.depth.desc())
    return {row.trajectory_id: _short(message_text(row.message)) for row in await conn.execute(said)}


def _short(text: str) -> str:
    words = " ".join(text[: 8 * MOST_CHARS].split())
    return words if len(words) <= MOST_CHARS else words[: MOST_CHARS - 1] + "…"


TRAJECTORY: Final = "trajectory"  # the kind of object in the ledger
_NO_REASON: Final = (LATE, GroupCode.MEASURED)  # ledger codes of a trajectory that are not exclusions
_GROUPS_SAY: Final = (GroupState.LEFT_OUT, GroupState.UNSCORED)


async def newest_reasons(conn: AsyncConnection, trajectory_ids: Collection[str]) -> dict[str, str]:
    """Return the newest ledger code by trajectory id: `trained`, or the reason of its exclusion."""
    said = (
        select(ledger.c.object_id, ledger.c.code)
        .where(ledger.c.object_kind == TRAJECTORY, ledger.c.object_id.in_(trajectory_ids))
        .where(ledger.c.code.not_in(_NO_REASON))
        .order_by(ledger.c.id)
    )
    return {row.object_id: row.code for row in await conn.execute(said)}


def exclusion_reason(word: str | None, group_state: str | None, group_reason: str | None) -> str | None:
    """Return why a trajectory is excluded: its own newest code, else its group's reason; None: it is not."""
    if word is not None:
        return None if word == TRAINED else word
    return group_reason if group_state in _GROUPS_SAY else None


def excluded_trajectories(project_id: str, code: str) -> CompoundSelect[tuple[str]]:
    """The query for the trajectories that are excluded with a code."""
    in_groups = select(trajectories.c.id).join(groups, groups.c.id == trajectories.c.group_id)
    in_groups = in_groups.where(groups.c.project_id == project_id, *_group_says(code))
    return union_all(rows.objects_with(project_id, TRAJECTORY, code), in_groups)


def filter_by_reason(code: str) -> ColumnElement[bool]:
    """A condition: whether a trajectory is excluded with a code."""
    in_group = exists().where(groups.c.id == trajectories.c.group_id, *_group_says(code))
    return or_(rows.has_code(TRAJECTORY, trajectories.c.id, code), in_group)


def _group_says(code: str) -> tuple[ColumnElement[bool], ...]:
    return groups.c.reason == code, groups.c.state.in_(_GROUPS_SAY)
