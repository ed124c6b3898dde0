"""How much of a training step the follow-ups of one API key may be (`trainer.follow_up_share`).

Owns: which groups wait for a later step because of it, reading what that depends on, and the ledger's row of a group
that waits. Refuses: claiming groups (`recorder.queue.claims`), and what a follow-up says (package `judge`).

A follow-up is text of a user: without a limit, the user who writes most decides what the model becomes. With too few
keys for the share they share equally, and one key alone is not limited: else its project would never learn. A group is
whole or waits, because its trajectories are compared with one another.
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any, Final

from sqlalchemy import ColumnElement, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.claims import TrainableGroups, is_claimable
from recorder.queue.judging.scores import REWARD
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow, write_rows
from recorder.store.schema import groups, ledger, score_parts, scores, trajectories

FOLLOW_UP_SHARE: Final = "follow_up_share"  # the ledger's code of a group that waits
PAGE: Final = 256  # ids per SELECT
_ROUNDING: Final = 1e-9  # 0.1 of 30 trajectories are 3


@dataclass(frozen=True, slots=True)
class StepGroup:
    """A group that a step could be made of. `follow_ups`: by key family, those of its `trajectories`."""

    id: str
    trajectories: int
    follow_ups: Mapping[str, int] = field(default_factory=dict)
    scored_at: float = 0.0


def find_waiting(candidates: Sequence[StepGroup], share: float, limit: int) -> list[str]:
    """The candidates that wait, so that the first `limit` others are a step in which no key's follow-ups are too many.

    One key's are at most max(`share`, 1/n) of the step's trajectories; n: how many keys have follow-ups among the
    candidates. If not one group is within that, n is one less, and so on: a group that is too large for its key's part
    does not keep all others waiting. Older candidates come first; of a key's, the newer ones wait first.
    """
    keys = {key for one in candidates for key in one.follow_ups}
    waiting: list[str] = []
    for number in range(min(len(keys), math.ceil(1 / share)), 0, -1):
        waiting = _find_beyond(candidates, max(share, 1 / number), limit)
        if len(waiting) < len(candidates):
            break
    return waiting


def _find_beyond(candidates: Sequence[StepGroup], share: float, limit: int) -> list[str]:
    rest = iter(candidates)
    taken = list(islice(rest, limit))
    held: dict[str, StepGroup] = {}
    counts = _StepCounts(taken)
    while (key := counts.find_excess(share)) is not None:
        last = next(one for one in reversed(taken) if key in one.follow_ups)
        taken.remove(last)
        counts.add(last, -1)
        held[last.id] = last
        for one in islice(rest, 1):
            taken.append(one)
            counts.add(one)
    for one in candidates:  # a later one may have made room
        if one.id in held and len(taken) < limit and counts.has_room(one, share):
            taken.append(held.pop(one.id))
            counts.add(one)
    return [one.id for one in candidates if one.id in held]


class _StepCounts:
    """The trajectories of a step, and the follow-ups of each key among them."""

    def __init__(self, taken: Iterable[StepGroup]) -> None:
        self._all = 0
        self._of_key: Counter[str] = Counter()
        for one in taken:
            self.add(one)

    def add(self, one: StepGroup, times: int = 1) -> None:
        """Add a group, or with -1 remove it."""
        self._all += times * one.trajectories
        for key, number in one.follow_ups.items():
            self._of_key[key] += times * number

    def find_excess(self, share: float) -> str | None:
        """The key whose follow-ups are most, if they are too many."""
        most = max(self._of_key, key=lambda key: (self._of_key[key], key), default=None)
        return most if most is not None and self._of_key[most] > share * self._all + _ROUNDING else None

    def has_room(self, one: StepGroup, share: float) -> bool:
        """Whether a further group leaves every key within the share."""
        most = share * (self._all + one.trajectories) + _ROUNDING
        return all(self._of_key[key] + number <= most for key, number in one.follow_ups.items())


def largest_share(taken: Sequence[StepGroup]) -> float:
    """The share of the key with the most follow-ups among a step's trajectories."""
    of_key: Counter[str] = Counter()
    for one in taken:
        of_key.update(one.follow_ups)
    return max(of_key.values(), default=0) / max(1, sum(one.trajectories for one in taken))


@dataclass(frozen=True, slots=True)
class StepChoice:
    """The groups of an alias's next step, by id, oldest first, and those that wait because of the share."""

    taken: Sequence[str]
    waiting: Sequence[str]


async def choose_groups(
    store: Store, alias_id: str, share: float, limit: int, lacking: Collection[str] = ()
) -> StepChoice | None:
    """Choose up to `limit` of the groups that `claim_for_training` could take for live learning; None: any of them."""
    candidates = await _load_limited(store, share, is_claimable(alias_id, None, lacking))
    if not candidates:
        return None
    waiting = find_waiting(candidates, share, limit)
    rest = set(waiting)
    return StepChoice([one.id for one in candidates if one.id not in rest][:limit], waiting)


async def apply_share(
    store: Store,
    alias_id: str,
    there: TrainableGroups,
    share: float,
    limit: int,
    lacking: Collection[str] = (),
    max_age_s: float | None = None,
) -> TrainableGroups:
    """What `waiting_for_training` found, without the groups that wait because of the share."""
    if not there.groups:
        return there
    candidates = await _load_limited(store, share, is_claimable(alias_id, None, lacking, max_age_s))
    if not candidates:
        return there
    async with store.read() as conn:
        at = await sql.current_time(conn)
    waiting = set(find_waiting(candidates, share, limit))
    first = min((one.scored_at for one in candidates if one.id not in waiting), default=at)
    number = len(waiting)
    return replace(there, groups=there.groups - number, first_s=at - first, held=there.held + number, follow_ups=number)


async def _load_limited(store: Store, share: float, wanted: ColumnElement[bool]) -> list[StepGroup]:
    """The groups that fulfil a condition; none where the share limits none of them, as where nothing is a follow-up."""
    if share >= 1:
        return []
    free = select(groups.c.current_score_id).where(wanted).cte("free")
    rewarded = select(scores.c.id).join(free, scores.c.id == free.c.current_score_id).where(scores.c.follow_up)
    async with store.read() as conn:
        if (await conn.execute(rewarded.limit(1))).first() is None:
            return []
        return await load_step_groups(conn, wanted)


async def load_step_groups(conn: AsyncConnection, wanted: ColumnElement[bool]) -> list[StepGroup]:
    """The scored groups that fulfil a condition, oldest first; their trajectories are those with a reward."""
    free = select(groups.c.id, groups.c.ready_at, groups.c.current_score_id).where(wanted).cte("free")
    at = func.coalesce(scores.c.created_at, free.c.ready_at).label("at")
    query = (
        select(free.c.id, free.c.ready_at, at, scores.c.follow_up, trajectories.c.made_by, func.count().label("number"))
        .join(scores, scores.c.id == free.c.current_score_id)
        .join(score_parts, score_parts.c.score_id == scores.c.id)
        .join(trajectories, trajectories.c.id == score_parts.c.trajectory_id)
        .where(score_parts.c.part == REWARD, score_parts.c.value.is_not(None))
        .group_by(free.c.id, free.c.ready_at, at, scores.c.follow_up, trajectories.c.made_by)
        .order_by(free.c.ready_at, free.c.id, trajectories.c.made_by)
    )
    rows: defaultdict[str, list[Any]] = defaultdict(list)
    for row in await conn.execute(query):
        rows[row.id].append(row)
    return [
        StepGroup(
            id_,
            sum(row.number for row in of_group),
            {row.made_by: row.number for row in of_group if row.follow_up and row.made_by},
            float(of_group[0].at),
        )
        for id_, of_group in rows.items()
    ]


async def load_key_families(store: Store, trajectory_ids: Collection[str]) -> dict[str, str]:
    """The key family that made each trajectory, by id; those made without a key are absent."""
    t, ids = trajectories.c, sorted(trajectory_ids)
    found: dict[str, str] = {}
    for at in range(0, len(ids), PAGE):
        query = select(t.id, t.made_by).where(t.id.in_(ids[at : at + PAGE]), t.made_by != "")
        async with store.read() as conn:
            found |= {row.id: row.made_by for row in await conn.execute(query)}
    return found


async def write_waiting(store: Store, project_id: str, group_ids: Collection[str], share: float) -> None:
    """Write into the ledger that groups wait for a later step, once for each."""
    if not group_ids:
        return
    said = (ledger.c.project_id == project_id, ledger.c.object_kind == "group", ledger.c.code == FOLLOW_UP_SHARE)
    ids = sorted(group_ids)
    async with store.write() as conn:
        for at in range(0, len(ids), PAGE):
            page = ids[at : at + PAGE]
            there = set(
                (await conn.execute(select(ledger.c.object_id).where(*said, ledger.c.object_id.in_(page)))).scalars()
            )
            rows = (LedgerRow(project_id, "group", id_, FOLLOW_UP_SHARE, {"share": share}) for id_ in page)
            await write_rows(conn, [row for row in rows if row.object_id not in there])
