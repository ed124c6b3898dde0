"""The words around what was found: of each run the first turn that says it, cut to a line.

Owns: where a match stands in a text, and how much is shown around it. Refuses: which runs are listed
(`recorder.search.asking`), and every markup: the places of the marks are numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.search import query as queries
from recorder.search.asking import matching, number_of
from recorder.search.documents import Document, documents_of
from recorder.search.numbering import behind, first_of
from recorder.search.query import Query, Term
from recorder.search.words import Word, composed, words_in
from recorder.store.database import Store
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


async def snippets(store: Store, project_id: str, said: str, trajectory_ids: Sequence[str]) -> Mapping[str, Snippet]:
    """By run: the words around the first match. Runs that do not say it, or whose calls are gone, are not there."""
    asked = queries.read(said)
    if not asked.wanted:
        return {}
    async with store.read() as conn:
        first = {id_: await _first_call(conn, project_id, asked, id_) for id_ in trajectory_ids}
        found = await documents_of(conn, [call_id for call_id in first.values() if call_id is not None])
    by_call = {one.call_id: one for one in found}
    of_runs = {id_: by_call[call_id] for id_, call_id in first.items() if call_id in by_call}
    made = {id_: snippet_of(document, asked) for id_, document in of_runs.items()}
    return {id_: snippet for id_, snippet in made.items() if snippet is not None}


async def _first_call(conn: AsyncConnection, project_id: str, asked: Query, trajectory_id: str) -> str | None:
    number = number_of(conn)
    of_run = (rows.c.project_id == project_id, rows.c.trajectory_id == trajectory_id)
    bounds = (number >= first_of(trajectory_id), number < behind(trajectory_id))
    query = matching(conn, asked).with_only_columns(rows.c.call_id).where(*of_run, *bounds)
    found: str | None = (await conn.execute(query.order_by(number).limit(1))).scalar_one_or_none()
    return found


def snippet_of(document: Document, asked: Query) -> Snippet | None:
    """The first text of a document in which something is said that was asked for, around that."""
    for text in map(composed, document.texts):
        marks = list(marks_in(text, asked))
        if marks:
            return _cut(document.call_id, text, marks)
    return None


def marks_in(text: str, asked: Query) -> Iterator[tuple[int, int]]:
    """From where to where a composed text says something that was asked for, in order."""
    words = list(words_in(text))
    at = 0
    while at < len(words):
        length = max((len(term.words) for term in asked.wanted if _says(words, at, term)), default=0)
        if length:
            yield words[at].start, words[at + length - 1].end
        at += max(length, 1)


def _says(words: Sequence[Word], at: int, term: Term) -> bool:
    here = words[at : at + len(term.words)]
    if len(here) < len(term.words) or any(w.key != key for w, key in zip(here[:-1], term.words, strict=False)):
        return False
    last = here[-1].key
    return last.startswith(term.words[-1]) if term.begins else last == term.words[-1]


def _cut(call_id: str, text: str, marks: Sequence[tuple[int, int]]) -> Snippet:
    start = max(0, marks[0][0] - BEFORE)
    if start:  # at a word's beginning, where one begins nearby
        blank = text.find(" ", start, marks[0][0])
        start = blank + 1 if blank >= 0 else start
    end = min(len(text), max(start + SHOWN, marks[0][1]))
    inside = [(a - start, b - start) for a, b in marks if b <= end]
    return Snippet(call_id, text[start:end], inside, cut_before=start > 0, cut_after=end < len(text))
