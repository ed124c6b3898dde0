"""The same task before and after: groups of one scenario (or of one implicit task) by two versions, with their rewards.

Owns: which groups are set beside each other. Refuses: testing whether one version is better (`proxy.gate`), and
conversations (`recorder.reading`).

Only so many of the newest groups of each version's time are looked at, so that a page may ask of any store.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, and_, func, literal, select, union_all
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.ids import first_id_at
from recorder.listing.tasks import first_words
from recorder.registry.versions import VersionView
from recorder.states import VersionState
from recorder.store.database import Store
from recorder.store.schema import groups, scenarios, score_parts, trajectories
from recorder.work.scores import REWARD

LOOKED_AT: Final = 3000  # groups, of each version's time
TASKS: Final = 20
_AFTER_S: Final = 3600.0  # that a retired version is still met: by open runs, and by its own evaluation
_EACH: Final = 6  # groups of one task and version that are told


@dataclass(frozen=True, slots=True)
class Tried:
    """One group. `reward`: the mean of its runs, if it was judged; `runs`: how many have one."""

    id: str
    external_id: str | None
    state: str
    reward: float | None
    best: float | None
    runs: int
    opened_at: float


@dataclass(frozen=True, slots=True)
class Task:
    """A task that both versions attempted. `scenario` None: an implicit one, known by `key`. Newest groups first."""

    key: str
    scenario: str | None
    words: str | None  # how its user's first message begins, of an implicit one
    before: Sequence[Tried]
    after: Sequence[Tried]
    reward_before: float | None
    reward_after: float | None

    @property
    def rise(self) -> float | None:
        """By how much the mean reward rose."""
        before, after = self.reward_before, self.reward_after
        return None if before is None or after is None else after - before


async def before_and_after(store: Store, before: VersionView, after: VersionView) -> list[Task]:
    """The tasks of two versions of an alias, those whose reward changed most first."""
    async with store.read() as conn:
        old, new = await _shared(conn, before, after)
        rewards = await _rewards(
            conn, [one.current_score_id for side in (old, new) for rows in side.values() for one in rows]
        )
        words = await _words(conn, [rows[0].id for rows in new.values() if rows[0].scenario is None])
    tasks = [_task(key, old[key], new[key], rewards, words) for key in new]
    return sorted(tasks, key=lambda task: -abs(task.rise or 0.0))


async def _shared(
    conn: AsyncConnection, before: VersionView, after: VersionView
) -> tuple[Mapping[str, list[Any]], Mapping[str, list[Any]]]:
    """The newest groups of each version, newest first, by the tasks that both attempted last."""
    old, new = _numbered(before).cte("old"), _numbered(after).cte("new")
    shared = select(new.c.key).join(old, and_(old.c.key == new.c.key, old.c.place == 1)).where(new.c.place == 1)
    keys = shared.order_by(new.c.id.desc()).limit(TASKS).subquery()
    sides = [
        select(side, literal(name).label("side")).where(side.c.key.in_(select(keys.c.key)), side.c.place <= _EACH)
        for name, side in (("old", old), ("new", new))
    ]
    both = union_all(*sides).subquery()
    found: dict[str, defaultdict[str, list[Any]]] = {"old": defaultdict(list), "new": defaultdict(list)}
    for row in await conn.execute(select(both).order_by(both.c.id.desc())):
        found[row.side][row.key].append(row)
    return found["old"], found["new"]


def _numbered(version: VersionView) -> Select[Any]:
    """A version's groups that are of a known task, `place` counting each task's from the newest."""
    g = groups.c
    retired = version.state is VersionState.RETIRED
    until = first_id_at("grp", version.state_at + _AFTER_S) if retired else "grp_~"  # ids begin with the time
    lived = (g.project_id == version.project_id, g.id < until)
    newest = select(groups).where(*lived).order_by(g.id.desc()).limit(LOOKED_AT).subquery().c
    key = func.coalesce(scenarios.c.external_id, newest.implicit_key)
    place = func.row_number().over(partition_by=key, order_by=newest.id.desc())
    columns = (newest.id, newest.external_id, newest.state, newest.current_score_id, newest.opened_at)
    named = (scenarios.c.external_id.label("scenario"), key.label("key"), place.label("place"))
    query = select(*columns, *named).outerjoin(scenarios, scenarios.c.id == newest.scenario_id)
    return query.where(newest.version_id == version.id, key.is_not(None))


async def _rewards(conn: AsyncConnection, score_ids: Iterable[str | None]) -> Mapping[str, Any]:
    wanted = [id_ for id_ in score_ids if id_ is not None]
    value = score_parts.c.value
    query = select(score_parts.c.score_id, func.avg(value), func.max(value), func.count(value))
    query = query.where(score_parts.c.score_id.in_(wanted), score_parts.c.part == REWARD)
    return {row[0]: row[1:] for row in await conn.execute(query.group_by(score_parts.c.score_id))}


async def _words(conn: AsyncConnection, group_ids: Sequence[str]) -> Mapping[str, str]:
    """How the tasks of groups begin."""
    query = select(trajectories.c.group_id, func.min(trajectories.c.id)).where(trajectories.c.group_id.in_(group_ids))
    runs = {str(run): str(group) for group, run in await conn.execute(query.group_by(trajectories.c.group_id))}
    return {runs[run]: words for run, words in (await first_words(conn, list(runs))).items()}


def _task(
    key: str, old: Sequence[Any], new: Sequence[Any], rewards: Mapping[str, Any], words: Mapping[str, str]
) -> Task:
    before, after = ([_tried(row, rewards) for row in side] for side in (old, new))
    return Task(key, new[0].scenario, words.get(new[0].id), before, after, _mean(before), _mean(after))


def _tried(row: Any, rewards: Mapping[str, Any]) -> Tried:
    mean, best, runs = rewards.get(row.current_score_id, (None, None, 0))
    return Tried(row.id, row.external_id, row.state, mean, best, runs, row.opened_at)


def _mean(tried: Sequence[Tried]) -> float | None:
    """Of all runs that have a reward."""
    known = [(one.reward, one.runs) for one in tried if one.reward is not None]
    runs = sum(number for _, number in known)
    return sum(mean * number for mean, number in known) / runs if runs else None
