"""Groups that are worth a person's minutes while two judges have drifted apart: those that they order least alike.

Owns: which groups of the window these are, and which two runs of each. Refuses: when judges have drifted
(`recorder.judged.drift`), other alarms (`recorder.reviewing.candidates`).

The two runs are those that one judge finds better by as much as the other finds them worse: whichever a person
prefers, it says which of the two judges is wrong there.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import combinations, islice
from typing import Final

from sqlalchemy import select

from recorder.judged import seconds, turns
from recorder.judged.seconds import Second
from recorder.judged.turns import DRIFT
from recorder.reviewing.drawing import Draw
from recorder.reviewing.runs import members_of
from recorder.reviewing.shapes import Candidate, Why
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.store.schema import groups, score_parts

GROUPS: Final = 5  # of an alias and recipe

Values = Mapping[str, Mapping[str, float | None]]  # part → trajectory id → value


async def drifted(project: Project, draw: Draw) -> list[Candidate]:
    """Two runs of each group about which judges agree least, wherever `judge_drift` is on."""
    async with project.store.read() as conn:
        apart = [one for one in await turns.of_project(conn, project.id) if one.drifted]
        least = [await seconds.least_agreed(conn, one) for one in apart]
    ids = {one.group_id for of in least for one in of}
    members = await members_of(project, ids)
    scored = await _scored(project.store, ids)

    def first(of: Sequence[Second]) -> Iterator[Candidate]:
        made = (_candidate(one, members.get(one.group_id, ()), scored.get(one.group_id, {}), draw) for one in of)
        return islice((one for one in made if one is not None), GROUPS)

    return await asyncio.to_thread(lambda: [one for of in least for one in first(of)])  # calls go on beside it


async def _scored(store: Store, group_ids: Collection[str]) -> Mapping[str, Values]:
    """By group, what its score says of its runs by each part."""
    p = score_parts.c
    query = select(groups.c.id, p.trajectory_id, p.part, p.value)
    query = query.join(score_parts, p.score_id == groups.c.current_score_id).where(groups.c.id.in_(sorted(group_ids)))
    found: dict[str, defaultdict[str, dict[str, float | None]]] = {}
    async with store.read() as conn:
        for row in await conn.execute(query):
            found.setdefault(row.id, defaultdict(dict))[row.part][row.trajectory_id] = row.value
    return found


def _candidate(of: Second, runs: Sequence[str], scored: Values, draw: Draw) -> Candidate | None:
    """A group's two runs; None: it has no two that can be shown."""
    among = draw.order(of.group_id, runs)
    if len(among) < 2:
        return None
    other: defaultdict[str, dict[str, float | None]] = defaultdict(dict)
    for one in of.parts:
        other[one.part][one.trajectory_id] = one.value
    turned = most_turned(among, scored, other)
    how = ", and turn these two around" if turned is not None else ""
    about = f"{DRIFT}: the judge and the strong one agree by {of.tau:.2f} about the group{how}"
    return Candidate(Why.ALARM, about, of.group_id, turned or (among[0], among[1]))


def most_turned(runs: Sequence[str], one: Values, other: Values) -> tuple[str, str] | None:
    """The two runs that two judges order contrariwise by the widest margins; None: they turn none around."""
    pairs = [(_alike(one, other, pair), pair) for pair in combinations(runs, 2)]
    least, pair = min(pairs, key=lambda found: found[0], default=(0.0, None))
    return pair if least < 0 else None


def _alike(one: Values, other: Values, pair: tuple[str, str]) -> float:
    """Below 0 where two judges order two runs contrariwise, over the parts that both judged."""
    gaps = ((_gap(one[part], pair), _gap(other[part], pair)) for part in one.keys() & other.keys())
    return sum(ours * theirs for ours, theirs in gaps)


def _gap(values: Mapping[str, float | None], pair: tuple[str, str]) -> float:
    """By how much the first run is better; 0 where one of the two has no value."""
    first, second = (values.get(run) for run in pair)
    return 0.0 if first is None or second is None else first - second
