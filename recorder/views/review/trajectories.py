"""Runs that can be shown to a person, by their groups, and what people chose between them.

Owns: these queries. Refuses: which groups are worth a look (`recorder.views.review.candidates`, `gains`).

What is drawn for people: which pairs, and which run stands first.

Owns: the draw, by a keyed hash. Refuses: what is drawn from. The key is the project's own, so a draw is the same
whenever it is looked at, and nobody foresees it.

Two runs as a person sees them who is to choose: what they did, turn by turn, and nothing that was made of it.

Owns: what is shown of a pair. Refuses: versions, models, rewards and judges' words: none of it is read here. What the
agents themselves wrote is shown as it is, also where it names a model.
"""

from __future__ import annotations

import asyncio
import hmac
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, select

from recorder.errors import NotFound
from recorder.queue.feedback import PREFERENCE, TIE, parse_choice
from recorder.queue.groups.disputes import PairChoice
from recorder.states import Purpose, TrajectoryState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, feedback, groups, projects, trajectories
from recorder.views.comparison.attempts import ComparisonCell, side_by_side
from recorder.views.comparison.loader import trajectory_turns
from recorder.views.trajectories.transcripts import load_trajectories

_PAGE: Final = 200  # keys a SELECT


@dataclass(frozen=True, slots=True)
class GroupName:
    """A group as a queue names it."""

    external_id: str | None
    alias: str | None


@dataclass(frozen=True, slots=True)
class RecordedChoice:
    """What one person chose, oldest first in any list. `shown`: where the run stood that was preferred."""

    choice: PairChoice
    by: str | None
    shown: str | None


def is_showable() -> ColumnElement[bool]:
    """Whether a run ended by itself and may be judged, as a column: as `recorder.queue.groups.readiness.is_usable`.

    Nearly every run may, so no index is chosen for it.
    """
    t = trajectories.c
    ended = sql.without_index(t.state) == TrajectoryState.COMPLETED
    return and_(ended, t.selection.is_(None), t.purpose != Purpose.NONE)


async def showable_members(project: Project, group_ids: Collection[str]) -> dict[str, list[str]]:
    """By group, its runs that can be shown."""
    t = trajectories.c
    found: dict[str, list[str]] = {}
    for page in _pages(group_ids):
        mine = sql.without_index(t.project_id) == project.id
        query = select(t.id, t.group_id).where(mine, t.group_id.in_(page), is_showable())
        async with project.store.read() as conn:
            for row in await conn.execute(query.order_by(t.id)):
                found.setdefault(row.group_id, []).append(row.id)
    return found


async def group_names(store: Store, group_ids: Collection[str]) -> dict[str, GroupName]:
    """How groups are named."""
    found: dict[str, GroupName] = {}
    for page in _pages(group_ids):
        query = select(groups.c.id, groups.c.external_id, aliases.c.name.label("alias"))
        query = query.outerjoin(aliases, aliases.c.id == groups.c.alias_id).where(groups.c.id.in_(page))
        async with store.read() as conn:
            found |= {row.id: GroupName(row.external_id, row.alias) for row in await conn.execute(query)}
    return found


async def list_choices(store: Store, runs: Collection[str]) -> list[RecordedChoice]:
    """What people chose that is noted on one of these runs, oldest first."""
    f = feedback.c
    rows: list[Any] = []
    for page in _pages(runs):
        query = select(f.id, f.trajectory_id, f.name, f.value, f.tags, f.created_at)
        query = query.where(f.trajectory_id.in_(page), f.name.in_((PREFERENCE, TIE)))
        async with store.read() as conn:
            rows += await conn.execute(query)
    rows.sort(key=lambda row: (row.created_at, row.id))
    told = ((row.tags, parse_choice(row.trajectory_id, row.name, row.value, row.tags)) for row in rows)
    return [RecordedChoice(choice, tags.get("by"), tags.get("shown")) for tags, choice in told if choice is not None]


def newest_choices(person: str, said: Sequence[RecordedChoice]) -> Mapping[frozenset[str], RecordedChoice]:
    """What a person said last of each pair."""
    return {one.choice.pair: one for one in said if one.by == person}


def _pages(keys: Collection[str]) -> Iterator[list[str]]:
    rest = iter(sorted(set(keys)))
    while page := list(islice(rest, _PAGE)):
        yield page


_BYTES: Final = 6  # as many as a float holds exactly, so that no number is 1
_NUMBERS: Final = 256.0**_BYTES


class StableDraw:
    """Numbers that stay what they are."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def number(self, *what: str) -> float:
        """From 0 to below 1, the same for the same words."""
        said = "".join(f"{len(one)}:{one}" for one in ("review", *what)).encode("utf-8", "surrogatepass")
        drawn = hmac.digest(self._key, said, "sha256")[:_BYTES]
        return int.from_bytes(drawn, "big") / _NUMBERS

    def order(self, what: str, among: Sequence[str]) -> list[str]:
        """All of them, shuffled."""
        return sorted(among, key=lambda one: (self.number(what, one), one))

    def sides(self, person: str, one: str, other: str) -> tuple[str, str]:
        """Two runs in the order in which this person is shown them."""
        low, high = sorted((one, other))
        return (low, high) if self.number("sides", person, low, high) < 0.5 else (high, low)


async def project_draw(project: Project) -> StableDraw:
    """The project's draw."""
    async with project.store.read() as conn:
        query = select(projects.c.node_key).where(projects.c.id == project.id)
        return StableDraw(bytes((await conn.execute(query)).scalar_one()))


NAMES = ("A", "B")


@dataclass(frozen=True, slots=True)
class BlindPair:
    """`beginning` is what both begin with, `rows` what comes then, a cell a run; `turns_left`: of each, how many turns
    are not shown."""

    beginning: Sequence[ComparisonCell]
    rows: Sequence[Sequence[ComparisonCell]]
    turns_not_shown: Sequence[int]


async def load_blind_pair(store: Store, first: str, second: str) -> BlindPair:
    """Two runs by their ids. Raises NotFound."""
    views = {view.id: view for view in await load_trajectories(store, [first, second])}
    if gone := [run for run in (first, second) if run not in views]:
        raise NotFound(f"the run {gone[0]} is gone: open the queue again")
    turns = [(number, trajectory_turns(views[run])) for number, run in enumerate((first, second), start=1)]
    return BlindPair(*await asyncio.to_thread(side_by_side, turns))  # long runs take a while, and calls go on
