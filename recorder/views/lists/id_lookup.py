"""Find what an id names, whatever kind of id it is: for the search box of the pages.

Owns: which kinds of ids there are, their precedence, and the queries: each reads a few entries of an index, or a
bounded number of the newest. Refuses: searching for words (`recorder.search`), the addresses of pages, and short ids of
a command (`recorder.views.lists.short_ids`), which takes any age.

Hone's own ids come first, then a version's name, then ids that callers gave. The id of a trajectory in a group is
unique only with its group: `GROUP/TRAJECTORY` is found at once. The trajectory's part alone is found too if it is long
enough to be no word; of several the newest counts.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sqlalchemy import ColumnElement, Select, literal, null, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.content_hashes import issued_id_key
from recorder.store.database import Project
from recorder.store.schema import aliases, calls, groups, issued, trajectories, versions

MAX_ID_CHARS: Final = 400  # no longer text is looked up as an id
NEWEST: Final = 10_000  # trajectories, groups and calls whose short ids are known: 2 ms
_LEAST_CHARS: Final = 8  # of an external id that is looked for in all groups
_SHORT: Final = re.compile(r"(?:(?:(?:traj|group|call)_)?…)?(?P<end>[0-9a-z]{8,26})")
_VERSION: Final = re.compile(r"(?P<alias>.+)@(?P<number>[0-9]{1,9})")
_DIGIT: Final = re.compile("[0-9]")
_ISSUED: Final = ("response", "tool_call")  # an id that was issued twice has another kind, and names no call


class ObjectKind(StrEnum):
    """What an id names."""

    TRAJECTORY = "trajectory"
    CALL = "call"
    GROUP = "group"
    VERSION = "version"
    SESSION = "session"


@dataclass(frozen=True, slots=True)
class NamedObject:
    """An object and its own id: of a version its name, of a session the name under which it is stored.

    `trajectory_id`: of a call, the trajectory that it belongs to.
    """

    kind: ObjectKind
    id: str
    trajectory_id: str | None = None


async def find_object(project: Project, text: str, session_names: Sequence[str] = ()) -> NamedObject | None:
    """Return the project's object that `text` names; None if it names none. Only a session's name may have spaces.

    `session_names`: the names under which a session that clients call `text` may be stored.
    """
    if not text or len(text) > MAX_ID_CHARS or not text.isprintable():
        return None
    async with project.store.read() as conn:
        if " " in text:
            return await _session(conn, project.id, [text, *session_names])
        for look in (_own_ids, _version, _external_ids, _issued_ids):
            if (found := await look(conn, project.id, text)) is not None:
                return found
        if (found := await _session(conn, project.id, [text, *session_names])) is not None:
            return found
        return await _short_ids(conn, project.id, text) or await _in_any_group(conn, project.id, text)


async def _own_ids(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    t, g, c = trajectories.c, groups.c, calls.c
    return await _first(
        conn,
        _named(ObjectKind.TRAJECTORY, t.id).where(t.id == text, t.project_id == project_id),
        _named(ObjectKind.CALL, c.id, c.trajectory_id).where(c.id == text, c.project_id == project_id),
        _named(ObjectKind.GROUP, g.id).where(g.id == text, g.project_id == project_id),
    )


async def _version(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    if (name := _VERSION.fullmatch(text)) is None:
        return None
    query = (
        select(versions.c.id)
        .join(aliases, aliases.c.id == versions.c.alias_id)
        .where(aliases.c.project_id == project_id, aliases.c.name == name["alias"])
        .where(versions.c.number == int(name["number"]))
    )
    is_there = (await conn.execute(query)).first() is not None
    return NamedObject(ObjectKind.VERSION, f"{name['alias']}@{int(name['number'])}") if is_there else None


async def _external_ids(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    """A trajectory without a group, a group, or a group and its trajectory with a slash between them."""
    t, g = trajectories.c, groups.c
    group, slash, own = text.rpartition("/")
    of_trajectory = _named(ObjectKind.TRAJECTORY, t.id).where(
        t.project_id == project_id, t.address_group == group, t.external_id == own
    )
    found = await _first(conn, of_trajectory.order_by(t.sequence.desc()).limit(1))
    if found is not None or slash:
        return found
    of_group = _named(ObjectKind.GROUP, g.id).where(g.project_id == project_id, g.external_id == text)
    return await _first(conn, of_group.order_by(g.sequence.desc()).limit(1))


async def _issued_ids(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    """The call that a response's id, or a tool call's id, was issued with."""
    i = issued.c
    of_call = _named(ObjectKind.CALL, i.call_id, i.trajectory_id)
    known = (i.project_id == project_id, i.issued_id == issued_id_key(text), i.kind.in_(_ISSUED))
    return await _first(conn, of_call.where(*known))


async def _session(conn: AsyncConnection, project_id: str, names: Sequence[str]) -> NamedObject | None:
    t = trajectories.c
    there = _named(ObjectKind.SESSION, t.session).where(t.project_id == project_id, t.session.is_not(None))
    return await _first(conn, there.where(t.session.in_(names)).limit(1))


async def _short_ids(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    """An object whose id ends in `text`, as commands and pages show it, of the newest ones."""
    short = _SHORT.fullmatch(text)
    if short is None or _DIGIT.search(text) is None:
        return None
    t, g, c = trajectories.c, groups.c, calls.c
    newest = (
        select(t.id).where(t.project_id == project_id).order_by(t.id.desc()),
        select(g.id).where(g.project_id == project_id).order_by(g.opened_at.desc()),
        select(c.id).order_by(c.id.desc()),  # of all projects: the index has no more than the id
    )
    for of_kind in newest:
        recent = of_kind.limit(NEWEST).subquery()
        ending = select(recent.c.id).where(recent.c.id.endswith(short["end"], autoescape=True)).limit(1)
        whole = (await conn.execute(ending)).scalar_one_or_none()
        if whole is not None:
            return await _own_ids(conn, project_id, whole)
    return None


async def _in_any_group(conn: AsyncConnection, project_id: str, text: str) -> NamedObject | None:
    """The newest trajectory with this external id. It reads the project's part of the index of addresses."""
    if len(text) < _LEAST_CHARS or _DIGIT.search(text) is None:
        return None
    t = trajectories.c
    of_trajectory = _named(ObjectKind.TRAJECTORY, t.id).where(t.project_id == project_id, t.external_id == text)
    return await _first(conn, of_trajectory.order_by(t.started_at.desc(), t.sequence.desc()).limit(1))


def _named(kind: ObjectKind, id_: ColumnElement[Any], trajectory_id: ColumnElement[Any] | None = None) -> Select[Any]:
    return select(literal(kind.value), id_, null() if trajectory_id is None else trajectory_id)


async def _first(conn: AsyncConnection, *queries: Select[Any]) -> NamedObject | None:
    query = queries[0] if len(queries) == 1 else union_all(*queries)
    row = (await conn.execute(query)).first()
    return None if row is None else NamedObject(ObjectKind(row[0]), str(row[1]), row[2])
