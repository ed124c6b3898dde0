"""Runs of two versions at one task: where the live one gained most, and pairs by which the two are held together.

Owns: which runs are a version's, which two are shown. Refuses: comparing rewards (`recorder.learned.improvement`), and
counting answers (`recorder.reviewing.answers`).

Rewards of two groups are compared only where they say something outside their group.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sqlalchemy import Select, and_, func, select

from recorder.learned.improvement import Attempted, Improved, most_improved
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.reviewing.drawing import Draw
from recorder.reviewing.runs import can_be_shown
from recorder.reviewing.shapes import Candidate, Why
from recorder.store.database import Store
from recorder.store.schema import calls, groups, scenarios, score_parts, scores, trajectories
from recorder.work.scores import REWARD

GAINS: Final = 10  # tasks of an alias
PAIRS: Final = 200  # of two versions
_LOOKED_AT: Final = 10_000  # runs of an alias, the newest


async def attempted(
    store: Store, alias: AliasView, before: VersionView, after: VersionView
) -> tuple[list[Attempted], list[Attempted]]:
    """The newest runs of an alias by two of its versions, newest first. A run is of the version that answered last."""
    found: dict[str, list[Attempted]] = {before.id: [], after.id: []}
    async with store.read() as conn:
        for row in await conn.execute(_query(alias, (before.id, after.id))):
            task = row.scenario or row.implicit_key or row.group_id
            one = Attempted(task, row.split or "", row.version, row.group_id, row.id, row.value, bool(row.absolute))
            found[row.version].append(one)
    return found[before.id], found[after.id]


def _query(alias: AliasView, version_ids: Sequence[str]) -> Select[Any]:
    t = trajectories.c
    mine = (t.project_id == alias.project_id, t.alias_id == alias.id, ~t.mixed, t.group_id.is_not(None))
    columns = (t.id, t.group_id, t.leaf_call_id, t.version_id)
    looked_at = select(*columns).where(*mine, can_be_shown()).order_by(t.id.desc()).limit(_LOOKED_AT).subquery()
    newest = looked_at.c
    version = func.coalesce(calls.c.version_id, newest.version_id)
    score = groups.c.current_score_id
    of_run = (score_parts.c.score_id == score, score_parts.c.trajectory_id == newest.id, score_parts.c.part == REWARD)
    return (
        select(
            newest.id,
            newest.group_id,
            version.label("version"),
            scenarios.c.external_id.label("scenario"),
            scenarios.c.split,
            groups.c.implicit_key,
            score_parts.c.value,
            scores.c.absolute,
        )
        .select_from(looked_at)
        .join(groups, groups.c.id == newest.group_id)
        .outerjoin(calls, calls.c.id == newest.leaf_call_id)
        .outerjoin(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == score)
        .outerjoin(score_parts, and_(*of_run))
        .where(version.in_(version_ids))
        .order_by(newest.id.desc())
    )


def gained(before: Sequence[Attempted], after: Sequence[Attempted]) -> list[Candidate]:
    """Of the tasks that both attempted, those where the mean reward rose most, by a run that is typical of each."""
    tasks = most_improved(before, after, len(before) + len(after))
    rose = [one for one in tasks if one.rise is None or one.rise > 0]
    return [_candidate(Why.GAIN, _gain(one), one.after, one.before) for one in rose[:GAINS]]


def _gain(one: Improved) -> str:
    if one.rise is None:
        return "The live version and the one before it attempted this task; no rewards tell which did better"
    return f"The mean reward at this task rose by {one.rise:.2g} since the version before"


def beside(live: Sequence[Attempted], other: Sequence[Attempted], draw: Draw) -> list[Candidate]:
    """Pairs of runs at one task, drawn: first one of each task, then a second of each, and so on."""
    ours, theirs = _by_task(live, draw), _by_task(other, draw)
    pairs = [
        (number, draw.number("task", *task), one, another)
        for task in ours.keys() & theirs.keys()
        for number, (one, another) in enumerate(zip(ours[task], theirs[task], strict=False))
    ]
    about = "Two versions attempted this task"
    return [_candidate(Why.AGAINST, about, one, another) for _, _, one, another in sorted(pairs, key=_place)[:PAIRS]]


def _place(pair: tuple[int, float, Attempted, Attempted]) -> tuple[int, float]:
    return pair[:2]


def _by_task(runs: Sequence[Attempted], draw: Draw) -> Mapping[tuple[str, str], list[Attempted]]:
    found: defaultdict[tuple[str, str], list[Attempted]] = defaultdict(list)
    for one in sorted(runs, key=lambda one: draw.number("run", one.run)):
        found[one.split, one.scenario].append(one)
    return found


def _candidate(why: Why, about: str, one: Attempted, other: Attempted) -> Candidate:
    return Candidate(why, about, one.group, (one.run, other.run))
