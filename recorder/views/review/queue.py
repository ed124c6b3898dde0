"""Build a person's review queue: which pairs are shown, why, and in which order.

Owns: combining the sources and removing the pairs that this person has answered. Refuses: the sources
(`recorder.views.review.candidates`), recording answers (`recorder.views.review.human_labels`).

Pairs of a disputed group are shown until the choices of all people rank its trajectories, or until it is scored. Any
other pair is shown until this person has answered it; other people may be shown it too.
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
    requested_candidates,
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

BASE: Final = "base"  # the name of an alias's version 0
MOST: Final = 50  # entries of a queue, unless the caller gives a limit
Pair = frozenset[str]


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """What the queue contains: everything, one group (internal id), or the live version against another one.

    `against`: `base`, a number, or a version's name. `passed`: pairs that the person has skipped for now.
    """

    person: str
    alias: str | None = None
    group: str | None = None
    against: str | None = None
    passed: Collection[Pair] = field(default_factory=frozenset)


async def load_queue(project: Project, request: QueueRequest, *, limit: int = MOST) -> ReviewQueue:
    """Return the pairs that wait for a person, at most `limit`, the most important first.

    The order is: groups about which judges disagree, trajectories that people put there, the largest gains, drift of
    judges, alarms, a random share. Raises NotFound, Conflict.
    """
    draw = await project_draw(project)
    waiting = [one for one in await list_disputed_groups(project) if request.alias in (None, one.alias)]
    if request.against is not None:
        return await _against(project, request, draw, len(waiting), limit)
    if request.group is not None:
        found = await _of_group(project, request.group, waiting, request, draw)
        return ReviewQueue(await _entries(project.store, found, request, draw, limit), len(waiting), 0)
    split = await _ranked(project, waiting, request, draw, limit)
    others = await _others(project, request, draw, {one.group_id for one in waiting})
    unanswered, answered = await _unanswered(project.store, others, request)
    return ReviewQueue(
        await _entries(project.store, [*split, *unanswered], request, draw, limit), len(waiting), answered
    )


async def _ranked(
    project: Project, waiting: Sequence[DisputedGroup], request: QueueRequest, draw: StableDraw, most: int
) -> list[Candidate]:
    """Return the next pair of each disputed group, for the first `most` groups that have one."""
    members = await showable_members(project, [one.group_id for one in waiting])
    group_of = {run: group for group, runs in members.items() for run in runs}
    said: defaultdict[str, list[PairChoice]] = defaultdict(list)
    for chosen in await list_choices(project.store, group_of):
        said[group_of[chosen.choice.better]].append(chosen.choice)

    def found() -> Iterator[Candidate]:
        for one in waiting:
            runs, choices, about = members.get(one.group_id, ()), said[one.group_id], describe_disagreement(one)
            pair = next_ranking_pair(
                ReviewReason.DISAGREEMENT, about, one.group_id, runs, choices, request.passed, draw
            )
            if pair is not None:
                yield pair

    return await asyncio.to_thread(lambda: list(islice(found(), most)))  # must not block the event loop


async def _of_group(
    project: Project, group: str, waiting: Sequence[DisputedGroup], request: QueueRequest, draw: StableDraw
) -> list[Candidate]:
    """Return the next pair of one group. A disputed group counts everyone's choices, another only this person's."""
    if split := [one for one in waiting if one.group_id == group]:
        return await _ranked(project, split, request, draw, 1)
    runs = (await showable_members(project, [group])).get(group, [])
    said = [one.choice for one in await list_choices(project.store, runs) if one.by == request.person]
    found = next_ranking_pair(ReviewReason.GROUP, "The group was named", group, runs, said, request.passed, draw)
    return [found] if found is not None else []


async def _others(
    project: Project, request: QueueRequest, draw: StableDraw, without: Collection[str]
) -> list[Candidate]:
    """Return the pairs of the other sources, each pair once, under its first source."""
    found = await requested_candidates(project, draw)
    for alias in [await get_alias(project, request.alias)] if request.alias else await get_aliases(project):
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
    project: Project, request: QueueRequest, draw: StableDraw, disputed_groups: int, limit: int
) -> ReviewQueue:
    alias, live, other = await _versions(project, request)
    theirs, ours = await candidates.list_attempts(project.store, alias, other, live)
    pairs = await asyncio.to_thread(candidates.version_pairs, ours, theirs, draw)
    unanswered, answered = await _unanswered(project.store, pairs, request)
    said = newest_choices(request.person, await list_choices(project.store, _runs(pairs)))
    tally = tally_choices(live.name, other.name, pairs, said)
    return ReviewQueue(
        await _entries(project.store, unanswered, request, draw, limit), disputed_groups, answered, tally
    )


async def _versions(project: Project, request: QueueRequest) -> tuple[AliasView, VersionView, VersionView]:
    """Return the alias, its live version, and the version to compare with. Raises NotFound, Conflict."""
    against = str(request.against)
    named = against.rpartition("@")[0] if "@" in against else request.alias
    alias = await get_alias(project, named) if named else await _only_alias(project)
    if alias.live_version_id is None:
        raise NotFound(f"the alias {alias.name!r} has no live version: `hone promote` makes one live")
    number = "0" if against == BASE else against
    other = await get_version_by_name(project, against if "@" in against else f"{alias.name}@{number}")
    live = await get_version(project.store, alias.live_version_id)
    if live.id == other.id:
        raise Conflict(f"{live.name} is the live version itself: name another version to compare it with")
    return alias, live, other


async def _only_alias(project: Project) -> AliasView:
    found = await get_aliases(project)
    if len(found) != 1:
        names = ", ".join(one.name for one in found) or "none"
        raise NotFound(f"name an alias; the project has: {names}")
    return found[0]


async def _unanswered(store: Store, found: Sequence[Candidate], request: QueueRequest) -> tuple[list[Candidate], int]:
    """Return the pairs that this person has neither answered nor skipped, and the number of answered pairs."""
    said = newest_choices(request.person, await list_choices(store, _runs(found)))
    unanswered = [one for one in found if frozenset(one.pair) not in said]
    return [one for one in unanswered if frozenset(one.pair) not in request.passed], len(found) - len(unanswered)


def _runs(found: Iterable[Candidate]) -> set[str]:
    return {run for one in found for run in one.pair}


async def _entries(
    store: Store, found: Sequence[Candidate], request: QueueRequest, draw: StableDraw, limit: int
) -> list[QueuedPair]:
    """Return the queue's entries as this person is shown them, only those of the requested alias."""
    heads = await group_names(store, [one.group for one in found])
    with_heads = [(one, heads[one.group]) for one in found if one.group in heads]
    return [
        QueuedPair(one.why, one.about, one.group, head.external_id, head.alias, *draw.sides(request.person, *one.pair))
        for one, head in with_heads
        if request.alias in (None, head.alias)
    ][:limit]
