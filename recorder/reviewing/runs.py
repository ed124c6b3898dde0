"""Runs that can be shown to a person, by their groups, and what people chose between them.

Owns: these queries. Refuses: which groups are worth a look (`recorder.reviewing.candidates`, `gains`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, select

from recorder.judged.choices import Choice
from recorder.states import Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import aliases, feedback, groups, trajectories
from recorder.work.feedback import PREFERENCE, TIE, choice_of

_PAGE: Final = 200  # keys a SELECT


@dataclass(frozen=True, slots=True)
class Head:
    """A group as a queue names it."""

    external_id: str | None
    alias: str | None


@dataclass(frozen=True, slots=True)
class Chosen:
    """What one person chose, oldest first in any list. `shown`: where the run stood that was preferred."""

    choice: Choice
    by: str | None
    shown: str | None


def can_be_shown() -> ColumnElement[bool]:
    """Whether a run ended by itself and may be judged, as a column: as `recorder.groups.readiness.usable`.

    Nearly every run may, so no index is chosen for it.
    """
    t = trajectories.c
    ended = sql.passed_by(t.state) == TrajectoryState.COMPLETED
    return and_(ended, t.selection.is_(None), t.purpose != Purpose.NONE)


async def members_of(project: Project, group_ids: Collection[str]) -> dict[str, list[str]]:
    """By group, its runs that can be shown."""
    t = trajectories.c
    found: dict[str, list[str]] = {}
    for page in _pages(group_ids):
        mine = sql.passed_by(t.project_id) == project.id
        query = select(t.id, t.group_id).where(mine, t.group_id.in_(page), can_be_shown())
        async with project.store.read() as conn:
            for row in await conn.execute(query.order_by(t.id)):
                found.setdefault(row.group_id, []).append(row.id)
    return found


async def heads_of(store: Store, group_ids: Collection[str]) -> dict[str, Head]:
    """How groups are named."""
    found: dict[str, Head] = {}
    for page in _pages(group_ids):
        query = select(groups.c.id, groups.c.external_id, aliases.c.name.label("alias"))
        query = query.outerjoin(aliases, aliases.c.id == groups.c.alias_id).where(groups.c.id.in_(page))
        async with store.read() as conn:
            found |= {row.id: Head(row.external_id, row.alias) for row in await conn.execute(query)}
    return found


async def chosen_between(store: Store, runs: Collection[str]) -> list[Chosen]:
    """What people chose that is noted on one of these runs, oldest first."""
    f = feedback.c
    rows: list[Any] = []
    for page in _pages(runs):
        query = select(f.id, f.trajectory_id, f.name, f.value, f.tags, f.created_at)
        query = query.where(f.trajectory_id.in_(page), f.name.in_((PREFERENCE, TIE)))
        async with store.read() as conn:
            rows += await conn.execute(query)
    rows.sort(key=lambda row: (row.created_at, row.id))
    told = ((row.tags, choice_of(row.trajectory_id, row.name, row.value, row.tags)) for row in rows)
    return [Chosen(choice, tags.get("by"), tags.get("shown")) for tags, choice in told if choice is not None]


def newest_by(person: str, said: Sequence[Chosen]) -> Mapping[frozenset[str], Chosen]:
    """What a person said last of each pair."""
    return {one.choice.pair: one for one in said if one.by == person}


def _pages(keys: Collection[str]) -> Iterator[list[str]]:
    rest = iter(sorted(set(keys)))
    while page := list(islice(rest, _PAGE)):
        yield page
