"""Saved filters: the query of a list under a name, for everybody of the project.

Owns: their rows, their names, and their number. Refuses: what a query means (`recorder.views.lists.filters`): whoever
saves one has parsed it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from sqlalchemy import delete, func, select

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import saved_filters
from recorder.store.sql import now

MOST: Final = 50  # of a list: all are shown above it
MAX_NAME_CHARS: Final = 100
_f = saved_filters.c


class FilteredList(StrEnum):
    """The lists that have filters."""

    TRAJECTORIES = "trajectories"
    GROUPS = "groups"


@dataclass(frozen=True, slots=True)
class SavedFilter:
    """A filter of a list. `query`: as in the list's address, `state=open&alias=helpdesk`."""

    id: str
    list: FilteredList
    name: str
    query: str
    created_at: float
    made_by: str


async def list_saved_filters(project: Project, of: FilteredList | None = None) -> list[SavedFilter]:
    """Return the saved filters of a list, or of all lists, by list and name."""
    query = select(saved_filters).where(_f.project_id == project.id)
    if of is not None:
        query = query.where(_f.list == of.value)
    async with project.store.read() as conn:
        rows = list(await conn.execute(query.order_by(_f.list, _f.name)))
    return [sql.as_view(SavedFilter, row, list=FilteredList(row.list)) for row in rows]


async def save_filter(project: Project, of: FilteredList, name: str, query: str, by: str) -> SavedFilter:
    """Save the query of a list; one of the same name is replaced.

    Raises ValueError (no name, or no filter), and Conflict if the list has `MOST` already.
    """
    name = " ".join(name.split())
    if not name or len(name) > MAX_NAME_CHARS or not name.isprintable():
        raise ValueError(f"a saved filter needs a name of 1 to {MAX_NAME_CHARS} printable characters")
    if not query:
        raise ValueError("the list has no filter and no order that could be saved")
    row = {"id": new_id("filter"), "project_id": project.id, "list": of.value, "name": name, "query": query}
    values = {**row, "created_at": now(), "made_by": by}
    async with project.store.write() as conn:
        await conn.execute(
            sql.upsert(conn, saved_filters, ("project_id", "list", "name"), values, keep=("id", "created_at"))
        )
        number = select(func.count()).where(_f.project_id == project.id, _f.list == of.value)
        if (await conn.execute(number)).scalar_one() > MOST:
            raise Conflict(f"the list has {MOST} saved filters already: remove one first")
    return next(one for one in await list_saved_filters(project, of) if one.name == name)


async def remove_saved_filter(project: Project, id_: str) -> None:
    """Remove a saved filter. Raises NotFound."""
    async with project.store.write() as conn:
        gone = await conn.execute(delete(saved_filters).where(_f.id == id_, _f.project_id == project.id))
        if not gone.rowcount:
            raise NotFound(f"no saved filter {id_[:200]!r} in project {project.id!r}")
