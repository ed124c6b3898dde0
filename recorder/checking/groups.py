"""Groups: what each state demands, who holds one, and why a group or a member was left out.

Owns: these invariants (contracts.md, 6, 7 and 9). Refuses: what was trained (`recorder.checking.trained`).
"""

from __future__ import annotations

from typing import Final

from sqlalchemy import and_, exists, or_, select

from recorder.checking.look import Look, Violation, Violations
from recorder.states import AttemptState, GroupState, Purpose, TrajectoryState
from recorder.store.schema import attempts, groups, scores, trajectories
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now

_HELD: Final = (GroupState.JUDGING, GroupState.TRAINING)
_SCORED: Final = (GroupState.SCORED, GroupState.TRAINING, GroupState.TRIED, GroupState.TRAINED)
_SWEEP: Final = "start `hone serve` or `hone up` on this folder: its sweep takes back what a dead worker held"
_AGAIN: Final = "let it be judged anew: `hone score GROUP --again`"
_REPORT: Final = "please report it with `hone ledger ID` and `hone groups`: a step wrote half of what it should"


async def what_is_in_hand_has_a_holder(look: Look) -> Violations:
    """A group in hand has an owner whose lease runs, and no other group has one."""
    leased = and_(groups.c.lease_owner.is_not(None), groups.c.lease_expires_at.is_not(None))
    held = groups.c.state.in_(_HELD)
    wrong = or_(and_(held, or_(~leased, groups.c.lease_expires_at <= now())), and_(~held, groups.c.lease_owner != ""))
    query = select(groups.c.id, groups.c.state, groups.c.lease_owner).where(wrong)
    async for row in look.find(query, groups.c.id):
        whose = f"is held by {row.lease_owner}" if row.lease_owner else "nobody holds it"
        over = ", whose lease ran out" if row.lease_owner and row.state in _HELD else ""
        yield Violation("group", row.id, f"it is {row.state} and {whose}{over}", _SWEEP)


async def running_attempts_have_a_holder(look: Look) -> Violations:
    """An attempt that runs has an owner whose lease runs."""
    running = attempts.c.state == AttemptState.RUNNING
    lost = or_(attempts.c.lease_owner.is_(None), attempts.c.lease_expires_at <= now())
    async for row in look.find(select(attempts.c.id).where(running, lost), attempts.c.id):
        yield Violation("attempt", row.id, "it is running, and nobody holds it", _SWEEP)


async def scored_groups_have_their_score(look: Look) -> Violations:
    """A group that is scored, or further, points at a score of its own."""
    own = exists().where(scores.c.id == groups.c.current_score_id, scores.c.group_id == groups.c.id)
    demanded = or_(groups.c.state.in_(_SCORED), groups.c.current_score_id.is_not(None))
    query = select(groups.c.id, groups.c.state).where(demanded, ~own)
    async for row in look.find(query, groups.c.id):
        yield Violation("group", row.id, f"it is {row.state}, and its current score is not there", _AGAIN)


async def members_of_closed_groups_have_ended(look: Look) -> Violations:
    """No run of a group that was closed is open."""
    query = (
        select(trajectories.c.id, groups.c.id.label("of"), groups.c.state)
        .join(groups, groups.c.id == trajectories.c.group_id)
        .where(trajectories.c.state == TrajectoryState.OPEN, groups.c.state != GroupState.OPEN)
    )
    async for row in look.find(query, trajectories.c.id):
        what = f"it is open, and its group {row.of} is {row.state}"
        yield Violation("trajectory", row.id, what, "end it: `POST …/done`, or `hone delete`")


async def groups_that_are_left_out_say_why(look: Look) -> Violations:
    """A group that was left out has a reason, in its row and in the ledger."""
    told = exists().where(
        ledger_rows.c.object_kind == "group",
        ledger_rows.c.object_id == groups.c.id,
        ledger_rows.c.code == groups.c.reason,
    )
    query = select(groups.c.id, groups.c.reason).where(groups.c.state == GroupState.LEFT_OUT, ~told)
    async for row in look.find(query, groups.c.id):
        what = f"it is left out as {row.reason}, which the ledger does not say" if row.reason else "no reason says why"
        yield Violation("group", row.id, f"left out: {what}" if not row.reason else what, _REPORT)


async def members_that_are_left_out_say_why(look: Look) -> Violations:
    """A run that was not judged with its group has its reason in the ledger."""
    t = trajectories.c
    unusable = or_(t.state != TrajectoryState.COMPLETED, t.selection.is_not(None), t.purpose == Purpose.NONE)
    told = exists().where(ledger_rows.c.object_kind == "trajectory", ledger_rows.c.object_id == t.id)
    query = (
        select(t.id, groups.c.id.label("of"))
        .join(groups, groups.c.id == t.group_id)
        .where(groups.c.state != GroupState.OPEN, unusable, ~told)
    )
    async for row in look.find(query, t.id):
        what = f"it was not judged with its group {row.of}, and the ledger does not say why"
        yield Violation("trajectory", row.id, what, _REPORT)
