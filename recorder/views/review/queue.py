"""The queue of a person: what is worth a choice, why, and in which order.

Owns: putting the sources together, and leaving out what this person answered. Refuses: the sources
(`recorder.views.review.candidates`, `gains`), writing answers (`recorder.views.review.human_labels`).

A group about which judges disagree is asked about until what anybody chose orders its runs, or it is scored. Any other
pair comes until this person answered it; somebody else may be shown it too.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from recorder.errors import Conflict, NotFound
from recorder.queue.groups.disputes import DisputedGroup, PairChoice, list_disputed_groups
from recorder.registry.aliases import AliasView, get_alias, get_aliases
from recorder.registry.versions import VersionView, get_version, get_version_by_name
from recorder.store.database import Project, Store
from recorder.views.review import candidates
from recorder.views.review.candidates import (
    alarm_candidates,
    describe_disagreement,
    drift_candidates,
    next_ranking_pair,
    random_candidates,
)
from recorder.views.review.human_labels import tally_choices
from recorder.views.review.shapes import Candidate, QueuedPair, ReviewQueue, ReviewReason
from recorder.views.review.trajectories import (
    StableDraw,
    group_names,
    list_choices,
    newest_choices,
    project_draw,
    showable_members,
)

BASE: Final = "base"  # an alias's version 0
MOST: Final = 50  # entries
Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What is asked for: all of it, one group's (internal id), or the live version against another one.

    `against`: `base`, a number, or a version's name. `passed`: pairs that are not to come now.
    """

    person: str
    alias: str | None = None
    group: str | None = None
    against: str | None = None
    passed: Collection[Pair] = field(default_factory=frozenset)


async def load_queue(project: Project, asked: QueueRequest, *, limit: int = MOST) -> ReviewQueue:
    """What waits for a person, what matters most first: where judges disagree, where most was gained, what alarms name,
    a random share. Raises NotFound, Conflict."""
    draw = await project_draw(project)
    waiting = [one for one in await list_disputed_groups(project) if asked.alias in (None, one.alias)]
    if asked.against is not None:
        return await _against(project, asked, draw, len(waiting), limit)
    if asked.group is not None:
        found = await _of_group(project, asked.group, waiting, asked, draw)
        return ReviewQueue(await _entries(project.store, found, asked, draw, limit), len(waiting), 0)
    split = await _ranked(project, waiting, asked, draw, limit)
    others = await _others(project, asked, draw, {one.group_id for one in waiting})
    left, answered = await _unanswered(project.store, others, asked)
    return ReviewQueue(await _entries(project.store, [*split, *left], asked, draw, limit), len(waiting), answered)


async def _ranked(
    project: Project, waiting: Sequence[DisputedGroup], asked: QueueRequest, draw: StableDraw, most: int
) -> list[Candidate]:
    """Of each of the first groups that judges disagree about, until there are so many, the next pair."""
    members = await showable_members(project, [one.group_id for one in waiting])
    group_of = {run: group for group, runs in members.items() for run in runs}
    said: defaultdict[str, list[PairChoice]] = defaultdict(list)
    for chosen in await list_choices(project.store, group_of):
        said[group_of[chosen.choice.better]].append(chosen.choice)

    def found() -> Iterator[Candidate]:
        for one in waiting:
            runs, choices, about = members.get(one.group_id, ()), said[one.group_id], describe_disagreement(one)
            pair = next_ranking_pair(ReviewReason.DISAGREEMENT, about, one.group_id, runs, choices, asked.passed, draw)
            if pair is not None:
                yield pair

    return await asyncio.to_thread(lambda: list(islice(found(), most)))  # calls go on beside it


async def _of_group(
    project: Project, group: str, waiting: Sequence[DisputedGroup], asked: QueueRequest, draw: StableDraw
) -> list[Candidate]:
    """The next pair of one group: by what anybody chose where it waits, else by what this person did."""
    if split := [one for one in waiting if one.group_id == group]:
        return await _ranked(project, split, asked, draw, 1)
    runs = (await showable_members(project, [group])).get(group, [])
    said = [one.choice for one in await list_choices(project.store, runs) if one.by == asked.person]
    found = next_ranking_pair(ReviewReason.GROUP, "The group was named", group, runs, said, asked.passed, draw)
    return [found] if found is not None else []


async def _others(project: Project, asked: QueueRequest, draw: StableDraw, without: Collection[str]) -> list[Candidate]:
    """What else is worth a look, each pair once, by what matters most of it."""
    found: list[Candidate] = []
    for alias in [await get_alias(project, asked.alias)] if asked.alias else await get_aliases(project):
        live = await get_version(project.store, alias.live_version_id) if alias.live_version_id else None
        if live is not None and live.parent_id is not None:
            before, after = await candidates.list_attempts(
                project.store, alias, await get_version(project.store, live.parent_id), live
            )
            found += await asyncio.to_thread(candidates.gain_candidates, before, after)
    found += await drift_candidates(project, draw)
    found += await alarm_candidates(project, draw)
    found += await random_candidates(project, draw)
    once = {frozenset(one.pair): one for one in reversed(found) if one.group not in without}
    return [one for one in found if once.get(frozenset(one.pair)) is one]


async def _against(
    project: Project, asked: QueueRequest, draw: StableDraw, disputed_groups: int, limit: int
) -> ReviewQueue:
    alias, live, other = await _versions(project, asked)
    theirs, ours = await candidates.list_attempts(project.store, alias, other, live)
    pairs = await asyncio.to_thread(candidates.version_pairs, ours, theirs, draw)
    left, answered = await _unanswered(project.store, pairs, asked)
    said = newest_choices(asked.person, await list_choices(project.store, _runs(pairs)))
    counted = tally_choices(live.name, other.name, pairs, said)
    return ReviewQueue(await _entries(project.store, left, asked, draw, limit), disputed_groups, answered, counted)


async def _versions(project: Project, asked: QueueRequest) -> tuple[AliasView, VersionView, VersionView]:
    """The alias, its live version, and the one that this is held against. Raises NotFound, Conflict."""
    said = str(asked.against)
    named = said.rpartition("@")[0] if "@" in said else asked.alias
    alias = await get_alias(project, named) if named else await _only_alias(project)
    if alias.live_version_id is None:
        raise NotFound(f"the alias {alias.name!r} has no live version: `hone promote` makes one live")
    number = "0" if said == BASE else said
    other = await get_version_by_name(project, said if "@" in said else f"{alias.name}@{number}")
    live = await get_version(project.store, alias.live_version_id)
    if live.id == other.id:
        raise Conflict(f"{live.name} is the live version itself: name another one to hold it against")
    return alias, live, other


async def _only_alias(project: Project) -> AliasView:
    found = await get_aliases(project)
    if len(found) != 1:
        there = ", ".join(one.name for one in found) or "none"
        raise NotFound(f"say which alias; there is: {there}")
    return found[0]


async def _unanswered(store: Store, found: Sequence[Candidate], asked: QueueRequest) -> tuple[list[Candidate], int]:
    """Those that this person did not answer yet, and how many it did."""
    said = newest_choices(asked.person, await list_choices(store, _runs(found)))
    left = [one for one in found if frozenset(one.pair) not in said]
    return [one for one in left if frozenset(one.pair) not in asked.passed], len(found) - len(left)


def _runs(found: Iterable[Candidate]) -> set[str]:
    return {run for one in found for run in one.pair}


async def _entries(
    store: Store, found: Sequence[Candidate], asked: QueueRequest, draw: StableDraw, limit: int
) -> list[QueuedPair]:
    """As they are shown to this person, those of the alias that was asked for."""
    heads = await group_names(store, [one.group for one in found])
    told = [(one, heads[one.group]) for one in found if one.group in heads]
    return [
        QueuedPair(one.why, one.about, one.group, head.external_id, head.alias, *draw.sides(asked.person, *one.pair))
        for one, head in told
        if asked.alias in (None, head.alias)
    ][:limit]
