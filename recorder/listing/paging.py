"""A page of a list by the id that it begins below: what is looked at for it, and when that is given up.

Owns: walking candidates downwards until a page is full or enough were looked at. Refuses: what a candidate is
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

MOST_LOOKED_AT: Final = 6000  # of runs of six turns: what is asked of each takes up to 10 µs
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
    """The candidates of a page, as a condition. `end`: there are more of them, below this id; None: these are all.

    `size`: how many they are, where `end` says that there are more.
    """

    which: Sequence[ColumnElement[bool]]
    end: str | None = None
    size: int = 0


class Candidates(Protocol):
    """What a list is walked by."""

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Stretch:
        """The candidates below an id. `enough`: so many are, since each is wanted; None: they are checked."""


@dataclass(frozen=True, slots=True)
class Indexed:
    """Rows of a table in the order of an index that begins with the columns of `which` and goes on with the id."""

    table: Table
    which: Sequence[ColumnElement[bool]]
    first: str | None = None  # no id below this one is wanted
    end: str | None = None  # nor this one and those above it
    most: int = MOST_LOOKED_AT

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Stretch:
        """Those rows; where they are checked, at most `most` of them."""
        id_ = self.table.c.id
        top = min((one for one in (before, self.end) if one is not None), default=None)
        which = [*self.which, *([] if top is None else [id_ < top])]
        within = [*which, *([] if self.first is None else [id_ >= self.first])]
        if enough is not None:
            return Stretch(within)
        newest = select(id_).where(*within).order_by(id_.desc()).limit(1).offset(self.most - 1)
        async with store.read() as conn:
            floor = (await conn.execute(newest)).scalar_one_or_none()
        return Stretch(within) if floor is None else Stretch([*which, id_ >= floor], floor, self.most)


@dataclass(frozen=True, slots=True)
class Whole:
    """Rows that are few: all of them are looked at, and brought into order."""

    id: ColumnElement[str]
    which: Sequence[ColumnElement[bool]]

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Stretch:
        """Those rows."""
        return Stretch([*self.which, *([] if before is None else [sql.passed_by(self.id) < before])])


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
    stretch = await candidates.below(store, before, enough=None if checks else limit + 1)
    query = select(table.c.id).where(*stretch.which, *checks).order_by(table.c.id.desc()).limit(limit + 1)
    async with store.read() as conn:
        found = list((await conn.execute(query)).scalars())
    if len(found) > limit:
        return Page(found[:limit], found[limit - 1])
    return Page(found, stretch.end, stretch.size if stretch.end is not None else None)


def told(page: Page[str], lines: Sequence[T]) -> Page[T]:
    """The same page with what is shown of each."""
    return Page(lines, page.next, page.looked_at)
