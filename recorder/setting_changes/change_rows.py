"""The stored changes of settings: one row for each change and each undo, never updated or deleted.

Owns: the rows, and which change of a key is in force. Refuses: which settings change, and their values
(`recorder.setting_changes.overlay`).
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from sqlalchemy import Select, func, select

from recorder.errors import Conflict
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import keys, setting_changes

MOST: Final = 50  # changes that a list has
_C: Final = setting_changes.c


@dataclass(frozen=True, slots=True)
class SettingChange:
    """One change of a setting; `at` is unix seconds.

    `number`: from 1, of this key. `before`, `after`: the value that held, and the one that holds since. `undone`: an
    undo, since which hone.toml, variables and flags hold again. `who`: a key's id, or the actor while no key is
    required; `by`: the same by the key's name.
    """

    key: str
    number: int
    before: Any
    after: Any
    undone: bool
    who: str
    by: str
    at: float

    @property
    def since(self) -> str:
        """When it was made, by this machine's clock."""
        return datetime.fromtimestamp(self.at).astimezone().strftime("%Y-%m-%d %H:%M")


async def read_changes(project: Project) -> dict[str, SettingChange]:
    """Return the changes in force, by key. Raises StoreError."""
    newest = (
        select(_C.key, func.max(_C.number).label("number"))
        .where(_C.project_id == project.id)
        .group_by(_C.key)
        .subquery("newest")
    )
    query = _changes(project).join(newest, (newest.c.key == _C.key) & (newest.c.number == _C.number))
    async with project.store.read() as conn:
        found = [sql.as_view(SettingChange, row) for row in await conn.execute(query.order_by(_C.key))]
    return {one.key: one for one in found if not one.undone}


async def list_changes(project: Project, limit: int = MOST) -> list[SettingChange]:
    """Return the newest changes and undos, newest first. Raises StoreError."""
    query = _changes(project).order_by(_C.at.desc(), _C.key, _C.number.desc()).limit(limit)
    async with project.store.read() as conn:
        return [sql.as_view(SettingChange, row) for row in await conn.execute(query)]


def _changes(project: Project) -> Select[Any]:
    by = func.coalesce(keys.c.name, _C.who).label("by")
    columns = [_C[name] for name in SettingChange.__slots__ if name != "by"]
    return select(*columns, by).outerjoin(keys, keys.c.id == _C.who).where(_C.project_id == project.id)


async def write_change(project: Project, key: str, *, before: Any, after: Any, who: str, undone: bool = False) -> int:
    """Write a change, or an undo; return its number.

    Raises Conflict if another change of the key was written at the same moment, or if there is none to undo.
    """
    last = select(_C.number, _C.undone).where(_C.project_id == project.id, _C.key == key)
    async with project.store.write() as conn:
        row = (await conn.execute(last.order_by(_C.number.desc()).limit(1))).first()
        if undone and (row is None or row.undone):
            raise Conflict(f"{key} has no change to undo: hone.toml, variables and flags hold.")
        values = {
            "project_id": project.id, "key": key, "number": 1 if row is None else row.number + 1,
            "before": before, "after": after, "undone": undone, "who": who, "at": sql.now(),
        }  # fmt: skip
        if (await conn.execute(sql.insert_ignore(conn, setting_changes).values(**values))).rowcount == 0:
            raise Conflict(f"{key} was changed at the same moment: look at its value, and change it again.")
        return int(values["number"])
