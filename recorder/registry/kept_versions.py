"""Which versions of an alias are a day and a week old, and which are kept so that there are such versions. Pure rules.

Owns: the rules over one line of versions, and reading a line. Refuses: removing folders
(`recorder.maintenance.retention`), and comparing versions (`trainer.step.drift`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.registry.ancestry import ancestry_ages
from recorder.store.schema import versions

DAY_S: Final = 86400.0
WEEK_S: Final = 7 * DAY_S
_KEPT: Final = ((DAY_S, 7), (WEEK_S, 4))  # seconds of a period, and of how many of them, the current one included


@dataclass(frozen=True, slots=True)
class LineVersion:
    """A version of a line. `created_at`: unix seconds. `path`: its folder; None: it has none, or none any more."""

    id: str
    number: int
    created_at: float
    path: str | None
    manifest_sha256: str | None


async def read_line(conn: AsyncConnection, version_id: str) -> list[LineVersion]:
    """Return a version and its ancestors, newest first."""
    line = ancestry_ages(version_id).subquery()
    columns = [versions.c[name] for name in LineVersion.__slots__]
    query = select(*columns).join(line, line.c.id == versions.c.id).order_by(line.c.age)
    return [LineVersion(*row) for row in await conn.execute(query)]


def version_of_age(line: Iterable[LineVersion], age_s: float, at: float) -> LineVersion | None:
    """Return the newest version with a folder that was at least `age_s` old at a time (unix seconds), or None."""
    old = (one for one in line if one.path is not None and one.created_at <= at - age_s)
    return max(old, key=lambda one: one.number, default=None)


def keep_by_age(line: Iterable[LineVersion], at: float) -> set[str]:
    """Return the ids of the versions of a line that are kept for comparison at a time (unix seconds).

    They are the newest with a folder of each of the last 7 days and of each of the last 4 weeks, in UTC. Days begin at
    fixed times: so what is kept of a day that is over stays the same, until it is too old.
    """
    found = [one for one in line if one.path is not None]
    kept = set()
    for span_s, count in _KEPT:
        newest: dict[int, LineVersion] = {}
        for one in sorted(found, key=lambda one: one.number):
            newest[int(one.created_at // span_s)] = one
        kept |= {one.id for period, one in newest.items() if at // span_s - period < count}
    return kept
