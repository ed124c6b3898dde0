"""Groups about which judges disagree: they wait for a person, whose choices between pairs become an order.

Owns: which groups are disputed, the reason code, the order that follows from choices, and the next pair to show.
Refuses: storing choices (`recorder.queue.feedback`), and scores from an order (`judge.rewards.human_choice`).

A tie means "at least as good" in both directions, so inferences also pass through ties. A cycle of choices ties its
trajectories.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import Final

from sqlalchemy import ColumnElement, and_, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.states import GroupState
from recorder.store import sql
from recorder.store.database import Project
from recorder.store.schema import aliases, groups, scores

CODE: Final = "judges_disagree"
MOST: Final = 200


@dataclass(frozen=True, slots=True)
class DisputedGroup:
    """One disputed group. `score_id`: the judges' score, which does not count. `at`: when it was judged (unix s)."""

    group_id: str
    external_id: str | None
    alias: str | None
    campaign_id: str | None
    score_id: str
    agreement: float
    at: float


def is_disputed() -> ColumnElement[bool]:
    """A column: whether a group waits for a person. No judge takes it again by itself."""
    return and_(groups.c.state == GroupState.UNSCORED, groups.c.reason == CODE)


def agreement_of_dispute() -> ColumnElement[float | None]:
    """A column: how far the judges of a disputed group agree; null for any other group."""
    newest = select(scores.c.agreement).where(scores.c.group_id == groups.c.id, is_disputed())
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1)
    return newest.correlate(groups).scalar_subquery()


async def list_disputed_groups(project: Project, *, limit: int = MOST) -> list[DisputedGroup]:
    """Return the disputed groups of a project, those with the least agreement first."""
    newest = select(scores.c.id).where(scores.c.group_id == groups.c.id, scores.c.agreement.is_not(None))
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1).correlate(groups)
    query = (
        select(
            groups.c.id.label("group_id"),
            groups.c.external_id,
            aliases.c.name.label("alias"),
            groups.c.campaign_id,
            scores.c.id.label("score_id"),
            scores.c.agreement,
            scores.c.created_at.label("at"),
        )
        .join(scores, scores.c.id == newest.scalar_subquery())
        .outerjoin(aliases, aliases.c.id == groups.c.alias_id)
        .where(groups.c.project_id == project.id, is_disputed())
        .order_by(scores.c.agreement, groups.c.id)
        .limit(limit)
    )
    async with project.store.read() as conn:
        return sql.as_views(DisputedGroup, list(await conn.execute(query)))


async def waiting_for_person(conn: AsyncConnection, project_id: str) -> int:
    """Return the number of groups that wait for a person."""
    query = select(func.count()).select_from(groups).where(groups.c.project_id == project_id, is_disputed())
    return int((await conn.execute(query)).scalar_one())


Reached = Mapping[str, set[str]]  # trajectory → the known trajectories that it is at least as good as


@dataclass(frozen=True, slots=True)
class PairChoice:
    """A person's verdict that one trajectory is better than another, or that both are equally good (`tie`)."""

    better: str
    worse: str
    tie: bool = False

    @property
    def pair(self) -> frozenset[str]:
        """Both trajectories, without an order."""
        return frozenset((self.better, self.worse))


def newest_choices(choices: Iterable[PairChoice]) -> list[PairChoice]:
    """Return the last choice for each pair. `choices`: oldest first."""
    return list({choice.pair: choice for choice in choices}.values())


def transitive_preferences(choices: Iterable[PairChoice]) -> dict[str, set[str]]:
    """Return, for each trajectory in a choice, the trajectories that it is at least as good as."""
    below: dict[str, set[str]] = {}
    for choice in newest_choices(choices):
        below.setdefault(choice.better, set()).add(choice.worse)
        below.setdefault(choice.worse, set())
        if choice.tie:
            below[choice.worse].add(choice.better)
    return {run: _from(run, below) for run in below}


def _from(run: str, below: Reached) -> set[str]:
    found: set[str] = set()
    todo = [run]
    while todo:
        new = below[todo.pop()] - found
        found |= new
        todo += new
    return found - {run}


def next_pair(
    runs: Sequence[str],
    choices: Iterable[PairChoice],
    drawn: Callable[[str, str], float],
    passed: Collection[frozenset[str]] = (),
) -> tuple[str, str] | None:
    """Return the pair whose comparison decides most other pairs, whatever the answer; None: all pairs are decided.

    `drawn` chooses between equally useful pairs; pairs in `passed` are skipped. n trajectories need about n log n
    answers, not n² / 2.
    """
    known = transitive_preferences(choice for choice in choices if choice.pair <= set(runs))
    at_least = {run: known.get(run, set()) for run in runs}
    open_ = [(a, b) for a, b in combinations(sorted(runs), 2) if b not in at_least[a] and a not in at_least[b]]
    open_ = [pair for pair in open_ if frozenset(pair) not in passed]
    if not open_:
        return None

    def settles(pair: tuple[str, str]) -> tuple[int, float]:
        one, other = pair
        return min(_settled(one, other, at_least), _settled(other, one, at_least)), drawn(one, other)

    return max(open_, key=settles)


def _settled(better: str, worse: str, at_least: Reached) -> int:
    """Return how many more pairs would be decided if `better` won the comparison."""
    above = [run for run in at_least if run == better or better in at_least[run]]
    below = {worse} | at_least[worse]
    return sum(one not in at_least[run] and one != run for run in above for one in below)
