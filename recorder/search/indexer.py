"""Fill the full-text index in the background, and remove deleted calls from it.

Owns: one indexing step (what it reads before the transaction, what it writes, its size), when a step runs, queueing
indexed calls for their totals, and merging deleted words out of SQLite's file. Refuses: deciding what is deleted
(`recorder.maintenance.deletion`), and totals (`recorder.totals`).

The newest calls are indexed first, so filling an old store after its migration delays nothing new. A step's result is
written only if no deletion came in between (`projects.deletions`, see `recorder.maintenance.deletion`) and only for
calls that are still queued. So concurrent or killed indexers are harmless.

Writing a call increments no change counter (`recorder.store.changes`), so the queue is polled once a second with one
index read, and a call is searchable within 2 s. The indexer keeps its lease, because taking it would wake other
processes. A step's transactions take a few milliseconds. If more calls wait, the next step comes after a pause as long
as the last step, so that recorded calls can be committed in between.

A removed document cannot be found after the commit. But SQLite's index consists of immutable segments, so a removed
word stays in an old segment until that is merged with all later ones. `IndexMerge` merges in short transactions until
no segment contains deleted words. On PostgreSQL, VACUUM removes dead rows.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from operator import itemgetter
from typing import Final

from sqlalchemy import BigInteger, bindparam, column, delete, func, insert, select, table
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.leased_loop import LeasedLoop
from recorder.search.documents import Document, count_queued, first_number, load_documents, next_number
from recorder.search.terms import fts5_line, tsvector_text, word_keys
from recorder.store.database import Project, Store
from recorder.store.schema import counted_calls, projects, said, unindexed, unmerged
from recorder.store.statement import Statement, insert_into, insert_new
from recorder.store.wal_checkpoint import empty_log
from recorder.store.write_backends import Executor, Row, StoreBackend, WriteBackend, choose_backend

CALLS: Final = 32  # calls per step
# Characters per transaction, or one longer document: the write holds SQLite's lock for a few milliseconds.
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
# Totals count a call once, by this row (`recorder.totals.follower`), however often it is indexed again.
_COUNT: Final = insert_new(counted_calls)
_CALL: Final = "call_"  # the prefix of a call's id; a sibling's key is its trajectory's id


@dataclass(frozen=True, slots=True)
class _CallWords:
    """A call's text as words in the database's form; None if it has no text."""

    call_id: str
    trajectory_id: str
    words: str | None


async def index_calls(project: Project, backend: WriteBackend | None = None) -> int:
    """Index the newest queued calls; return how many. 0: the queue is empty, or another indexer was faster.

    A program that also records passes its fast `backend`, which holds the write lock for half the time.
    """
    backend = backend if backend is not None else StoreBackend(project.store)
    deletions, found = await _read(project)
    done = 0
    for portion in _portions(found):
        try:
            done += await backend.write(partial(_write, project.id, deletions, portion))
        except IntegrityError:  # PostgreSQL: an indexer of another project took the same numbers; try again
            break
    return done


async def _read(project: Project) -> tuple[int, list[_CallWords]]:
    """Return the project's number of deletions, and the documents of the newest queued calls."""
    counted = select(projects.c.deletions).where(projects.c.id == project.id)
    queue = select(unindexed.c.call_id).where(unindexed.c.project_id == project.id)
    async with project.store.read() as conn:
        deletions = int((await conn.execute(counted)).scalar_one())
        newest = await conn.execute(queue.order_by(unindexed.c.call_id.desc()).limit(CALLS))
        waiting = list(newest.scalars())
        there = {one.key: one for one in await load_documents(conn, waiting)} if waiting else {}
    # in a thread, because a long document would block the proxy's event loop for 10 ms
    return deletions, await asyncio.to_thread(_all_words, waiting, there, in_a_line=project.store.is_sqlite)


def _all_words(waiting: Sequence[str], there: Mapping[str, Document], *, in_a_line: bool) -> list[_CallWords]:
    return [_words(id_, there.get(id_), in_a_line=in_a_line) for id_ in waiting]


def _words(call_id: str, document: Document | None, *, in_a_line: bool) -> _CallWords:
    if document is None or not document.texts:
        return _CallWords(call_id, "", None)
    texts = [word_keys(text) for text in document.texts]
    return _CallWords(call_id, document.trajectory_id, fts5_line(texts) if in_a_line else tsvector_text(texts))


def _portions(found: Sequence[_CallWords]) -> Iterator[list[_CallWords]]:
    """Yield the documents in portions, one for each transaction."""
    portion: list[_CallWords] = []
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


def _write(project_id: str, deletions: int, portion: Sequence[_CallWords], ex: Executor) -> int:
    """Write the words of calls that are still queued, if nothing was deleted; return the number of calls."""
    if ex.all(_DELETIONS, project=project_id)[0][0] != deletions:
        return 0
    taken = {row[0] for row in ex.all(_TAKE, project=project_id, calls=[one.call_id for one in portion])}
    ex.many(_UNSAY, [(call_id,) for call_id in taken])  # its earlier document
    ex.many(_COUNT, [(call_id, project_id, None) for call_id in sorted(taken) if call_id.startswith(_CALL)])
    ex.many(_SAY, _numbered(ex, project_id, [one for one in portion if one.call_id in taken and one.words]))
    return len(taken)


def _numbered(ex: Executor, project_id: str, says: Sequence[_CallWords]) -> Sequence[Row]:
    """Return rows of `said` in the order of their numbers, which SQLite's index inserts faster."""
    free: dict[int, int] = {}
    rows: list[tuple[int, str, str, str, str | None]] = []
    for one in sorted(says, key=lambda each: each.call_id):
        least = first_number(one.trajectory_id)
        if least not in free:
            last = ex.all(_LAST, least=least, end=next_number(one.trajectory_id))[0][0]
            free[least] = least if last is None else last + 1
        rows.append((free[least], project_id, one.trajectory_id, one.call_id, one.words))
        free[least] += 1
    return sorted(rows, key=itemgetter(0))


# Pages of the index per merge step: 1 ms of CPU under the write lock, p99 7 ms with 600,000 documents (32 pages: 19).
# A word that is in nearly every document is always merged in one step: 45 ms (benchmarks/results/merging.json).
PAGES: Final = 8
PAUSE_S: Final = 0.01  # between merge steps, so that other processes can write
_PAGE: Final = 500  # marks per statement
_WRITES: Final = "SELECT total_changes()"
_NOTHING: Final = 2  # with fewer changes than this, a step merged nothing
# FTS5 takes commands as rows: a negative rank begins to merge all segments into one, a positive one continues.
_index: Final = table("said_words", column("said_words"), column("rank"))


async def forget_calls(conn: AsyncConnection, project_id: str, call_ids: Sequence[str]) -> None:
    """Remove a project's calls from the queue and the index.

    The queue comes first, because an indexer locks its rows while it writes.
    """
    queued = unindexed.c.project_id == project_id, unindexed.c.call_id.in_(call_ids)
    await conn.execute(delete(unindexed).where(*queued))
    await conn.execute(delete(said).where(said.c.call_id.in_(call_ids)))


class IndexMerge:
    """One merge of SQLite's index, for all documents that were removed before it began."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks: list[int] | None = None  # not read yet
        self._begun = False

    @property
    def took_any(self) -> bool:
        """Whether there was anything to merge."""
        return bool(self._marks)

    async def go_on(self, within_s: float = math.inf) -> bool:
        """Merge, and return True when it is done. False: it needs longer than `within_s`; call again."""
        deadline = time.monotonic() + within_s
        if self._marks is None:
            self._marks = await _marks(self._store)
        while self._marks and await _merge(self._store, PAGES if self._begun else -PAGES):
            self._begun = True
            if time.monotonic() > deadline:
                return False
            await asyncio.sleep(PAUSE_S)
        for at in range(0, len(self._marks), _PAGE):
            async with self._store.write() as conn:
                await conn.execute(delete(unmerged).where(unmerged.c.mark.in_(self._marks[at : at + _PAGE])))
        return True


async def _marks(store: Store) -> list[int]:
    """Return the marks of past removals; later ones are for the next merge. Empty on PostgreSQL."""
    async with store.read() as conn:
        return list((await conn.execute(select(unmerged.c.mark))).scalars())


async def _merge(store: Store, pages: int) -> bool:
    """Run one step; return whether there was anything to merge."""
    async with store.write() as conn:
        before = (await conn.exec_driver_sql(_WRITES)).scalar_one()
        await conn.execute(insert(_index).values(said_words="merge", rank=pages))
        after = (await conn.exec_driver_sql(_WRITES)).scalar_one()
    return bool(after - before >= _NOTHING)


LEASE: Final = "index"
LEASE_S: Final = 30.0  # two concurrent indexers are harmless: each call is taken from the queue once
LOOK_S: Final = 1.0
MERGE_EVERY_S: Final = 60.0
MERGE_S: Final = 0.5  # per turn, so that calls recorded meanwhile are still found within 2 s
MERGE_SHARE: Final = 0.02  # of the time: a merge rewrites the whole index, and retention deletes continuously


class Indexer:
    """Fills one project's index in the background: `async with indexer.running(): …`. `owner` names this process."""

    def __init__(self, project: Project, owner: str) -> None:
        self._project = project
        # a power cut loses the indexed words together with their removal from the queue
        self._backend = choose_backend(project.store, "process")
        self._loop = LeasedLoop(project, LEASE, owner, self._look, lease_s=LEASE_S, retry_s=LOOK_S)
        self._merge: IndexMerge | None = None
        self._merged_s = 0.0  # duration of the running merge so far
        self._merge_at = float("-inf")

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Fill until the block ends."""
        await self._backend.start()
        try:
            async with self._loop.running():
                yield
        finally:
            await self._backend.stop()

    async def _look(self) -> float:
        """Index a part of the queue; return the seconds until the next query."""
        began = time.monotonic()
        merge = began >= self._merge_at
        if not merge and not await count_queued(self._project, most=1):
            return LOOK_S
        if await self._loop.lease() is None:
            return LOOK_S
        done = await index_calls(self._project, self._backend)
        took_s = time.monotonic() - began
        if merge:
            await self._merge_some()
        return took_s if done >= CALLS or self._merge is not None else LOOK_S

    async def _merge_some(self) -> None:
        """Merge for a short time what the sweep deleted; the longer a merge took, the later is the next one."""
        began = time.monotonic()
        merge = self._merge = self._merge or IndexMerge(self._project.store)
        done = await merge.go_on(MERGE_S)
        self._merged_s += time.monotonic() - began
        if done:
            if merge.took_any:
                await empty_log(self._project.store)
            self._merge_at = time.monotonic() + max(MERGE_EVERY_S, self._merged_s / MERGE_SHARE)
            self._merge, self._merged_s = None, 0.0
