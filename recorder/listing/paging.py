"""A page of a list by the id that it begins below: what is looked at for it, and when that is given up.

Owns: walking candidates downwards until a page is full or `MOST_LOOKED_AT` were looked at. Refuses: what a candidate is
(`recorder.listing.candidates`), and what of it is shown.

Ids begin with the time, so a list by ids is newest first, and a page costs the same however deep it lies. A filter that
an index knows is walked by it. Any other is asked of one candidate after the other: of so many that a page stays quick
where nearly none is wanted, and the page then says how many it looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, Table, select

from recorder.store import sql
from recorder.store.database import Store

MOST_LOOKED_AT: Final = 10_000
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Lines of a list. `next`: the id that the following page begins below; None: these were the last.

    `looked_at`: the page is not full, because so many candidates were looked at for it and there are more.
    """

    lines: Sequence[T]
    next: str | None
    looked_at: int | None = None


@dataclass(frozen=True, slots=True)
class Stretch:
    """Some candidates, as a condition; `end`: the id below which the next ones lie, None: there are none."""

    which: Sequence[ColumnElement[bool]]
    end: str | None
    size: int


class Candidates(Protocol):
    """What a list is walked by."""

    async def below(self, store: Store, before: str | None, *, checked: bool) -> Stretch:
        """The candidates below an id. `checked`: not each of them is wanted, so that a bound is needed."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Rows of a table in the order of an index that begins with the columns of `which` and goes on with the id."""

    table: Table
    which: Sequence[ColumnElement[bool]]
    first: str | None = None  # no id below this one is wanted
    end: str | None = None  # nor this one and those above it

    async def below(self, store: Store, before: str | None, *, checked: bool) -> Stretch:
        """Those rows; where they are checked, at most `MOST_LOOKED_AT` of them."""
        id_ = self.table.c.id
        top = min((one for one in (before, self.end) if one is not None), default=None)
        which = [*self.which, *([] if top is None else [id_ < top])]
        within = [*which, *([] if self.first is None else [id_ >= self.first])]
        if not checked:
            return Stretch(within, None, 0)
        newest = select(id_).where(*within).order_by(id_.desc()).limit(1).offset(MOST_LOOKED_AT - 1)
        async with store.read() as conn:
            floor = (await conn.execute(newest)).scalar_one_or_none()
        if floor is None:
            return Stretch(within, None, 0)
        return Stretch([*which, id_ >= floor], floor, MOST_LOOKED_AT)


@dataclass(frozen=True, slots=True)
class Whole:
    """Rows that are few: all of them are looked at, and brought into order."""

    id: ColumnElement[str]
    which: Sequence[ColumnElement[bool]]

    async def below(self, store: Store, before: str | None, *, checked: bool) -> Stretch:
        """Those rows."""
        return Stretch([*self.which, *([] if before is None else [sql.passed_by(self.id) < before])], None, 0)


async def page_of(
    store: Store,
    table: Table,
    candidates: Candidates,
    checks: Sequence[ColumnElement[bool]],
    *,
    before: str | None,
    limit: int,
) -> Page[str]:
    """The ids of a page: candidates below `before` that pass the checks."""
    found: list[str] = []
    looked_at = 0
    while True:
        stretch = await candidates.below(store, before, checked=bool(checks))
        query = select(table.c.id).where(*stretch.which, *checks).order_by(table.c.id.desc())
        async with store.read() as conn:
            found += (await conn.execute(query.limit(limit + 1 - len(found)))).scalars()
        if len(found) > limit:
            return Page(found[:limit], found[limit - 1])
        before, looked_at = stretch.end, looked_at + stretch.size
        if before is None:
            return Page(found, None)
        if looked_at >= MOST_LOOKED_AT:
            return Page(found, before, looked_at)


def told(page: Page[str], lines: Sequence[T]) -> Page[T]:
    """The same page with what is shown of each."""
    return Page(lines, page.next, page.looked_at)
