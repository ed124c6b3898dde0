"""How a check reads the store (in pages, each a short read), and the form of a violation.

Refuses: the invariants themselves.

Each read is one page, because a read of several seconds prevents SQLite's checkpoints. So the pages of a store in use
show different moments; for that reason `recorder.maintenance.integrity.invariants` checks twice.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from sqlalchemy import ColumnElement, Row, Select, select

from recorder.store.database import Store

PAGE: Final = 500  # rows per read


@dataclass(frozen=True, slots=True)
class Violation:
    """One violation of an invariant: the object, what is wrong, and what to do."""

    kind: str  # call, choice, trajectory, group, version, step, alias, node, blob, folder, attempt
    id: str
    what: str
    do: str


Violations = AsyncIterator[Violation]
Check = Callable[["CheckReader"], Violations]


class CheckReader:
    """Reads for one check."""

    def __init__(self, store: Store, data: Path, shared: Collection[str] = ()) -> None:
        self.data = data
        self.shared = shared  # names of the adapters at `adapters.url`
        self.rows_seen = 0
        self._store = store

    async def rows(self, query: Select[Any]) -> Sequence[Row[Any]]:
        """Return all rows of a query with few rows."""
        async with self._store.read() as conn:
            return list(await conn.execute(query))

    async def pages(self, query: Select[Any], key: ColumnElement[Any]) -> AsyncIterator[Sequence[Row[Any]]]:
        """Yield the rows of a query in pages, in the order of the unique `key` of the table that it scans."""
        last: object = None
        while True:
            page = select(key).order_by(key).limit(PAGE)
            keys = await self.rows(page if last is None else page.where(key > last))
            if not keys:
                return
            self.rows_seen += len(keys)
            first, last = keys[0][0], keys[-1][0]
            yield await self.rows(query.where(key >= first, key <= last).order_by(key))

    async def find(self, query: Select[Any], key: ColumnElement[Any]) -> AsyncIterator[Row[Any]]:
        """Yield the rows of `pages` one by one."""
        async for page in self.pages(query, key):
            for row in page:
                yield row
