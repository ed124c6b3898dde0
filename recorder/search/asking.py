"""Which runs said something: the newest first, by keyset.

Owns: the question in either database's words, and how far it is walked. Refuses: reading what was typed
(`recorder.search.query`), any other filter, what the runs are (`recorder.reading`).

SQLite walks the documents that match downwards from the newest and stops when it has enough, so a word that is
everywhere costs no more than one that is rare. PostgreSQL chooses by its statistics between that and its index.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, cast, column, literal, literal_column, select, table
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.search import query as queries
from recorder.search.numbering import behind, same_ms
from recorder.search.query import Query
from recorder.store.project import Project
from recorder.store.schema import said as documents

_LEAST_PAGE: Final = 200  # documents read at once: a run has several

_words = table("said_words", column("rowid"))


async def runs_saying(project: Project, said: str, *, before: str | None, limit: int) -> list[str]:
    """The ids of at most `limit` runs in which all words of `said` were said, in one turn; newest first.

    "a quoted phrase", a prefix* and -without work, anything else is plain words; where it names no word at all, or only
    unwanted ones, nothing is found. `before` is the last id of the page before. A turn is what one call adds: the
    messages that its prompt has beyond its parent's, and what was answered. It is found within 2 s of its commit.
    """
    asked = queries.read(said)
    if not asked.wanted or limit < 1:
        return []
    async with project.store.read() as conn:
        return await _runs(conn, project.id, asked, before, limit)


async def _runs(conn: AsyncConnection, project_id: str, asked: Query, before: str | None, limit: int) -> list[str]:
    """Walk until the run behind the last wanted one began earlier: of one millisecond the ids say the order."""
    found: dict[str, int] = {}
    below = behind(before) if before is not None else None
    page = max(_LEAST_PAGE, 4 * limit)
    while True:
        rows = (await conn.execute(_page(conn, project_id, asked, below).limit(page))).all()
        for id_, trajectory_id in rows:
            if before is None or trajectory_id < before:
                found.setdefault(trajectory_id, id_)
        numbers = list(found.values())
        if len(rows) < page or (len(found) > limit and not same_ms(numbers[limit - 1], numbers[-1])):
            return sorted(found, reverse=True)[:limit]
        below = rows[-1][0]


def _page(conn: AsyncConnection, project_id: str, asked: Query, below: int | None) -> Select[Any]:
    wanted = matching(conn, asked).where(documents.c.project_id == project_id)
    number = number_of(conn)
    return (wanted if below is None else wanted.where(number < below)).order_by(number.desc())


def matching(conn: AsyncConnection, asked: Query) -> Select[Any]:
    """The documents that match, as a SELECT of number and run."""
    chosen = select(documents.c.id, documents.c.trajectory_id)
    if conn.dialect.name == "sqlite":
        is_said = literal_column("said_words").op("MATCH")(literal(queries.for_fts5(asked)))
        return chosen.select_from(_words.join(documents, documents.c.id == _words.c.rowid)).where(is_said)
    return chosen.where(documents.c.words.op("@@")(cast(literal(queries.for_tsquery(asked)), TSQUERY)))


def number_of(conn: AsyncConnection) -> ColumnElement[int]:
    """A document's number, by the index that has them in order."""
    return _words.c.rowid if conn.dialect.name == "sqlite" else documents.c.id
