"""Short ids: the end of one of Hone's own, as lists show it and commands take it.

Owns: what is taken for one, and what it stands for. Refuses: ids that callers gave (they come first), routes (programs
have the whole id).

Ids begin with a time, which neighbours share; their ends are random. Eight characters are 40 bits.
"""

from __future__ import annotations

import re
from typing import Final

from sqlalchemy import select, union_all

from recorder.errors import InvalidId
from recorder.store.database import Project
from recorder.store.schema import calls, groups, trajectories

SHOWN: Final = 8
_OURS: Final = re.compile(r"(traj|group|call)_[0-9a-z]{26,}")
_SHORT: Final = re.compile(r"[0-9a-z]{6,26}")
_NAMED: Final = (trajectories, groups, calls)


def shorten_id(id_: str | None) -> str | None:
    """How a list shows an id; what is none of Hone's own stays as it is."""
    return id_[-SHOWN:] if id_ is not None and _OURS.fullmatch(id_) else id_


async def expand_id(project: Project, name: str) -> str:
    """The id of the run, group or call whose end `name` is; else, and where a caller gave just that id, `name`.

    Raises InvalidId where several end so.
    """
    if not _SHORT.fullmatch(name):
        return name
    given = [
        select(t.c.id).where(t.c.project_id == project.id, t.c.external_id == name) for t in (trajectories, groups)
    ]
    ends = [select(t.c.id).where(t.c.project_id == project.id, t.c.id.endswith(name)) for t in _NAMED]
    async with project.store.read() as conn:
        if (await conn.execute(union_all(*given).limit(1))).first() is not None:
            return name
        found = list((await conn.execute(union_all(*ends).limit(3))).scalars())
    if len(found) > 1:
        raise InvalidId(f"more than one id ends in {name!r}: {', '.join(found)} … Write more of it.")
    return str(found[0]) if found else name
