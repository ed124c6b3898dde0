"""Words that leave the index when the calls that said them are deleted.

Owns: taking documents out, inside a deletion's transaction, and what makes their words leave SQLite's file. Refuses:
deciding what is deleted (`recorder.upkeep.deletion`).

What is taken out is found no more from the commit on. But SQLite's index is made of segments that are only ever written
and merged: a word that is taken out stays in an old one until that is merged with all that came behind it. `merge_out`
does so, in short transactions, and is done when no segment is left that held what was deleted. PostgreSQL's dead rows
are its own: VACUUM takes them.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import Final

from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.store.database import Store
from recorder.store.schema import said, unindexed, unmerged

PAGES: Final = 32  # of the index, that a step writes: some 10 ms under the write lock
PAUSE_S: Final = 0.01  # in which others write
_PAGE: Final = 500  # marks a statement
_MERGE: Final = "INSERT INTO said_words (said_words, rank) VALUES ('merge', ?)"  # negative: all segments into one
_WRITES: Final = "SELECT total_changes()"
_NOTHING: Final = 2  # fewer changes than this, and a step merged nothing


async def forget(conn: AsyncConnection, call_ids: Sequence[str]) -> None:
    """Take calls out of the index and of its queue. The queue first: who fills holds its rows while it writes."""
    await conn.execute(delete(unindexed).where(unindexed.c.call_id.in_(call_ids)))
    await conn.execute(delete(said).where(said.c.call_id.in_(call_ids)))


async def merge_out(store: Store, within_s: float = math.inf) -> bool:
    """Merge SQLite's index until no deleted word is in it. False: that takes longer than `within_s`; call again."""
    marks = await _marks(store)
    deadline = time.monotonic() + within_s
    pages = -PAGES
    while marks and await _merge(store, pages):
        if time.monotonic() > deadline:
            return False
        pages = PAGES
        await asyncio.sleep(PAUSE_S)
    for at in range(0, len(marks), _PAGE):
        async with store.write() as conn:
            await conn.execute(delete(unmerged).where(unmerged.c.mark.in_(marks[at : at + _PAGE])))
    return True


async def _marks(store: Store) -> list[int]:
    """What was taken out before now: those of a later deletion stay for the next merge. None on PostgreSQL."""
    async with store.read() as conn:
        return list((await conn.execute(select(unmerged.c.mark))).scalars())


async def _merge(store: Store, pages: int) -> bool:
    """One step; whether there was anything to merge."""
    async with store.write() as conn:
        before = (await conn.exec_driver_sql(_WRITES)).scalar_one()
        await conn.exec_driver_sql(_MERGE, (pages,))
        after = (await conn.exec_driver_sql(_WRITES)).scalar_one()
    return bool(after - before >= _NOTHING)
