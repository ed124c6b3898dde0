"""Short ids: the last eight characters of Hone's own ids, as lists show them and commands accept them.

Refuses: ids that callers gave (they take precedence), and `/hone/v1` (programs have the whole id).

Ids begin with the time and end with random characters. Eight characters are 40 bits.
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
    """Return the short form of one of Hone's own ids; other ids unchanged."""
    return id_[-SHOWN:] if id_ is not None and _OURS.fullmatch(id_) else id_


async def expand_id(project: Project, name: str) -> str:
    """Return the id of the trajectory, group or call that ends in `name`.

    Returns `name` itself if no id does, or if a caller gave exactly that id. Raises InvalidId if several do.
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
        raise InvalidId(f"more than one id ends in {name!r}: {', '.join(found)} … Write more characters.")
    return str(found[0]) if found else name
