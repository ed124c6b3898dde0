"""Find the trajectories that match a search, newest first, by keyset; and the snippet of each.

Owns: the query for both databases, how far it scans, the positions of matches in a text, and the length of a snippet.
Refuses: parsing queries (`recorder.search.terms`), other filters, the trajectories themselves
(`recorder.views`), and markup: marks are numeric positions.

SQLite scans matching documents from the newest down and stops when it has enough, so a frequent word costs no more than
a rare one. PostgreSQL chooses between such a scan and its index by statistics. A snippet is one line of the first
matching call of the trajectory.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Final

from sqlalchemy import (
    BigInteger,
    ColumnElement,
    Select,
    bindparam,
    cast,
    column,
    literal,
    literal_column,
    select,
    table,
)
from sqlalchemy.dialects.postgresql import TSQUERY
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.search import terms as queries
from recorder.search.documents import Document, first_number, is_same_ms, load_documents, next_number
from recorder.search.terms import Query, Term, Word, compose_text, split_words
from recorder.store.database import Project
from recorder.store.schema import said as documents
from recorder.store.schema import said as rows

_LEAST_PAGE: Final = 200  # documents read at once: a trajectory has several

_words = table("said_words", column("rowid"))


async def find_trajectories(project: Project, said: str, *, before: str | None, limit: int) -> list[str]:
    """Return the ids of at most `limit` trajectories with a call that contains all words of `said`, newest first.

    The syntax has "a quoted phrase", a prefix* and -without; anything else is plain words. A query without required
    words finds nothing. `before` is the last id of the page before. A call contains what it adds: the messages of its
    prompt that its parent does not have, and its answer. It can be found within 2 s of its commit.
    """
    asked = queries.parse_query(said)
    if not asked.wanted or limit < 1:
        return []
    async with project.store.read() as conn:
        return await _runs(conn, project.id, asked, before, limit)


async def _runs(conn: AsyncConnection, project_id: str, asked: Query, before: str | None, limit: int) -> list[str]:
    """Scan until a trajectory began earlier than the last wanted one: within a millisecond the ids give the order."""
    found: dict[str, int] = {}
    below = next_number(before) if before is not None else None
    page = max(_LEAST_PAGE, 4 * limit)
    while True:
        rows = (await conn.execute(_page(conn, project_id, asked, below).limit(page))).all()
        for id_, trajectory_id in rows:
            if before is None or trajectory_id < before:
                found.setdefault(trajectory_id, id_)
        numbers = list(found.values())
        if len(rows) < page or (len(found) > limit and not is_same_ms(numbers[limit - 1], numbers[-1])):
            return sorted(found, reverse=True)[:limit]
        below = rows[-1][0]


def _page(conn: AsyncConnection, project_id: str, asked: Query, below: int | None) -> Select[Any]:
    wanted = match_documents(conn, asked).where(documents.c.project_id == project_id)
    number = document_number(conn)
    return (wanted if below is None else wanted.where(number < below)).order_by(number.desc())


def match_documents(conn: AsyncConnection, asked: Query) -> Select[Any]:
    """Return a SELECT of the matching documents: number and trajectory."""
    chosen = select(documents.c.id, documents.c.trajectory_id)
    if conn.dialect.name == "sqlite":
        is_said = literal_column("said_words").op("MATCH")(literal(queries.fts5_query(asked)))
        return chosen.select_from(_words.join(documents, documents.c.id == _words.c.rowid)).where(is_said)
    return chosen.where(documents.c.words.op("@@")(cast(literal(queries.tsquery_text(asked)), TSQUERY)))


def document_number(conn: AsyncConnection) -> ColumnElement[int]:
    """A column: a document's number, from the index that is ordered by it."""
    return _words.c.rowid if conn.dialect.name == "sqlite" else documents.c.id


BEFORE: Final = 60  # characters shown in front of the first mark
SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Snippet:
    """A line of the text that one call added. `marks`: the ranges of matches in `text` (characters)."""

    call_id: str
    text: str
    marks: Sequence[tuple[int, int]]
    cut_before: bool
    cut_after: bool


async def load_snippets(project: Project, said: str, trajectory_ids: Sequence[str]) -> Mapping[str, Snippet]:
    """Return the text around the first match, by trajectory. Trajectories without a match, or with deleted calls, are
    absent.
    """
    asked = queries.parse_query(said)
    if not asked.wanted:
        return {}
    async with project.store.read() as conn:
        first = _first_call(conn, project.id, asked)
        keys = {id_: (await conn.execute(first, _place(id_))).scalar_one_or_none() for id_ in trajectory_ids}
        found = await load_documents(conn, [key for key in keys.values() if key is not None])
    by_key = {one.key: one for one in found}
    of_runs = {id_: by_key[key] for id_, key in keys.items() if key in by_key}
    made = {id_: find_snippet(document, asked) for id_, document in of_runs.items()}
    return {id_: snippet for id_, snippet in made.items() if snippet is not None}


def _first_call(conn: AsyncConnection, project_id: str, asked: Query) -> Select[Any]:
    """The query for the key of a trajectory's first matching document; `_place` binds the trajectory.

    It is built once, because building it takes most of the time.
    """
    number = document_number(conn)
    least, end = bindparam("least", type_=BigInteger), bindparam("end", type_=BigInteger)
    of_run = (rows.c.project_id == project_id, rows.c.trajectory_id == bindparam("run"), number >= least, number < end)
    return match_documents(conn, asked).with_only_columns(rows.c.call_id).where(*of_run).order_by(number).limit(1)


def _place(trajectory_id: str) -> dict[str, Any]:
    return {"run": trajectory_id, "least": first_number(trajectory_id), "end": next_number(trajectory_id)}


def find_snippet(document: Document, asked: Query) -> Snippet | None:
    """Return the first text of a document with a match, cut to the text around the match."""
    for text in map(compose_text, document.texts):
        marks = find_marks(text, asked)
        first = next(marks, None)
        if first is not None:
            near = takewhile(lambda mark: mark[0] < first[0] + SHOWN, marks)  # noqa: B023 - it is used up here
            return _cut(document.call_id, text, [first, *near])
    return None


def find_marks(text: str, asked: Query) -> Iterator[tuple[int, int]]:
    """Yield the ranges of matches in a composed text, in order."""
    words = split_words(text)
    ahead = deque(islice(words, max(len(term.words) for term in asked.wanted)))
    while ahead:
        length = max((len(term.words) for term in asked.wanted if _says(ahead, term)), default=0)
        if length:
            yield ahead[0].start, ahead[length - 1].end
        for _ in range(max(length, 1)):
            ahead.popleft()
            ahead.extend(islice(words, 1))


def _says(ahead: Sequence[Word], term: Term) -> bool:
    """Return whether the next words of a text match a term."""
    *inner, last = term.words
    if len(ahead) <= len(inner) or any(word.key != key for word, key in zip(ahead, inner, strict=False)):
        return False
    here = ahead[len(inner)].key
    return here.startswith(last) if term.begins else here == last


def _cut(call_id: str, text: str, marks: Sequence[tuple[int, int]]) -> Snippet:
    start = max(0, marks[0][0] - BEFORE)
    if start:  # at the beginning of a word, if one begins nearby
        blank = text.find(" ", start, marks[0][0])
        start = blank + 1 if blank >= 0 else start
    end = min(len(text), max(start + SHOWN, marks[0][1]))
    inside = [(a - start, b - start) for a, b in marks if b <= end]
    return Snippet(call_id, text[start:end], inside, cut_before=start > 0, cut_after=end < len(text))
