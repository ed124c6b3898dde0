"""Words that leave the index when the calls that said them are deleted.

Owns: taking documents out, inside a deletion's transaction, and what makes their words leave SQLite's file. Refuses:
deciding what is deleted (`recorder.upkeep.deletion`).

What is taken out is found no more from the commit on. But SQLite's index is made of segments that are only ever written
and merged: a word that is taken out stays in an old one until that is merged with all that came behind it. `Merge`
does so, in short transactions, and is done when no segment is left that held what was deleted. PostgreSQL's dead rows
are its own: VACUUM takes them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

from sqlalchemy import column, delete, insert, select, table
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import Store
from recorder.store.schema import said, unindexed, unmerged

# Of the index, that a step writes: 1 ms of CPU under the write lock, 7 at p99 of 600,000 documents (with 32 pages 19).
# A word that nearly every document has is merged in one step whatever this is: 45 ms (benchmarks/results/merging.json).
PAGES: Final = 8
PAUSE_S: Final = 0.01  # in which others write
_PAGE: Final = 500  # marks a statement
_WRITES: Final = "SELECT total_changes()"
_NOTHING: Final = 2  # fewer changes than this, and a step merged nothing
# FTS5 is told what to do by a row: a negative rank begins to merge all segments into one, a positive one goes on.
_index: Final = table("said_words", column("said_words"), column("rank"))


async def forget(conn: AsyncConnection, project_id: str, call_ids: Sequence[str]) -> None:
    """Take a project's calls out of the index and of its queue. The queue first: who fills holds its rows while it
    writes."""
    queued = unindexed.c.project_id == project_id, unindexed.c.call_id.in_(call_ids)
    await conn.execute(delete(unindexed).where(*queued))
    await conn.execute(delete(said).where(said.c.call_id.in_(call_ids)))


class Merge:
    """One merge of SQLite's index, of all that was taken out before it began; nothing where nothing was."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._marks: list[int] | None = None  # not looked yet
        self._begun = False

    @property
    def took_any(self) -> bool:
        """Whether there was anything to merge out."""
        return bool(self._marks)

    async def go_on(self, within_s: float = math.inf) -> bool:
        """Merge until it is done: then True. False: that takes longer than `within_s`; call again."""
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
    """What was taken out before now: that of a later deletion stays for the next merge. None on PostgreSQL."""
    async with store.read() as conn:
        return list((await conn.execute(select(unmerged.c.mark))).scalars())


async def _merge(store: Store, pages: int) -> bool:
    """One step; whether there was anything to merge."""
    async with store.write() as conn:
        before = (await conn.exec_driver_sql(_WRITES)).scalar_one()
        await conn.execute(insert(_index).values(said_words="merge", rank=pages))
        after = (await conn.exec_driver_sql(_WRITES)).scalar_one()
    return bool(after - before >= _NOTHING)
