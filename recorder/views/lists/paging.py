"""A page of a list by the place that it begins below: what is looked at for it, and when that is given up.

Owns: walking candidates downwards until a page is full or enough were looked at. Refuses: what a candidate is
(`recorder.views.lists.scans`), and what of it is shown.

A place is a line's in the order of its list (`Order`), so a page costs the same however deep it lies. A filter that an
index knows is walked by it. Any other is asked of one candidate after the other: of so many that a page stays quick
where nearly none is wanted, and the page then says how many it looked at.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, Protocol, TypeVar

from sqlalchemy import ColumnElement, Row, Select, select, tuple_

from recorder.errors import FilterInvalid
from recorder.store import sql
from recorder.store.database import Store

MOST_LOOKED_AT: Final = 6000  # of runs of six turns: what is asked of each takes up to 10 µs
_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,17})?(e[+-]?\d{1,3})?", re.ASCII)  # as Python writes a float
Place = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Lines of a list. `next`: the place that the following page begins below; None: these were the last.

    `looked_at`: the page is not full, because so many candidates were looked at for it and there are more.
    """

    lines: Sequence[T]
    next: str | None
    looked_at: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list, newest first: by the id, which begins with the time, or by `at` where it does not.

    A place is told as the id, or as `at~id`.
    """

    id: ColumnElement[str]
    at: ColumnElement[float] | None = None

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        """By what it goes."""
        return [self.id] if self.at is None else [self.at, self.id]

    def place(self, told: str) -> Place:
        """A place as values of the columns. Raises FilterInvalid."""
        if self.at is None:
            return (told,)
        at, mark, id_ = told.partition("~")
        if not mark or not _SECONDS.fullmatch(at):
            raise FilterInvalid(f"before: {told[:80]!r} is no place of this list: take the `next` of a page", "before")
        return float(at), id_

    def compared(self, how: Callable[[Any, Any], Any], place: Place, *, indexed: bool = True) -> ColumnElement[bool]:
        """A condition of how a line's place lies to another; where it is not `indexed`, no index leads to it."""
        columns = self.columns if indexed else [sql.without_index(column) for column in self.columns]
        compared: ColumnElement[bool] = how(columns[0], place[0]) if len(place) == 1 else how(tuple_(*columns), place)
        return compared

    def newest(self, which: Sequence[ColumnElement[bool]]) -> Select[Any]:
        """What meets conditions, in this order."""
        return select(*self.columns).where(*which).order_by(*(column.desc() for column in self.columns))


def format_place(place: Row[Any]) -> str:
    """A row of `Order.newest` as a place is told."""
    return "~".join(one if isinstance(one, str) else repr(one) for one in place)


@dataclass(frozen=True, slots=True)
class Range:
    """The candidates of a page, as a condition. `end`: there are more of them, below this place; None: these are all.

    `size`: how many they are, where `end` says that there are more.
    """

    which: Sequence[ColumnElement[bool]]
    end: str | None = None
    size: int = 0


class Candidates(Protocol):
    """What a list is walked by."""

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """The candidates below a place. `enough`: so many are, since each is wanted; None: they are checked."""


@dataclass(frozen=True, slots=True)
class IndexedScan:
    """Rows in the order of an index that begins with the columns of `which` and goes on with those of the order."""

    order: Order
    which: Sequence[ColumnElement[bool]]
    first: Place | None = None  # nothing below it is wanted
    end: Place | None = None  # nor itself, nor what lies above it
    most: int = MOST_LOOKED_AT

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Those rows; where they are checked, at most `most` of them."""
        asked = None if before is None else self.order.place(before)
        top = min((one for one in (asked, self.end) if one is not None), default=None)
        which = [*self.which, *([] if top is None else [self.order.compared(operator.lt, top)])]
        within = [*which, *([] if self.first is None else [self.order.compared(operator.ge, self.first)])]
        if enough is not None:
            return Range(within)
        async with store.read() as conn:
            floor = (await conn.execute(self.order.newest(within).limit(1).offset(self.most - 1))).one_or_none()
        if floor is None:
            return Range(within)
        return Range([*which, self.order.compared(operator.ge, tuple(floor))], format_place(floor), self.most)


@dataclass(frozen=True, slots=True)
class FullRecipe:
    """Rows that are few: all of them are looked at, and brought into order."""

    order: Order
    which: Sequence[ColumnElement[bool]]

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Those rows."""
        if before is None:
            return Range(self.which)
        return Range([*self.which, self.order.compared(operator.lt, self.order.place(before), indexed=False)])


async def find_page(
    store: Store,
    order: Order,
    candidates: Candidates,
    checks: Sequence[ColumnElement[bool]],
    *,
    before: str | None,
    limit: int,
) -> Page[str]:
    """The ids of a page: candidates below `before` that pass the checks."""
    stretch = await candidates.below(store, before, enough=None if checks else limit + 1)
    async with store.read() as conn:
        found = list(await conn.execute(order.newest([*stretch.which, *checks]).limit(limit + 1)))
    ids = [row[-1] for row in found[:limit]]
    if len(found) > limit:
        return Page(ids, format_place(found[limit - 1]))
    return Page(ids, stretch.end, stretch.size if stretch.end is not None else None)


def fill_page(page: Page[str], lines: Sequence[T]) -> Page[T]:
    """The same page with what is shown of each."""
    return Page(lines, page.next, page.looked_at)
