"""Invariants of groups: what each state requires, who holds a group, why a group or member was excluded, and what
counts as trained (docs/trained.md).

Refuses: the ancestry of versions (`recorder.maintenance.integrity.versions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import Select, and_, exists, or_, select

from recorder.maintenance.integrity.reader import CheckReader, Violation, Violations
from recorder.queue.groups.readiness import MEASURED
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.registry.ancestry import ancestry_ages
from recorder.states import UNDECIDED, AttemptState, GroupState, Purpose, StepState, TrajectoryState
from recorder.store.ledger import TRAINED, UNTRAINED
from recorder.store.schema import (
    aliases,
    attempts,
    groups,
    scores,
    step_groups,
    step_trajectories,
    steps,
    trajectories,
    uses,
    versions,
)
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now

_HELD: Final = (GroupState.JUDGING, GroupState.TRAINING)
_SCORED: Final = (GroupState.SCORED, GroupState.TRAINING, GroupState.TRIED, GroupState.TRAINED)
_SWEEP: Final = "start `hone serve` or `hone up` on this folder: its sweep releases the claims of dead workers"
_AGAIN: Final = "rescore it: `hone score GROUP --again`"
_REPORT: Final = "please report it with `hone ledger ID` and `hone groups`: a step was written only in part"


async def claimed_groups_have_a_holder(look: CheckReader) -> Violations:
    """A claimed group has an owner with a valid lease, and no other group has one."""
    leased = and_(groups.c.lease_owner.is_not(None), groups.c.lease_expires_at.is_not(None))
    held = groups.c.state.in_(_HELD)
    wrong = or_(and_(held, or_(~leased, groups.c.lease_expires_at <= now())), and_(~held, groups.c.lease_owner != ""))
    query = select(groups.c.id, groups.c.state, groups.c.lease_owner).where(wrong)
    async for row in look.find(query, groups.c.id):
        holder = f"is held by {row.lease_owner}" if row.lease_owner else "has no holder"
        expired = ", and that lease has expired" if row.lease_owner and row.state in _HELD else ""
        yield Violation("group", row.id, f"it is {row.state} and {holder}{expired}", _SWEEP)


async def running_attempts_have_a_holder(look: CheckReader) -> Violations:
    """A running attempt has an owner with a valid lease."""
    running = attempts.c.state == AttemptState.RUNNING
    lost = or_(attempts.c.lease_owner.is_(None), attempts.c.lease_expires_at <= now())
    async for row in look.find(select(attempts.c.id).where(running, lost), attempts.c.id):
        yield Violation("attempt", row.id, "it is running, but has no holder", _SWEEP)


async def scored_groups_have_their_score(look: CheckReader) -> Violations:
    """A group that is scored or in a later state has a current score of its own."""
    own = exists().where(scores.c.id == groups.c.current_score_id, scores.c.group_id == groups.c.id)
    demanded = or_(groups.c.state.in_(_SCORED), groups.c.current_score_id.is_not(None))
    query = select(groups.c.id, groups.c.state).where(demanded, ~own)
    async for row in look.find(query, groups.c.id):
        yield Violation("group", row.id, f"it is {row.state}, but its current score does not exist", _AGAIN)


async def members_of_closed_groups_have_ended(look: CheckReader) -> Violations:
    """No trajectory of a closed group is open."""
    query = (
        select(trajectories.c.id, groups.c.id.label("of"), groups.c.state)
        .join(groups, groups.c.id == trajectories.c.group_id)
        .where(trajectories.c.state == TrajectoryState.OPEN, groups.c.state != GroupState.OPEN)
    )
    async for row in look.find(query, trajectories.c.id):
        what = f"it is open, but its group {row.of} is {row.state}"
        yield Violation("trajectory", row.id, what, "end it: `POST …/done`, or `hone delete`")


async def excluded_groups_say_why(look: CheckReader) -> Violations:
    """An excluded group has a reason, in its row and in the ledger."""
    has_reason = exists().where(
        ledger_rows.c.object_kind == "group",
        ledger_rows.c.object_id == groups.c.id,
        ledger_rows.c.code == groups.c.reason,
    )
    query = select(groups.c.id, groups.c.reason).where(groups.c.state == GroupState.LEFT_OUT, ~has_reason)
    async for row in look.find(query, groups.c.id):
        what = f"it is excluded as {row.reason}, but not in the ledger" if row.reason else "it has no reason"
        yield Violation("group", row.id, f"excluded: {what}" if not row.reason else what, _REPORT)


async def excluded_members_say_why(look: CheckReader) -> Violations:
    """A trajectory for training that was not judged with its group has its reason in the ledger."""
    t = trajectories.c
    unusable = or_(t.state != TrajectoryState.COMPLETED, t.selection.is_not(None), t.purpose == Purpose.NONE)
    unusable = and_(unusable, t.purpose.not_in(sorted(MEASURED)))  # what is only measured has no exclusion
    has_reason = exists().where(ledger_rows.c.object_kind == "trajectory", ledger_rows.c.object_id == t.id)
    query = (
        select(t.id, groups.c.id.label("of"))
        .join(groups, groups.c.id == t.group_id)
        .where(groups.c.state != GroupState.OPEN, groups.c.state != GroupState.MEASURED, unusable, ~has_reason)
    )
    async for row in look.find(query, t.id):
        what = f"it was not judged with its group {row.of}, and the ledger has no reason"
        yield Violation("trajectory", row.id, what, _REPORT)


_TRAINED_REPORT: Final = (
    "please report it with `hone versions` and `hone ledger ID`: the ledger and the live ancestry disagree"
)
_ROLL_BACK: Final = "go back to a version that was not trained on it (`hone rollback`), and report it"


async def trained_trajectories_taught_the_live_ancestry(look: CheckReader) -> Violations:
    """The ledger calls exactly those trajectories trained that the live version and its ancestors were trained on."""
    taught = {run async for run in _taught(look)}
    newer = ledger_rows.alias("newer")
    revoked = exists().where(
        newer.c.object_kind == ledger_rows.c.object_kind,
        newer.c.object_id == ledger_rows.c.object_id,
        newer.c.code.in_((TRAINED, UNTRAINED)),
        newer.c.id > ledger_rows.c.id,
    )
    holds = (ledger_rows.c.object_kind == "trajectory", ledger_rows.c.code == TRAINED, ~revoked)
    called = {row[0] async for row in look.find(select(ledger_rows.c.object_id).where(*holds), ledger_rows.c.id)}
    for run in sorted(called - taught):
        what = "the ledger says trained, but neither the live version nor an ancestor was trained on it"
        yield Violation("trajectory", run, what, _TRAINED_REPORT)
    for run in sorted(taught - called):
        yield Violation(
            "trajectory", run, "the live ancestry was trained on it, but the ledger does not say so", _TRAINED_REPORT
        )


async def groups_are_where_their_versions_are(look: CheckReader) -> Violations:
    """A group is `tried` while its version is undecided, and `trained` if the live ancestry was trained on it."""
    used = [row async for row in look.find(_used(step_groups.c.group_id), steps.c.id)]
    line = await _line(look)
    taught = Counter(row.group_id for row in used if row.version_id in line)
    waiting = {row.group_id for row in used if row.state in UNDECIDED}
    states = (GroupState.TRIED, GroupState.TRAINED)
    query = select(groups.c.id, groups.c.state).where(groups.c.state.in_(states))
    found = {row.id: row.state async for row in look.find(query, groups.c.id)}
    for id_, state in found.items():
        if state == GroupState.TRIED and id_ not in waiting:
            yield Violation(
                "group", id_, "it is tried, but no version that was trained on it is undecided", _TRAINED_REPORT
            )
        if state == GroupState.TRAINED and id_ not in taught:
            yield Violation("group", id_, "it is trained, but the live ancestry was not trained on it", _TRAINED_REPORT)
    for id_, times in taught.items():
        if found.get(id_) != GroupState.TRAINED:
            yield Violation("group", id_, "the live ancestry was trained on it, but it is not trained", _TRAINED_REPORT)
        if times > 1:
            yield Violation("group", id_, "the live ancestry was trained on it twice", _TRAINED_REPORT)


async def only_training_trajectories_were_trained_on(look: CheckReader) -> Violations:
    """Only trajectories with purpose `train` were trained on."""
    query = (
        select(step_trajectories.c.trajectory_id, trajectories.c.purpose)
        .join(steps, steps.c.id == step_trajectories.c.step_id)
        .join(trajectories, trajectories.c.id == step_trajectories.c.trajectory_id)
        .where(trajectories.c.purpose != Purpose.TRAIN)
    )
    imitated = (
        select(uses.c.source_id.label("trajectory_id"), trajectories.c.purpose)
        .join(steps, steps.c.id == uses.c.step_id)
        .join(trajectories, trajectories.c.id == uses.c.source_id)
        .where(trajectories.c.purpose != Purpose.TRAIN)
    )
    for one in (query, imitated):
        async for row in look.find(one, steps.c.id):
            yield Violation(
                "trajectory", row.trajectory_id, f"its purpose is {row.purpose}, but it was trained on", _ROLL_BACK
            )


async def drift_sets_were_never_trained_on(look: CheckReader) -> Violations:
    """No trajectory of a drift set was trained on since it was drawn, and the ledger says that it was drawn."""
    t = trajectories.c
    member = t.drift_set_at.is_not(None)
    trained = (
        select(t.id)
        .join(step_trajectories, step_trajectories.c.trajectory_id == t.id)
        .join(steps, steps.c.id == step_trajectories.c.step_id)
        .where(member, steps.c.state == StepState.DONE)
    )
    imitated = select(t.id).join(uses, uses.c.source_id == t.id).join(steps, steps.c.id == uses.c.step_id).where(member)
    for query in (trained, imitated):
        async for row in look.find(query, steps.c.id):
            yield Violation("trajectory", row.id, "it is in a drift set, but it was trained on", _ROLL_BACK)
    drawn = exists().where(
        ledger_rows.c.object_kind == "trajectory", ledger_rows.c.object_id == t.id, ledger_rows.c.code == DRIFT_SET
    )
    async for row in look.find(select(t.id).where(member, ~drawn), t.id):
        yield Violation("trajectory", row.id, "it is in a drift set, and the ledger has no row of it", _REPORT)


async def members_that_taught_nothing_say_why(look: CheckReader) -> Violations:
    """A trajectory whose group was trained on was trained on too, or the ledger has the reason."""
    t = trajectories.c
    own = exists().where(step_trajectories.c.step_id == steps.c.id, step_trajectories.c.trajectory_id == t.id)
    has_reason = exists().where(
        ledger_rows.c.object_kind == "trajectory",
        ledger_rows.c.object_id == t.id,
        ledger_rows.c.code.not_in((TRAINED, UNTRAINED)),
    )
    query = (
        select(t.id, steps.c.number)
        .join(step_groups, step_groups.c.group_id == t.group_id)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .where(steps.c.state == StepState.DONE, t.state == TrajectoryState.COMPLETED, ~own, ~has_reason)
    )
    async for row in look.find(query, steps.c.id):
        what = f"step {row.number} excluded it, and the ledger has no reason"
        yield Violation("trajectory", row.id, what, _TRAINED_REPORT)


async def _line(look: CheckReader) -> set[str]:
    """Return the ids of the live versions and their ancestors, of every alias."""
    live = await look.rows(select(aliases.c.live_version_id).where(aliases.c.live_version_id.is_not(None)))
    return {row.id for (version_id,) in live for row in await look.rows(ancestry_ages(version_id))}


async def _taught(look: CheckReader) -> AsyncIterator[str]:
    line = await _line(look)
    async for row in look.find(_used(step_trajectories.c.trajectory_id), steps.c.id):
        if row.version_id in line:
            yield row.trajectory_id


def _used(what: Any) -> Select[Any]:
    """The query for what finished steps used, each with the step's version and its state."""
    return (
        select(what, steps.c.version_id, versions.c.state)
        .select_from(steps)
        .join(what.table, what.table.c.step_id == steps.c.id)
        .join(versions, versions.c.id == steps.c.version_id)
        .where(steps.c.state == StepState.DONE)
    )
