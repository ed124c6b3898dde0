"""Look up groups: one by its name, counts per state of an alias, and a group's baseline.

Owns: the meaning of a group's name, which members count toward its size, and which states precede training.
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

BY_FUNCTION: Final = "by_function"  # a key in an evaluation's settings: only a function measures success
_ENDS: Final = (GroupState.TRAINED, GroupState.LEFT_OUT, GroupState.MEASURED)
_ON_THE_WAY: Final = tuple(state for state in GroupState if state not in _ENDS)


async def find_group(project: Project, group: str, own: str = "") -> str:
    """Return the internal id of a group, given that or its external id. Raises NotFound.

    Of groups with one name, the newest of the key family `own` counts, else the newest.
    """
    async with project.store.read() as conn:
        return str((await group_row(conn, project.id, group, own)).id)


async def group_row(conn: AsyncConnection, project_id: str, group: str, own: str = "", *, lock: bool = False) -> Any:
    """Return the id and state of a group, found as by `find_group`. Raises NotFound.

    `lock`: lock the row until the transaction ends (PostgreSQL; SQLite has one writer).
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
    """A column: the baseline of a group's alias; null without an alias."""
    return select(aliases.c.baseline).where(aliases.c.id == groups.c.alias_id).scalar_subquery().label("baseline")


def is_function_measured() -> ColumnElement[bool]:
    """A column: whether only a function measures a group's attempts.

    Such groups belong to a version's gate, or to an evaluation with the setting `BY_FUNCTION`.
    """
    by_function = campaigns.c.settings[BY_FUNCTION].as_string().is_not(None)
    asked = or_(campaigns.c.version_id.is_not(None), by_function)
    return exists().where(campaigns.c.id == groups.c.campaign_id, asked).label("measured")


def is_counted() -> ColumnElement[bool]:
    """A column: whether a trajectory counts toward its group's size, as in `readiness.counts_toward_size`."""
    return and_(~equals_literal(trajectories.c.state, "abandoned"), trajectories.c.selection.is_(None))


async def count_groups(
    store: Store, alias_id: str, campaign_id: str | None = None, *, without: Collection[GroupState] = ()
) -> dict[GroupState, int]:
    """Count an alias's groups by state before training, of one campaign or of none. Cheap enough for polling.

    Groups count that a trainer takes once they are scored. Finished groups (trained, excluded) and groups that wait for
    a person do not. `without`: states that are not read.
    """
    of = is_learnable() if campaign_id is None else and_(groups.c.campaign_id == campaign_id, is_trainable())
    project = select(aliases.c.project_id).where(aliases.c.id == alias_id).scalar_subquery()
    states = [state for state in _ON_THE_WAY if state not in without]
    moving = and_(groups.c.state.in_(states), ~is_disputed())
    on_the_way = (groups.c.project_id == project, moving, groups.c.alias_id == alias_id)
    query = select(groups.c.state, func.count()).where(*on_the_way, of)
    async with store.read() as conn:
        return {GroupState(state): int(n) for state, n in await conn.execute(query.group_by(groups.c.state))}
