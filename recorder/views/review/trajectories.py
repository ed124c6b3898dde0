"""Trajectories that reviewers may see, the stable random draw, and the blind view of a pair.

Owns: these queries, and the order of a pair. The order is a hash with the project's own key: it never changes and
cannot be predicted. Refuses: which groups are reviewed (`recorder.views.review.candidates`). A blind pair shows no
version, model, reward or judge's explanation; agents' own texts are shown unchanged, even if they name a model.
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

_PAGE: Final = 200  # keys of one SELECT


@dataclass(frozen=True, slots=True)
class GroupName:
    """The two names by which the queue shows a group."""

    external_id: str | None
    alias: str | None


@dataclass(frozen=True, slots=True)
class RecordedChoice:
    """One person's choice. `shown`: whether the preferred trajectory was shown `first` or `second`."""

    choice: PairChoice
    by: str | None
    shown: str | None


def is_showable() -> ColumnElement[bool]:
    """Return the SQL condition that a trajectory completed and may be judged.

    It is the same rule as `recorder.queue.groups.readiness.is_usable`. Nearly every trajectory meets it, so it is
    written to use no index.
    """
    t = trajectories.c
    ended = sql.without_index(t.state) == TrajectoryState.COMPLETED
    return and_(ended, t.selection.is_(None), t.purpose != Purpose.NONE)


async def showable_members(project: Project, group_ids: Collection[str]) -> dict[str, list[str]]:
    """Return the trajectories that can be shown, by group, in order of their ids."""
    t = trajectories.c
    found: dict[str, list[str]] = {}
    for page in _pages(group_ids):
        mine = sql.without_index(t.project_id) == project.id
        query = select(t.id, t.group_id).where(mine, t.group_id.in_(page), is_showable())
        async with project.store.read() as conn:
            for row in await conn.execute(query.order_by(t.id)):
                found.setdefault(row.group_id, []).append(row.id)
    return found


async def has_counterpart(project: Project, trajectory_id: str) -> bool:
    """Whether a trajectory can be shown, and beside it another one of its group."""
    t = trajectories.c
    query = select(t.group_id).where(t.id == trajectory_id, t.project_id == project.id)
    async with project.store.read() as conn:
        group = (await conn.execute(query)).scalar_one_or_none()
    members = [] if group is None else (await showable_members(project, [group])).get(group, [])
    return trajectory_id in members and len(members) > 1


async def group_names(store: Store, group_ids: Collection[str]) -> dict[str, GroupName]:
    """Return the names of groups, by id; a group that no longer exists is missing from the result."""
    found: dict[str, GroupName] = {}
    for page in _pages(group_ids):
        query = select(groups.c.id, groups.c.external_id, aliases.c.name.label("alias"))
        query = query.outerjoin(aliases, aliases.c.id == groups.c.alias_id).where(groups.c.id.in_(page))
        async with store.read() as conn:
            found |= {row.id: GroupName(row.external_id, row.alias) for row in await conn.execute(query)}
    return found


async def list_choices(store: Store, trajectory_ids: Collection[str]) -> list[RecordedChoice]:
    """Return the choices that are stored as feedback on one of these trajectories, oldest first."""
    f = feedback.c
    rows: list[Any] = []
    for page in _pages(trajectory_ids):
        query = select(f.id, f.trajectory_id, f.name, f.value, f.tags, f.created_at)
        query = query.where(f.trajectory_id.in_(page), f.name.in_((PREFERENCE, TIE)))
        async with store.read() as conn:
            rows += await conn.execute(query)
    rows.sort(key=lambda row: (row.created_at, row.id))
    parsed = ((row.tags, parse_choice(row.trajectory_id, row.name, row.value, row.tags)) for row in rows)
    return [RecordedChoice(choice, tags.get("by"), tags.get("shown")) for tags, choice in parsed if choice is not None]


def newest_choices(person: str, said: Sequence[RecordedChoice]) -> Mapping[frozenset[str], RecordedChoice]:
    """Return the person's newest choice for each pair; `said` is in order of time."""
    return {one.choice.pair: one for one in said if one.by == person}


def _pages(keys: Collection[str]) -> Iterator[list[str]]:
    rest = iter(sorted(set(keys)))
    while page := list(islice(rest, _PAGE)):
        yield page


_BYTES: Final = 6  # a float stores 48 bits exactly, so that no number is rounded up to 1
_NUMBERS: Final = 256.0**_BYTES


class StableDraw:
    """Pseudo-random numbers that depend only on the key and the given words."""

    def __init__(self, key: bytes) -> None:
        self._key = key

    def number(self, *what: str) -> float:
        """Return a number from 0 to below 1, the same for the same words."""
        seed = "".join(f"{len(one)}:{one}" for one in ("review", *what)).encode("utf-8", "surrogatepass")
        drawn = hmac.digest(self._key, seed, "sha256")[:_BYTES]
        return int.from_bytes(drawn, "big") / _NUMBERS

    def order(self, what: str, among: Sequence[str]) -> list[str]:
        """Return all of them in a shuffled order that is always the same."""
        return sorted(among, key=lambda one: (self.number(what, one), one))

    def sides(self, person: str, one: str, other: str) -> tuple[str, str]:
        """Return two trajectories in the order in which this person is shown them."""
        low, high = sorted((one, other))
        return (low, high) if self.number("sides", person, low, high) < 0.5 else (high, low)


async def project_draw(project: Project) -> StableDraw:
    """Return the draw with the project's key."""
    async with project.store.read() as conn:
        query = select(projects.c.node_key).where(projects.c.id == project.id)
        return StableDraw(bytes((await conn.execute(query)).scalar_one()))


NAMES = ("A", "B")


@dataclass(frozen=True, slots=True)
class BlindPair:
    """Two trajectories as a reviewer sees them.

    `beginning`: the shared first turns. `rows`: the turns after them, with one cell for each trajectory.
    `turns_not_shown`: for each trajectory, the number of turns that are not shown.
    """

    beginning: Sequence[ComparisonCell]
    rows: Sequence[Sequence[ComparisonCell]]
    turns_not_shown: Sequence[int]


async def load_blind_pair(store: Store, first: str, second: str) -> BlindPair:
    """Load two trajectories by their ids. Raises NotFound."""
    views = {view.id: view for view in await load_trajectories(store, [first, second])}
    if missing := [run for run in (first, second) if run not in views]:
        raise NotFound(f"the trajectory {missing[0]} no longer exists: open the queue again")
    turns = [(number, trajectory_turns(views[run])) for number, run in enumerate((first, second), start=1)]
    # slow for long trajectories, so not on the event loop
    return BlindPair(*await asyncio.to_thread(side_by_side, turns))
