"""Look up groups: one by its name, counts per state of an alias, and a group's baseline.

Owns: the meaning of a group's name, which members count toward its size, and what counts as on the way to training.
Refuses: changing a group (`recorder.queue.groups.closure`), lists and members (`recorder.views`).
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.queue.groups.disputes import is_disputed
from recorder.queue.groups.uses import is_learnable, is_trainable
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, campaigns, groups, trajectories
from recorder.store.statement import equals_literal

BY_FUNCTION: Final = "by_function"  # in the settings of an evaluation: a function alone measures success
_ON_THE_WAY: Final = tuple(state for state in GroupState if state not in (GroupState.TRAINED, GroupState.LEFT_OUT))


async def find_group(project: Project, group: str, own: str = "") -> str:
    """The internal id of a group, given that or its external id. Raises NotFound.

    Of those of one name the newest that the key family `own` made counts, else the newest.
    """
    async with project.store.read() as conn:
        return str((await group_row(conn, project.id, group, own)).id)


async def group_row(conn: AsyncConnection, project_id: str, group: str, own: str = "", *, lock: bool = False) -> Any:
    """The id and state of a group, as `find_group` finds it. Raises NotFound.

    `lock`: no other transaction changes it before this one ends (PostgreSQL; SQLite has one writer).
    """
    named = or_(groups.c.id == group, groups.c.external_id == group)
    query = select(groups.c.id, groups.c.state).where(groups.c.project_id == project_id, named)
    others = case((groups.c.made_by == own, 0), else_=1)
    query = query.order_by(others, groups.c.sequence.desc()).limit(1)
    row = (await conn.execute(query.with_for_update() if lock else query)).first()
    if row is None:
        raise NotFound(f"no group {group!r} in project {project_id!r}: `hone groups` lists them")
    return row


def baseline_column() -> ColumnElement[str]:
    """What a group's alias compares rewards with, as a column; null where it has no alias."""
    return select(aliases.c.baseline).where(aliases.c.id == groups.c.alias_id).scalar_subquery().label("baseline")


def is_function_measured() -> ColumnElement[bool]:
    """Whether a function alone measures a group's attempts, as a column.

    They belong to a version's gate, or to an evaluation with that setting (`BY_FUNCTION`).
    """
    by_function = campaigns.c.settings[BY_FUNCTION].as_string().is_not(None)
    asked = or_(campaigns.c.version_id.is_not(None), by_function)
    return exists().where(campaigns.c.id == groups.c.campaign_id, asked).label("measured")


def is_counted() -> ColumnElement[bool]:
    """Whether a trajectory counts toward the size of its group, as `readiness.counts_toward_size` says."""
    return and_(~equals_literal(trajectories.c.state, "abandoned"), trajectories.c.selection.is_(None))


async def count_groups(
    store: Store, alias_id: str, campaign_id: str | None = None, *, without: Collection[GroupState] = ()
) -> dict[GroupState, int]:
    """How many groups an alias has in each state on the way to training; of a campaign, or of none. Fit for polling.

    Those that a trainer takes once they are scored. Finished groups (trained, excluded) and those that wait for a
    person do not count. `without`: states that are not looked at.
    """
    of = is_learnable() if campaign_id is None else and_(groups.c.campaign_id == campaign_id, is_trainable())
    project = select(aliases.c.project_id).where(aliases.c.id == alias_id).scalar_subquery()
    states = [state for state in _ON_THE_WAY if state not in without]
    moving = and_(groups.c.state.in_(states), ~is_disputed())
    on_the_way = (groups.c.project_id == project, moving, groups.c.alias_id == alias_id)
    query = select(groups.c.state, func.count()).where(*on_the_way, of)
    async with store.read() as conn:
        return {GroupState(state): int(n) for state, n in await conn.execute(query.group_by(groups.c.state))}
