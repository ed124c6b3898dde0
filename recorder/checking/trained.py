"""What counts as trained: the live line's lessons and nothing else, of runs that may be trained on.

Owns: these invariants (docs/trained.md). Refuses: whether versions form a line
(`recorder.checking.versions`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from typing import Any, Final

from sqlalchemy import Select, exists, select

from recorder.checking.look import Look, Violation, Violations
from recorder.registry.descent import lineage
from recorder.states import UNDECIDED, GroupState, Purpose, StepState, TrajectoryState
from recorder.store.ledger import TRAINED, UNTRAINED
from recorder.store.schema import aliases, groups, step_groups, step_trajectories, steps, trajectories, versions
from recorder.store.schema import ledger as ledger_rows

_REPORT: Final = "please report it with `hone versions` and `hone ledger ID`: the ledger and the line do not agree"
_ROLL_BACK: Final = "go back to a version that was not trained on it (`hone rollback`), and report it"


async def runs_that_are_called_trained_taught_the_live_line(look: Look) -> Violations:
    """What the ledger calls trained is what the live version and its ancestors were trained on, and all of it."""
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
        what = "the ledger calls it trained, and neither the live version nor an ancestor was trained on it"
        yield Violation("trajectory", run, what, _REPORT)
    for run in sorted(taught - called):
        yield Violation("trajectory", run, "the live line was trained on it, and the ledger does not say so", _REPORT)


async def groups_are_where_their_versions_are(look: Look) -> Violations:
    """A group is `tried` while its version waits for a decision, and `trained` where the live line learnt from it."""
    used = [row async for row in look.find(_used(step_groups.c.group_id), steps.c.id)]
    line = await _line(look)
    taught = Counter(row.group_id for row in used if row.version_id in line)
    waiting = {row.group_id for row in used if row.state in UNDECIDED}
    states = (GroupState.TRIED, GroupState.TRAINED)
    query = select(groups.c.id, groups.c.state).where(groups.c.state.in_(states))
    found = {row.id: row.state async for row in look.find(query, groups.c.id)}
    for id_, state in found.items():
        if state == GroupState.TRIED and id_ not in waiting:
            yield Violation("group", id_, "it is tried, and no version that was trained on it is undecided", _REPORT)
        if state == GroupState.TRAINED and id_ not in taught:
            yield Violation("group", id_, "it is trained, and the live line was not trained on it", _REPORT)
    for id_, times in taught.items():
        if found.get(id_) != GroupState.TRAINED:
            yield Violation("group", id_, "the live line was trained on it, and it is not trained", _REPORT)
        if times > 1:
            yield Violation("group", id_, "the live line was trained on it twice", _REPORT)


async def only_training_runs_were_trained_on(look: Look) -> Violations:
    """Nothing whose purpose is not `train` was trained on."""
    query = (
        select(step_trajectories.c.trajectory_id, trajectories.c.purpose)
        .join(steps, steps.c.id == step_trajectories.c.step_id)
        .join(trajectories, trajectories.c.id == step_trajectories.c.trajectory_id)
        .where(trajectories.c.purpose != Purpose.TRAIN)
    )
    async for row in look.find(query, steps.c.id):
        yield Violation(
            "trajectory", row.trajectory_id, f"its purpose is {row.purpose}, and it was trained on", _ROLL_BACK
        )


async def members_that_taught_nothing_say_why(look: Look) -> Violations:
    """A run whose group was trained on was trained on too, or the ledger says why not."""
    t = trajectories.c
    own = exists().where(step_trajectories.c.step_id == steps.c.id, step_trajectories.c.trajectory_id == t.id)
    told = exists().where(
        ledger_rows.c.object_kind == "trajectory",
        ledger_rows.c.object_id == t.id,
        ledger_rows.c.code.not_in((TRAINED, UNTRAINED)),
    )
    query = (
        select(t.id, steps.c.number)
        .join(step_groups, step_groups.c.group_id == t.group_id)
        .join(steps, steps.c.id == step_groups.c.step_id)
        .where(steps.c.state == StepState.DONE, t.state == TrajectoryState.COMPLETED, ~own, ~told)
    )
    async for row in look.find(query, steps.c.id):
        what = f"step {row.number} left it out, and the ledger does not say why"
        yield Violation("trajectory", row.id, what, _REPORT)


async def _line(look: Look) -> set[str]:
    """Ids of the live versions and their ancestors, of every alias."""
    live = await look.rows(select(aliases.c.live_version_id).where(aliases.c.live_version_id.is_not(None)))
    return {row.id for (version_id,) in live for row in await look.rows(lineage(version_id))}


async def _taught(look: Look) -> AsyncIterator[str]:
    line = await _line(look)
    async for row in look.find(_used(step_trajectories.c.trajectory_id), steps.c.id):
        if row.version_id in line:
            yield row.trajectory_id


def _used(what: Any) -> Select[Any]:
    """What the steps that are done used, each with the version that came of it and its state."""
    return (
        select(what, steps.c.version_id, versions.c.state)
        .select_from(steps)
        .join(what.table, what.table.c.step_id == steps.c.id)
        .join(versions, versions.c.id == steps.c.version_id)
        .where(steps.c.state == StepState.DONE)
    )
