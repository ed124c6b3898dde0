"""Keyset paging of lists.

Owns: scanning candidates until a page is full, or until enough were scanned. Refuses: what a candidate is
(`recorder.views.lists.scans`), and what a line shows.

A place is a line's position in its list (`Order`), so every page costs the same, however deep. A filter with an index
is scanned by that index. Other filters are checked candidate by candidate, up to a limit that keeps a page fast if
almost nothing matches; the page then has the number of scanned candidates.
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

MOST_HIDDEN: Final = 10_000  # what has an origin that a list does not show: the newest so many are counted
MOST_LOOKED_AT: Final = 6000  # candidates of one page; checking a trajectory of six turns takes up to 10 µs
_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,17})?(e[+-]?\d{1,3})?", re.ASCII)  # as Python formats a float
Place = tuple[Any, ...]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """Lines of a list. `next`: the place after which the next page begins; None: this is the last page.

    `looked_at`: the page is not full, because the scan stopped after so many candidates; there are more. `hidden`: how
    many of the whole list match but for their origin, counted up to `MOST_HIDDEN`. `sorted_over`: the order is not by
    time, and only so many of the newest matches were sorted.
    """

    lines: Sequence[T]
    next: str | None
    looked_at: int | None = None
    hidden: int = 0
    sorted_over: int | None = None


@dataclass(frozen=True, slots=True)
class Order:
    """The order of a list, newest first: by id if ids begin with the time, else by `at`.

    A place is written as the id, or as `at~id`.
    """

    id: ColumnElement[str]
    at: ColumnElement[float] | None = None

    @property
    def columns(self) -> list[ColumnElement[Any]]:
        """The columns of the order."""
        return [self.id] if self.at is None else [self.at, self.id]

    def place(self, told: str) -> Place:
        """Parse a place into values of the columns. Raises FilterInvalid."""
        if self.at is None:
            return (told,)
        at, mark, id_ = told.partition("~")
        if not mark or not _SECONDS.fullmatch(at):
            raise FilterInvalid(
                f"before: {told[:80]!r} is not a position in this list: use the `next` of a page", "before"
            )
        return float(at), id_

    def compared(self, how: Callable[[Any, Any], Any], place: Place, *, indexed: bool = True) -> ColumnElement[bool]:
        """Compare a line's place with another, as a condition; not `indexed`: without the use of an index."""
        columns = self.columns if indexed else [sql.without_index(column) for column in self.columns]
        compared: ColumnElement[bool] = how(columns[0], place[0]) if len(place) == 1 else how(tuple_(*columns), place)
        return compared

    def newest(self, which: Sequence[ColumnElement[bool]]) -> Select[Any]:
        """Return the query for rows that meet the conditions, in this order."""
        return select(*self.columns).where(*which).order_by(*(column.desc() for column in self.columns))


def format_place(place: Row[Any]) -> str:
    """Format the place of a row of `Order.newest`."""
    return "~".join(one if isinstance(one, str) else repr(one) for one in place)


@dataclass(frozen=True, slots=True)
class Range:
    """The candidates of a page, as a condition. `end`: more follow after this place; None: these are all.

    `size`: the number of candidates, if more follow.
    """

    which: Sequence[ColumnElement[bool]]
    end: str | None = None
    size: int = 0


class Candidates(Protocol):
    """A source of candidates."""

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Return the candidates after a place. `enough`: how many are needed if all match; None: they are checked."""


@dataclass(frozen=True, slots=True)
class IndexedScan:
    """Rows in the order of an index over the columns of `which`, then those of the order."""

    order: Order
    which: Sequence[ColumnElement[bool]]
    first: Place | None = None  # the scan ends here
    end: Place | None = None  # the scan begins after this place
    most: int = MOST_LOOKED_AT

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Return these rows, at most `most` of them if they are checked."""
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
class FullScan:
    """Few rows: all are read and sorted."""

    order: Order
    which: Sequence[ColumnElement[bool]]

    async def below(self, store: Store, before: str | None, *, enough: int | None) -> Range:
        """Return these rows."""
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
    """Return a page of ids: candidates after `before` that pass the checks."""
    stretch = await candidates.below(store, before, enough=None if checks else limit + 1)
    async with store.read() as conn:
        found = list(await conn.execute(order.newest([*stretch.which, *checks]).limit(limit + 1)))
    ids = [row[-1] for row in found[:limit]]
    if len(found) > limit:
        return Page(ids, format_place(found[limit - 1]))
    return Page(ids, stretch.end, stretch.size if stretch.end is not None else None)


def fill_page(page: Page[str], lines: Sequence[T], hidden: int) -> Page[T]:
    """Return the same page with a line for each id, and what the list hides."""
    return Page(lines, page.next, page.looked_at, hidden, page.sorted_over)
