"""Feedback: what people and programs report about a trajectory or one of its calls, and tags.

Owns: feedback rows, reserved names, choices between two trajectories, requesting a rescore when feedback arrives after
the score, and setting or removing a tag by hand. Refuses: turning feedback into a reward (the judge), and tags that a
client sends with its calls (`recorder.capture`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from sqlalchemy import and_, exists, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import NotFound
from recorder.ids import check_external, new_id
from recorder.queue.groups.disputes import PairChoice, is_disputed
from recorder.states import GroupState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import calls, feedback, groups, score_parts, trajectories
from recorder.store.sql import now

PREFERENCE: Final = "preference"  # on the better of two attempts; tags: `loser` and `group` (ids)
TIE: Final = "tie"  # on one of two equally good trajectories; tags: `other` and `group` (ids)
COMPARED_WITH: Final = ("loser", "other")  # tags of a choice with the id of the other trajectory
SCORE: Final = "score"  # a person's score of a trajectory, 0 to 1
BY_PERSON: Final = "person"  # the suffix of a part that a person's choice gave: `ruler.person`
DEMONSTRATION: Final = "demonstration"  # what an answer should have been, which `imitate` trains on
RESERVED: Final = frozenset({"comment", DEMONSTRATION})  # names whose value is text
MAX_TEXT_CHARS: Final = 100_000
LATE: Final = "feedback_late"  # ledger code of a trajectory: its feedback came when its group was in training
SETTLES_S: Final = 1.0  # feedback on several trajectories of a group within this time causes one judging
CHOICE_SETTLES_S: Final = 60.0  # a group is scored this long after a person's last choice between its pairs
CHOICES: Final = frozenset({PREFERENCE, TIE, SCORE})  # feedback that scores a group about which judges disagree
_WITH_SCORE: Final = (GroupState.SCORED, GroupState.MEASURED)
_IN_TRAINING: Final = (GroupState.TRAINING, GroupState.TRIED, GroupState.TRAINED)


@dataclass(frozen=True, slots=True)
class Feedback:
    """One piece of feedback, as stored."""

    id: str
    project_id: str
    trajectory_id: str
    call_id: str | None
    name: str
    value: float | bool | str
    comment: str | None
    tags: dict[str, str]
    created_at: float


def check_value(name: str, value: object) -> float | bool | str:
    """Return `value` if feedback called `name` may carry it, else raise ValueError."""
    if name in RESERVED and not isinstance(value, str):
        raise ValueError(f"feedback {name!r} takes text, not {type(value).__name__}")
    if isinstance(value, str):
        if len(value) > MAX_TEXT_CHARS:
            raise ValueError(f"feedback {name!r} is {len(value)} characters long: at most {MAX_TEXT_CHARS}")
        return value
    if isinstance(value, bool):
        return value
    if isinstance(value, int | float) and math.isfinite(value):
        return value
    raise ValueError(f"feedback {name!r} must be a finite number, true, false or text, not {value!r:.80}")


async def add_feedback(
    project: Project,
    trajectory_id: str,
    name: str,
    value: object,
    comment: str | None = None,
    call_id: str | None = None,
    tags: Mapping[str, str] | None = None,
) -> Feedback:
    """Write feedback about a trajectory (internal id). Raises NotFound, InvalidId (name), ValueError.

    A group whose score has a part of that name is rescored; if it is already in training, the ledger gets
    `feedback_late`. If the name is a choice (`CHOICES`), a group about which judges disagree, or that a person's choice
    scored, is rescored too.
    """
    check_external(name, "the feedback name")
    feedback_id = new_id("fb")
    row = {
        "id": feedback_id,
        "project_id": project.id,
        "trajectory_id": trajectory_id,
        "call_id": call_id,
        "name": name,
        "value": check_value(name, value),
        "comment": comment,
        "tags": dict(tags or {}),
    }
    async with project.store.write() as conn:
        await _require(conn, project.id, trajectory_id, call_id)
        await conn.execute(insert(feedback).values(**row, created_at=now()))
        await _score_again(conn, trajectory_id, name)
        written = (await conn.execute(select(feedback).where(feedback.c.id == feedback_id))).one()
        return sql.as_view(Feedback, written)


def ranking_pairs(places: Mapping[str, int]) -> list[tuple[str, str]]:
    """Return the pairs (better, worse) of a ranking: each attempt with those of the next rank.

    `places`: trajectory id → its rank, 1 is best. Attempts of the same rank are not compared.
    """
    ordered = sorted(set(places.values()))
    at = {place: [id_ for id_, its in places.items() if its == place] for place in ordered}
    return [(better, worse) for one, other in pairwise(ordered) for better in at[one] for worse in at[other]]


async def write_preferences(
    project: Project,
    group_id: str,
    pairs: Sequence[tuple[str, str]],
    *,
    by: str,
    comment: str | None = None,
) -> list[str]:
    """Write that one attempt of a group is better than another, for each pair (better, worse), in one transaction.

    Each is feedback `preference` on the better attempt; its tags are the ids of the worse attempt and of the group, and
    the author. Returns the feedback ids. Raises NotFound for an attempt that is not in the group, ValueError for an
    attempt paired with itself.
    """
    if any(better == worse for better, worse in pairs):
        raise ValueError("an attempt is not better than itself: choose two")
    rows = [_row(project.id, PairChoice(*pair), comment, {"group": group_id, "by": by}) for pair in pairs]
    async with project.store.write() as conn:
        await _require_attempts(conn, project.id, group_id, {id_ for pair in pairs for id_ in pair})
        await _write(conn, rows, SETTLES_S)
    return [str(row["id"]) for row in rows]


async def write_choice(project: Project, choice: PairChoice, *, by: str, shown: str, comment: str | None = None) -> str:
    """Write a person's choice between two trajectories shown side by side; return the feedback's id.

    It is feedback `preference` as `write_preferences` writes it, or `tie` on the first shown trajectory, with the id of
    the `other` one as a tag. `shown`: the position of the trajectory with the feedback, `first` or `second`. If the two
    are in different groups, the tags also have the other's group (`other_group`), and the choice scores no group. A
    group about which judges disagree is scored after `CHOICE_SETTLES_S` without a choice. Raises NotFound, ValueError.
    """
    if choice.better == choice.worse:
        raise ValueError("an attempt is not better than itself: choose two")
    t = trajectories.c
    query = select(t.id, t.group_id).where(t.project_id == project.id, t.id.in_((choice.better, choice.worse)))
    async with project.store.write() as conn:
        groups_of = {row.id: row.group_id for row in await conn.execute(query)}
        own, other = groups_of.get(choice.better), groups_of.get(choice.worse)
        if own is None or other is None:
            gone = choice.worse if own is not None else choice.better
            raise NotFound(f"no trajectory {gone[:200]!r} of a group in project {project.id!r}: nothing was written")
        tags = {"group": own, "by": by, "shown": shown} | ({} if own == other else {"other_group": other})
        row = _row(project.id, choice, comment, tags)
        await _write(conn, [row], CHOICE_SETTLES_S, scores_group=own == other)
    return str(row["id"])


def parse_choice(trajectory_id: str, name: str, value: object, tags: Mapping[str, str]) -> PairChoice | None:
    """Return the choice between two trajectories that feedback on one of them expresses, or None."""
    other = tags.get("other" if name == TIE else "loser")
    if name not in (PREFERENCE, TIE) or not value or not other or other == trajectory_id:
        return None
    return PairChoice(trajectory_id, str(other), tie=name == TIE)


def _row(project_id: str, choice: PairChoice, comment: str | None, tags: Mapping[str, str]) -> dict[str, Any]:
    return {
        "id": new_id("fb"),
        "project_id": project_id,
        "trajectory_id": choice.better,
        "name": TIE if choice.tie else PREFERENCE,
        "value": True,
        "comment": comment,
        "tags": {"other" if choice.tie else "loser": choice.worse, **tags},
    }


async def _write(
    conn: AsyncConnection, rows: Sequence[Mapping[str, Any]], settles_s: float, *, scores_group: bool = True
) -> None:
    """Write choices, and request a judging of their trajectories' groups."""
    for row in rows:
        await conn.execute(insert(feedback).values(**row, created_at=now()))
    for run, name in {(row["trajectory_id"], row["name"]) for row in rows} if scores_group else ():
        await _score_again(conn, run, name, settles_s)


async def _require_attempts(conn: AsyncConnection, project_id: str, group_id: str, ids: Collection[str]) -> None:
    t = trajectories.c
    query = select(t.id).where(t.project_id == project_id, t.group_id == group_id, t.id.in_(sorted(ids)))
    strangers = set(ids) - set((await conn.execute(query)).scalars())
    if strangers:
        raise NotFound(f"group {group_id} has no attempt {', '.join(sorted(strangers))}: nothing was written")


async def _require(conn: AsyncConnection, project_id: str, trajectory_id: str, call_id: str | None) -> None:
    own = select(trajectories.c.id).where(trajectories.c.id == trajectory_id, trajectories.c.project_id == project_id)
    if (await conn.execute(own)).first() is None:
        raise NotFound(f"no trajectory {trajectory_id!r} in project {project_id!r}")
    if call_id is None:
        return
    of_it = select(calls.c.id).where(calls.c.id == call_id, calls.c.trajectory_id == trajectory_id)
    if (await conn.execute(of_it)).first() is None:
        raise NotFound(f"trajectory {trajectory_id} has no call {call_id!r}")


async def _score_again(conn: AsyncConnection, trajectory_id: str, name: str, settles_s: float = SETTLES_S) -> None:
    """Mark the trajectory's group for a judge (`recorder.queue.claims`) if its score would change now."""
    if name in RESERVED:
        return
    p = score_parts.c
    of_run = and_(p.trajectory_id == trajectory_id, p.part == name)
    chosen = p.part.like(f"%.{BY_PERSON}")  # of any trajectory: a choice about one changes the rewards of the others
    counts = or_(of_run, chosen) if name in CHOICES else of_run
    asked_for = exists().where(p.score_id == groups.c.current_score_id, counts)
    waits = [and_(groups.c.state.in_((*_WITH_SCORE, *_IN_TRAINING)), asked_for)]
    waits += [is_disputed()] if name in CHOICES else []
    # A judge that holds the group may have read it already, and it is not known yet whether it uses this name.
    found = (
        select(groups.c.id, groups.c.project_id, groups.c.state)
        .join(trajectories, trajectories.c.group_id == groups.c.id)
        .where(trajectories.c.id == trajectory_id, or_(groups.c.state == GroupState.JUDGING, *waits))
        .with_for_update(of=groups)
    )
    group = (await conn.execute(found)).first()
    if group is None:
        return
    if group.state in _IN_TRAINING:
        detail = {"name": name, "group": group.id, "state": group.state}
        await ledger.write_rows(conn, [LedgerRow(group.project_id, "trajectory", trajectory_id, LATE, detail)])
    if group.state != GroupState.TRAINED:  # a group in training may be returned
        await conn.execute(update(groups).where(groups.c.id == group.id).values(try_after=now() + settles_s))


async def list_feedback(store: Store, trajectory_id: str) -> list[Feedback]:
    """Return the feedback about a trajectory, oldest first."""
    query = select(feedback).where(feedback.c.trajectory_id == trajectory_id)
    async with store.read() as conn:
        rows: Any = await conn.execute(query.order_by(feedback.c.created_at, feedback.c.id))
        return sql.as_views(Feedback, rows)


MOST: Final = 100
MAX_CHARS: Final = 1000  # of a tag's value


async def set_tag(project: Project, trajectory_id: str, name: str, value: str | None) -> None:
    """Set a trajectory's tag; None removes it. Raises NotFound, InvalidId (name), ValueError (too long, too many)."""
    if value is not None:
        _check(name, value)
    t = trajectories.c
    own = select(t.tags).where(t.id == trajectory_id, t.project_id == project.id).with_for_update()
    async with project.store.write() as conn:
        row = (await conn.execute(own)).first()
        if row is None:
            raise NotFound(f"no trajectory {trajectory_id!r} in project {project.id!r}")
        tags = {key: kept for key, kept in row.tags.items() if key != name}
        if value is not None:
            tags[name] = value
        if len(tags) > MOST:
            raise ValueError(f"the trajectory has {len(row.tags)} tags already: remove one first")
        await conn.execute(update(trajectories).where(t.id == trajectory_id).values(tags=tags))


def _check(name: str, value: str) -> None:
    check_external(name, "the tag")
    if len(value) > MAX_CHARS:
        raise ValueError(f"the tag {name!r} has {len(value)} characters: at most {MAX_CHARS}")
