"""Ids as pages, commands and reports show them: cut in the middle, so that ids of one list never look equal.

Owns: how an id is cut, the last eight characters of Hone's own ids as commands print and accept them. Refuses: ids that
callers gave, where a command could mean either (they take precedence), and `/hone/v1` (programs have the whole id).

Hone's ids begin with the time and end with random characters. Eight characters are 40 bits.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from typing import Final, NamedTuple

from sqlalchemy import select, union_all

from recorder.errors import InvalidId
from recorder.store.database import Project
from recorder.store.schema import calls, groups, trajectories

SHOWN: Final = 8
MOST_CHARS: Final = 24  # of an id that a caller gave; a longer one is cut
_MORE: Final = 8  # characters that are shown more of ids that would look equal
_OURS: Final = re.compile(r"(?P<kind>traj|group|call)_[0-9a-z]{26,}")
_SHORT: Final = re.compile(r"(?:(?:(?:traj|group|call)_)?…)?(?P<end>[0-9a-z]{6,26})")
_NAMED: Final = (trajectories, groups, calls)


class ShortId(NamedTuple):
    """An id in three parts; `hidden` is the middle that is not shown, "" if the id is whole."""

    head: str
    hidden: str = ""
    tail: str = ""

    def __str__(self) -> str:
        return f"{self.head}…{self.tail}" if self.hidden else self.head

    @property
    def whole(self) -> str:
        """The id itself."""
        return self.head + self.hidden + self.tail


def cut_id(id_: str, chars: int = MOST_CHARS) -> ShortId:
    """Return an id cut in the middle to about `chars` characters; of Hone's own ids the random end stays."""
    if (ours := _OURS.fullmatch(id_)) is not None:
        head, tail = ours.end("kind") + 1, SHOWN * chars // MOST_CHARS
    else:
        head = chars // 3
        tail = chars - 1 - head
    if head + tail + 1 >= len(id_):
        return ShortId(id_)
    return ShortId(id_[:head], id_[head:-tail], id_[-tail:])


def cut_ids(ids: Iterable[str]) -> dict[str, ShortId]:
    """Return each id of a list as it is shown there: cut as by `cut_id`, and less where two would look equal."""
    shown: dict[str, ShortId] = {}
    taken: set[str] = set()
    left, chars = set(ids), MOST_CHARS
    while left:
        cut = {id_: cut_id(id_, chars) for id_ in left}
        times = Counter(map(str, cut.values()))
        unique = {id_: short for id_, short in cut.items() if times[str(short)] == 1 and str(short) not in taken}
        shown |= unique
        taken |= set(map(str, unique.values()))
        left -= unique.keys()
        chars += _MORE
    return shown


def shorten_id(id_: str | None) -> str | None:
    """Return the random end of one of Hone's own ids, which commands accept; other ids unchanged."""
    return id_[-SHOWN:] if id_ is not None and _OURS.fullmatch(id_) else id_


async def expand_id(project: Project, name: str) -> str:
    """Return the id of the trajectory, group or call that ends in `name`, or that is shown as `name`.

    Returns `name` itself if no id does, or if a caller gave exactly that id. Raises InvalidId if several do.
    """
    if (short := _SHORT.fullmatch(name)) is None:
        return name
    end = short["end"]
    given = [
        select(t.c.id).where(t.c.project_id == project.id, t.c.external_id == name) for t in (trajectories, groups)
    ]
    ends = [select(t.c.id).where(t.c.project_id == project.id, t.c.id.endswith(end)) for t in _NAMED]
    async with project.store.read() as conn:
        if (await conn.execute(union_all(*given).limit(1))).first() is not None:
            return name
        found = list((await conn.execute(union_all(*ends).limit(3))).scalars())
    if len(found) > 1:
        raise InvalidId(f"more than one id ends in {end!r}: {', '.join(found)} … Write more characters.")
    return str(found[0]) if found else name
