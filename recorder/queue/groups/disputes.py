"""Groups about which judges disagree: they wait for a person, whose choices between pairs become an order.

Owns: which groups those are, the reason code, the order that follows from choices, and the next pair to ask about.
Refuses: storing choices (`recorder.queue.feedback`), and an order's worth as a score (`judge.rewards.human_choice`).

A tie is kept as "as good as" in both directions, so inferences pass through ties too. A cycle of choices ties its
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
    """One of them. `score_id`: the judges' words and parts, which do not count. `at`: when it was judged (unix s)."""

    group_id: str
    external_id: str | None
    alias: str | None
    campaign_id: str | None
    score_id: str
    agreement: float
    at: float


def is_disputed() -> ColumnElement[bool]:
    """Whether a group waits for a person, as a column: no judge takes it again by itself."""
    return and_(groups.c.state == GroupState.UNSCORED, groups.c.reason == CODE)


def agreement_of_dispute() -> ColumnElement[float | None]:
    """How far the judges of a group agree that waits for a person, as a column; null for any other group."""
    newest = select(scores.c.agreement).where(scores.c.group_id == groups.c.id, is_disputed())
    newest = newest.order_by(scores.c.created_at.desc(), scores.c.id.desc()).limit(1)
    return newest.correlate(groups).scalar_subquery()


async def list_disputed_groups(project: Project, *, limit: int = MOST) -> list[DisputedGroup]:
    """The groups of a project that wait, those that judges agree about least first."""
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
    """How many wait."""
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
        """Both, in no order."""
        return frozenset((self.better, self.worse))


def newest_choices(choices: Iterable[PairChoice]) -> list[PairChoice]:
    """The last choice for each pair that was compared more than once. `choices`: oldest first."""
    return list({choice.pair: choice for choice in choices}.values())


def transitive_preferences(choices: Iterable[PairChoice]) -> dict[str, set[str]]:
    """For each trajectory that a choice names, the trajectories that it is at least as good as."""
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
    """The two trajectories whose comparison settles most, whatever its answer; None: the choices order all of them.

    `drawn` decides between pairs that settle equally much; pairs in `passed` are skipped. n trajectories need about n
    log n answers, not n² / 2.
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
    """How many more pairs would be known if one trajectory turned out to be the better of two."""
    above = [run for run in at_least if run == better or better in at_least[run]]
    below = {worse} | at_least[worse]
    return sum(one not in at_least[run] and one != run for run in above for one in below)
