"""Why runs are not trained on, as the ledger says it of each.

Owns: which row of a run counts, and narrowing by a reason. Refuses: the sentences (`recorder.reasons`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from sqlalchemy import ColumnElement, CompoundSelect, exists, or_, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import GroupState
from recorder.store import ledger as rows
from recorder.store.ledger import TRAINED
from recorder.store.schema import groups, ledger, trajectories
from recorder.work.feedback import LATE

_RUN: Final = "trajectory"
_NO_REASON: Final = (LATE,)  # said of a run, and not why it is left out
_GROUPS_SAY: Final = (GroupState.LEFT_OUT, GroupState.UNSCORED)


async def newest_words(conn: AsyncConnection, trajectory_ids: Collection[str]) -> dict[str, str]:
    """By run, the newest code that the ledger has of it: `trained`, or why it is not."""
    said = (
        select(ledger.c.object_id, ledger.c.code)
        .where(ledger.c.object_kind == _RUN, ledger.c.object_id.in_(trajectory_ids))
        .where(ledger.c.code.not_in(_NO_REASON))
        .order_by(ledger.c.id)
    )
    return {row.object_id: row.code for row in await conn.execute(said)}


def left_out(word: str | None, group_state: str | None, group_reason: str | None) -> str | None:
    """Why a run is not trained on: by its own newest code, else by its group's reason; None: nothing says so."""
    if word is not None:
        return None if word == TRAINED else word
    return group_reason if group_state in _GROUPS_SAY else None


def runs_left_out(project_id: str, code: str) -> CompoundSelect[tuple[str]]:
    """The runs that are left out by a code."""
    in_groups = select(trajectories.c.id).join(groups, groups.c.id == trajectories.c.group_id)
    in_groups = in_groups.where(groups.c.project_id == project_id, *_group_says(code))
    return union_all(rows.objects_with(project_id, _RUN, code), in_groups)


def said_of_runs(code: str) -> ColumnElement[bool]:
    """Whether a run is left out by a code."""
    in_group = exists().where(groups.c.id == trajectories.c.group_id, *_group_says(code))
    return or_(rows.said_of(_RUN, trajectories.c.id, code), in_group)


def _group_says(code: str) -> tuple[ColumnElement[bool], ...]:
    return groups.c.reason == code, groups.c.state.in_(_GROUPS_SAY)
