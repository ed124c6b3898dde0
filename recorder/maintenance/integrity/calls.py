"""Invariants of calls and choices: none stays open behind a dead process, each is in its trajectory's tree, and
trainable choices are complete and finite.

Refuses: how prompts are stored (`recorder.maintenance.integrity.messages`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Row, and_, exists, func, literal, or_, select

from recorder.errors import CorruptRecord
from recorder.maintenance.integrity.reader import CheckReader, Violation, Violations
from recorder.messages import tokens
from recorder.queue.leases import PROXY
from recorder.states import TERMINAL_TRAJECTORY, CallState, TrajectoryState
from recorder.store.schema import calls, choices, leases, projects, trajectories
from recorder.store.sql import now

_SWEEP: Final = "start `hone serve` or `hone up` on this folder: its sweep ends what a dead process left"
_NEVER_TRAIN: Final = "do not train on it: delete the trajectory with `hone delete`, and report how it came about"
_DAMAGED: Final = "restore the store from a backup, or delete the trajectory with `hone delete`"

_parent = calls.alias("parent")


async def no_call_is_open_behind_a_process_that_is_gone(look: CheckReader) -> Violations:
    """No call is open whose process no longer runs."""
    there = exists().where(
        leases.c.project_id == calls.c.project_id,
        leases.c.name == literal(PROXY) + calls.c.process,
        leases.c.lease_owner.is_not(None),
        leases.c.lease_expires_at > now(),
    )
    lost = (calls.c.state == CallState.OPEN, calls.c.process.is_not(None), ~there)
    async for row in look.find(select(calls.c.id, calls.c.process).where(*lost), calls.c.id):
        yield Violation("call", row.id, f"it is open, and its process {row.process} no longer runs", _SWEEP)


async def trajectories_end_once_and_say_when(look: CheckReader) -> Violations:
    """An ended trajectory has an end time, and an open one has none."""
    t = trajectories.c
    undated = and_(t.state.in_(sorted(TERMINAL_TRAJECTORY)), t.ended_at.is_(None))
    dated = and_(t.state == TrajectoryState.OPEN, t.ended_at.is_not(None))
    async for row in look.find(select(t.id, t.state, t.ended_at).where(or_(undated, dated)), t.id):
        when = "has no end time" if row.ended_at is None else "has an end time"
        yield Violation("trajectory", row.id, f"it is {row.state} and {when}", _NEVER_TRAIN)


async def the_calls_of_a_trajectory_form_a_tree(look: CheckReader) -> Violations:
    """The calls of a trajectory form a tree: none is its own ancestor."""
    async for page in look.pages(select(trajectories.c.id), trajectories.c.id):
        query = select(calls.c.id, calls.c.trajectory_id, calls.c.parent_call_id)
        found = await look.rows(query.where(calls.c.trajectory_id.in_([row.id for row in page])))
        parents = {row.id: row.parent_call_id for row in found}
        for call_id in sorted(parents):
            if _goes_round(call_id, parents):
                yield Violation("call", call_id, "it is its own ancestor, through its parents", _DAMAGED)


def _goes_round(call_id: str, parents: Mapping[str, str | None]) -> bool:
    above, steps = parents[call_id], 0
    while above is not None and above in parents and above != call_id and steps < len(parents):
        above, steps = parents[above], steps + 1
    return above == call_id


async def every_parent_is_there(look: CheckReader) -> Violations:
    """Every call continues an existing choice, unless that trajectory was deleted."""
    # a deleted trajectory's children keep the id of the call they continued, with token ids of their own
    deleted = exists().where(projects.c.id == calls.c.project_id, projects.c.deletions > 0)
    gone = and_(_parent.c.id.is_(None), or_(func.coalesce(calls.c.prompt_shared, 0) > 0, ~deleted))
    choice = and_(
        choices.c.call_id == calls.c.parent_call_id, choices.c["index"] == func.coalesce(calls.c.parent_choice, 0)
    )
    unsampled = and_(_parent.c.id.is_not(None), _parent.c.state != CallState.OPEN, ~exists().where(choice))
    query = (
        select(calls.c.id, calls.c.parent_call_id, calls.c.parent_choice)
        .outerjoin(_parent, _parent.c.id == calls.c.parent_call_id)
        .where(calls.c.parent_call_id.is_not(None), or_(gone, unsampled))
    )
    async for row in look.find(query, calls.c.id):
        what = f"it continues choice {row.parent_choice or 0} of call {row.parent_call_id}, which does not exist"
        yield Violation("call", row.id, what, _DAMAGED)


async def what_may_be_trained_on_is_whole(look: CheckReader) -> Violations:
    """Every trainable choice has as many finite logprobs as token ids, and every other one has a reason."""
    query = select(choices, choices.c["index"].label("choice"), calls.c.state).join(
        calls, calls.c.id == choices.c.call_id
    )
    async for row in look.find(query, calls.c.id):
        what = _wrong_with(row)
        if what is not None:
            yield Violation("choice", f"{row.call_id}/{row.choice}", what, _NEVER_TRAIN)


def _wrong_with(row: Row[Any]) -> str | None:
    if not row.trainable:
        return None if row.untrainable_reason else "it may not be trained on, and has no reason"
    if row.state != CallState.COMPLETE:
        return f"it may be trained on, but its call is {row.state}"
    if not row.token_ids or row.logprobs is None:
        return "it may be trained on, but has no token ids or no logprobs"
    try:
        ids, logprobs = tokens.unpack_ids(row.token_ids), tokens.unpack_logprobs(row.logprobs)
    except CorruptRecord as e:
        return f"it may be trained on, but is damaged: {e}"
    if len(ids) != len(logprobs):
        return f"it may be trained on, but has {len(ids)} token ids and {len(logprobs)} logprobs"
    return None if all(map(math.isfinite, logprobs)) else "it may be trained on, but has a logprob that is not finite"
