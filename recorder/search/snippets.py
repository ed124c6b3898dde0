"""The words around what was found: of each run the first turn that says it, cut to a line.

Owns: where a match stands in a text, and how much is shown around it. Refuses: which runs are listed
(`recorder.search.asking`), and every markup: the places of the marks are numbers.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, takewhile
from typing import Any, Final

from sqlalchemy import BigInteger, Select, bindparam
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.search import query as queries
from recorder.search.asking import matching, number_of
from recorder.search.documents import Document, documents_of
from recorder.search.numbering import behind, first_of
from recorder.search.query import Query, Term
from recorder.search.words import Word, composed, words_in
from recorder.store.project import Project
from recorder.store.schema import said as rows

BEFORE: Final = 60  # characters shown in front of the first mark
SHOWN: Final = 200


@dataclass(frozen=True, slots=True)
class Snippet:
    """A line of what one call added. `marks`: from where to where in `text` (characters) something was asked for."""

    call_id: str
    text: str
    marks: Sequence[tuple[int, int]]
    cut_before: bool
    cut_after: bool


async def snippets(project: Project, said: str, trajectory_ids: Sequence[str]) -> Mapping[str, Snippet]:
    """By run: the words around the first match. Runs that do not say it, or whose calls are gone, are not there."""
    asked = queries.read(said)
    if not asked.wanted:
        return {}
    async with project.store.read() as conn:
        first = _first_call(conn, project.id, asked)
        keys = {id_: (await conn.execute(first, _place(id_))).scalar_one_or_none() for id_ in trajectory_ids}
        found = await documents_of(conn, [key for key in keys.values() if key is not None])
    by_key = {one.key: one for one in found}
    of_runs = {id_: by_key[key] for id_, key in keys.items() if key in by_key}
    made = {id_: snippet_of(document, asked) for id_, document in of_runs.items()}
    return {id_: snippet for id_, snippet in made.items() if snippet is not None}


def _first_call(conn: AsyncConnection, project_id: str, asked: Query) -> Select[Any]:
    """The key of a run's first document that matches; which run, says `_place`. Made once: that costs most."""
    number = number_of(conn)
    least, end = bindparam("least", type_=BigInteger), bindparam("end", type_=BigInteger)
    of_run = (rows.c.project_id == project_id, rows.c.trajectory_id == bindparam("run"), number >= least, number < end)
    return matching(conn, asked).with_only_columns(rows.c.call_id).where(*of_run).order_by(number).limit(1)


def _place(trajectory_id: str) -> dict[str, Any]:
    return {"run": trajectory_id, "least": first_of(trajectory_id), "end": behind(trajectory_id)}


def snippet_of(document: Document, asked: Query) -> Snippet | None:
    """The first text of a document in which something is said that was asked for, around that."""
    for text in map(composed, document.texts):
        marks = marks_in(text, asked)
        first = next(marks, None)
        if first is not None:
            near = takewhile(lambda mark: mark[0] < first[0] + SHOWN, marks)  # noqa: B023 - it is used up here
            return _cut(document.call_id, text, [first, *near])
    return None


def marks_in(text: str, asked: Query) -> Iterator[tuple[int, int]]:
    """From where to where a composed text says something that was asked for, in order."""
    words = words_in(text)
    ahead = deque(islice(words, max(len(term.words) for term in asked.wanted)))
    while ahead:
        length = max((len(term.words) for term in asked.wanted if _says(ahead, term)), default=0)
        if length:
            yield ahead[0].start, ahead[length - 1].end
        for _ in range(max(length, 1)):
            ahead.popleft()
            ahead.extend(islice(words, 1))


def _says(ahead: Sequence[Word], term: Term) -> bool:
    """Whether the next words of a text are a term's."""
    *inner, last = term.words
    if len(ahead) <= len(inner) or any(word.key != key for word, key in zip(ahead, inner, strict=False)):
        return False
    here = ahead[len(inner)].key
    return here.startswith(last) if term.begins else here == last


def _cut(call_id: str, text: str, marks: Sequence[tuple[int, int]]) -> Snippet:
    start = max(0, marks[0][0] - BEFORE)
    if start:  # at a word's beginning, where one begins nearby
        blank = text.find(" ", start, marks[0][0])
        start = blank + 1 if blank >= 0 else start
    end = min(len(text), max(start + SHOWN, marks[0][1]))
    inside = [(a - start, b - start) for a, b in marks if b <= end]
    return Snippet(call_id, text[start:end], inside, cut_before=start > 0, cut_after=end < len(text))
