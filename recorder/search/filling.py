"""Calls taken from the queue and indexed, a few at a time.

Owns: one such step: what is read before the transaction, what is written in it, and how long it may be. Refuses: when
a step is taken (`recorder.search.filler`).

The newest calls come first: an old store that is filled behind its migration keeps nobody from what is said now. What
was read is written only while no deletion came between (`projects.deletions`, see `recorder.upkeep.deletion`), and only
for calls that still wait: so two that fill at once, and one that is killed in the midst, do no harm.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final

from sqlalchemy import BigInteger, bindparam, delete, func, select
from sqlalchemy.exc import IntegrityError

from recorder.search.documents import Document, documents_of
from recorder.search.numbering import behind, first_of
from recorder.search.words import as_line, as_vector, keys_of
from recorder.store.lanes import Executor, Lane, Row, StoreLane
from recorder.store.project import Project
from recorder.store.schema import projects, said, unindexed
from recorder.store.statement import Statement, insert_into

CALLS: Final = 32  # looked at in a step
# Of the words that one transaction writes, or one long document: it holds SQLite's write lock for some milliseconds.
MOST_CHARS: Final = 16_384


_DELETIONS: Final = Statement(
    select(projects.c.deletions).where(projects.c.id == bindparam("project")).with_for_update(read=True)
)
_TAKE: Final = Statement(
    delete(unindexed)
    .where(unindexed.c.project_id == bindparam("project"), unindexed.c.call_id.in_(bindparam("calls", expanding=True)))
    .returning(unindexed.c.call_id)
)
_UNSAY: Final = Statement(delete(said).where(said.c.call_id == bindparam("call")))
_LAST: Final = Statement(
    select(func.max(said.c.id)).where(
        said.c.id >= bindparam("least", type_=BigInteger), said.c.id < bindparam("end", type_=BigInteger)
    )
)
_SAY: Final = insert_into(said)


@dataclass(frozen=True, slots=True)
class _Words:
    """What a call says, by its words as the database takes them; None where it says nothing."""

    call_id: str
    trajectory_id: str
    words: str | None


async def fill(project: Project, lane: Lane | None = None) -> int:
    """Index the newest calls that wait; returns how many are done. 0: none waits, or another was faster.

    A program that records beside it writes by a fast `lane`: the write lock is held half as long.
    """
    lane = lane if lane is not None else StoreLane(project.store)
    deletions, found = await _read(project)
    done = 0
    for portion in _portions(found):
        try:
            done += await lane.write(partial(_write, project.id, deletions, portion))
        except IntegrityError:  # PostgreSQL: a program of another project took the same numbers. Look anew
            break
    return done


async def _read(project: Project) -> tuple[int, list[_Words]]:
    """The project's count of deletions, and with it what the newest calls that wait say."""
    counted = select(projects.c.deletions).where(projects.c.id == project.id)
    queue = select(unindexed.c.call_id).where(unindexed.c.project_id == project.id)
    async with project.store.read() as conn:
        deletions = int((await conn.execute(counted)).scalar_one())
        newest = await conn.execute(queue.order_by(unindexed.c.call_id.desc()).limit(CALLS))
        waiting = list(newest.scalars())
        there = {one.key: one for one in await documents_of(conn, waiting)} if waiting else {}
    # in a thread: the proxy's event loop has turns to answer, and a long document takes 10 ms
    return deletions, await asyncio.to_thread(_all_words, waiting, there, in_a_line=project.store.is_sqlite)


def _all_words(waiting: Sequence[str], there: Mapping[str, Document], *, in_a_line: bool) -> list[_Words]:
    return [_words(id_, there.get(id_), in_a_line=in_a_line) for id_ in waiting]


def _words(call_id: str, document: Document | None, *, in_a_line: bool) -> _Words:
    if document is None or not document.texts:
        return _Words(call_id, "", None)
    texts = [keys_of(text) for text in document.texts]
    return _Words(call_id, document.trajectory_id, as_line(texts) if in_a_line else as_vector(texts))


def _portions(found: Sequence[_Words]) -> Iterator[list[_Words]]:
    """As much as one transaction writes at a time."""
    portion: list[_Words] = []
    room = MOST_CHARS
    for one in found:
        length = len(one.words or "")
        if portion and length > room:
            yield portion
            portion, room = [], MOST_CHARS
        portion.append(one)
        room -= length
    if portion:
        yield portion


def _write(project_id: str, deletions: int, portion: Sequence[_Words], ex: Executor) -> int:
    """Write what still waits and still holds; returns how many calls that is."""
    if ex.all(_DELETIONS, project=project_id)[0][0] != deletions:
        return 0
    taken = {row[0] for row in ex.all(_TAKE, project=project_id, calls=[one.call_id for one in portion])}
    ex.many(_UNSAY, [(call_id,) for call_id in taken])  # what was said of it before
    ex.many(_SAY, _numbered(ex, project_id, [one for one in portion if one.call_id in taken and one.words]))
    return len(taken)


def _numbered(ex: Executor, project_id: str, says: Sequence[_Words]) -> Sequence[Row]:
    """Rows of `said`, in the order of their numbers: SQLite's index takes them faster so."""
    free: dict[int, int] = {}
    rows: list[tuple[int, str, str, str, str | None]] = []
    for one in sorted(says, key=lambda each: each.call_id):
        least = first_of(one.trajectory_id)
        if least not in free:
            last = ex.all(_LAST, least=least, end=behind(one.trajectory_id))[0][0]
            free[least] = least if last is None else last + 1
        rows.append((free[least], project_id, one.trajectory_id, one.call_id, one.words))
        free[least] += 1
    return sorted(rows, key=itemgetter(0))
