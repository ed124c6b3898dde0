"""Delete a trajectory: its calls and their content, and nothing that belongs to another trajectory.

Owns: what belongs to a trajectory and what other trajectories keep of it. Refuses: collecting unused nodes and blobs
(`recorder.maintenance.dependents`), and deciding whether to delete.

One transaction deletes one trajectory. Work that could make it long runs before, in short transactions of its own
(`recorder.maintenance.dependents`), so a deletion may be killed at any time and started again.

Processes cache what they wrote and do not write it again: nodes, blobs, prompts that differences refer to. If a
deletion removed such a row, their next call would refer to a missing one. So each deletion increments
`projects.deletions` in its transaction. Each writing transaction of a proxy compares that count, under the store's
write lock, with the count at which its calls were prepared. If they differ, it writes nothing, clears its cache and
prepares the calls again. Nothing has to be sent to other processes.

If a choice of an n>1 call became a trajectory of its own, both share the call: the call passes to the remaining
trajectory, and the deleted choice is emptied. Shadow answers (`recorder.queue.groups.same_request`) are deleted with
their trajectory. Scores stay as numbers; the judge's texts about the group are removed, since they may quote it.
Versions that were trained on the trajectory stay, because the store cannot remove it from weights. Its calls are taken
out of the totals by time, unless retention deletes it: then they stay as numbers.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, delete, exists, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.curation.datasets import leave_datasets
from recorder.curation.review_requests import forget_request
from recorder.errors import Conflict, NotFound
from recorder.maintenance.dependents import chunk_keys, collect_blobs, collect_nodes, detach_dependents, has_dependents
from recorder.messages.calls import CHOICE_EXTRAS, choice_extras
from recorder.messages.trainability import Exclusion
from recorder.queue.groups.closure import write_exclusions
from recorder.queue.groups.lookup import baseline_column
from recorder.queue.groups.readiness import GroupVerdict, ReadinessMember, closing_verdict, is_one_enough
from recorder.queue.groups.same_request import shadow_group_id, shadow_member_ids
from recorder.search.documents import queue_calls
from recorder.search.indexer import IndexMerge, forget_calls
from recorder.states import CallState, GroupState, Origin, Purpose, TrajectoryState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import (
    attempts,
    calls,
    choices,
    counted_calls,
    feedback,
    groups,
    issued,
    judge_replies,
    keys,
    projects,
    prompts,
    score_parts,
    scores,
    second_scores,
    tool_calls,
    tool_requests,
    trajectories,
    verdicts,
)
from recorder.store.schema import ledger as ledger_rows
from recorder.store.transitions import try_move_state
from recorder.store.wal_checkpoint import empty_log
from recorder.totals.call_facts import load_call_facts
from recorder.totals.time_rows import take_out_calls
from recorder.totals.trajectory_rows import add_to_trajectories, forget_trajectory
from recorder.views.comparison.new_answers import repeat_trajectory_ids
from recorder.views.trajectories.transcripts import find_trajectory

DELETED: Final = "deleted"  # the ledger's code
RETENTION: Final = "retention"  # why a sweep deletes
HELD: Final = (GroupState.JUDGING, GroupState.TRAINING)  # a worker holds the group
_WAITING: Final = (GroupState.READY, GroupState.UNSCORED, GroupState.SCORED)


@dataclass(frozen=True, slots=True)
class DeletionResult:
    """What a deletion removed. Nodes and blobs that others need stay and are not counted."""

    trajectory_id: str
    calls: int
    nodes: int
    blobs: int


@dataclass(slots=True)
class _TrajectoryParts:
    """The rows that are deleted with a trajectory."""

    row: Any
    gone: list[str] = field(default_factory=list)  # calls
    shared: dict[str, dict[int, str]] = field(default_factory=dict)  # call → choice → the trajectory that keeps it
    ends: set[bytes] = field(default_factory=set)  # nodes
    blobs: set[bytes] = field(default_factory=set)


class _TrajectoryInUse(Exception):
    """A new call stores its prompt as a difference to a call that would be deleted, or retries one."""


async def delete_trajectory(project: Project, trajectory_id: str, why: str = "asked") -> DeletionResult:
    """Delete one trajectory by its internal id. Raises NotFound, and Conflict while it is open or a worker holds it.

    `why` goes into the ledger. The bytes are overwritten in the database file at once, and in SQLite's WAL by
    `erase_deleted_words`.
    """
    while True:
        async with project.store.read() as conn:
            row = await _row(conn, project.id, trajectory_id)
        # shadow answers, and calls that asked one of its calls again, hold its conversation up to one of its calls
        shadows = await shadow_member_ids(project.store, trajectory_id)
        for shadow in [*shadows, *await repeat_trajectory_ids(project.store, project.id, trajectory_id)]:
            with contextlib.suppress(NotFound):  # another deletion was faster
                await delete_trajectory(project, shadow, why)
        await detach_dependents(project.store, row)
        with contextlib.suppress(_TrajectoryInUse):  # a call came meanwhile: try once more
            async with project.store.write() as conn:
                counted = update(projects).where(projects.c.id == project.id)
                await conn.execute(counted.values(deletions=projects.c.deletions + 1))
                own = await _own(conn, project.id, trajectory_id)
                if await has_dependents(conn, own.row) or await _is_shadowed(conn, own):
                    raise _TrajectoryInUse
                return await _delete(conn, own, why)


async def _is_shadowed(conn: AsyncConnection, own: _TrajectoryParts) -> bool:
    for page in chunk_keys([shadow_group_id(call_id) for call_id in own.gone]):
        if await _first(conn, select(trajectories.c.id).where(trajectories.c.group_id.in_(page))):
            return True
    return False


async def erase_deleted_words(store: Store, merge_s: float = math.inf) -> bool:
    """Remove deleted words from SQLite's search index, and from its WAL, which holds the old pages.

    Returns False if readers kept the WAL open, or if the index needs longer than `merge_s`; call again.
    """
    merged = await IndexMerge(store).go_on(merge_s)
    return await empty_log(store) and merged


async def _row(conn: AsyncConnection, project_id: str, trajectory_id: str) -> Any:
    query = select(trajectories).where(trajectories.c.id == trajectory_id, trajectories.c.project_id == project_id)
    row = (await conn.execute(query)).first()
    if row is None:
        raise NotFound(f"no trajectory {trajectory_id!r} in project {project_id!r}")
    return row


async def _own(conn: AsyncConnection, project_id: str, trajectory_id: str) -> _TrajectoryParts:
    row = await _row(conn, project_id, trajectory_id)
    await _require_free(conn, row)
    own = _TrajectoryParts(row)
    of_it = await conn.execute(select(calls.c.id).where(calls.c.trajectory_id == trajectory_id))
    mine = set(of_it.scalars())
    # a fork for a shadow group does not own the call at which it ends
    leaf = {row.leaf_call_id} - {None} if row.origin != Origin.SHADOW else set()
    own.shared = {call_id: {} for call_id in leaf - mine} | await _kept_choices(conn, row, mine | leaf)
    own.gone = sorted(mine - own.shared.keys())
    return own


async def _require_free(conn: AsyncConnection, row: Any) -> None:
    """Raise Conflict if the trajectory may still grow, or a worker uses it."""
    if row.group_id is not None:
        locked = select(groups.c.state).where(groups.c.id == row.group_id).with_for_update()
        state = (await conn.execute(locked)).scalar_one()
        if state in HELD:
            raise Conflict(f"the group of trajectory {row.id} is {state}: a worker holds it; try again later")
    if row.state == TrajectoryState.OPEN:
        raise Conflict(f"trajectory {row.id} is still open, and its next call would record it again: end it first")
    if await _first(conn, select(calls.c.id).where(calls.c.trajectory_id == row.id, calls.c.state == CallState.OPEN)):
        raise Conflict(f"a call of trajectory {row.id} is still being answered: try again when it has ended")


async def _kept_choices(conn: AsyncConnection, row: Any, of_calls: Collection[str]) -> dict[str, dict[int, str]]:
    """Return the calls that siblings share with this trajectory: call → choice → sibling. All are in its group."""
    if row.group_id is None:
        return {}
    query = select(trajectories.c.id, trajectories.c.leaf_call_id, trajectories.c.leaf_choice).where(
        trajectories.c.group_id == row.group_id, trajectories.c.id != row.id, trajectories.c.leaf_call_id.is_not(None)
    )
    kept: dict[str, dict[int, str]] = {}
    for other in await conn.execute(query.order_by(trajectories.c.id)):
        if other.leaf_call_id in of_calls:
            kept.setdefault(other.leaf_call_id, {})[other.leaf_choice or 0] = other.id
    return kept


async def _delete(conn: AsyncConnection, own: _TrajectoryParts, why: str) -> DeletionResult:
    row = own.row
    for page in chunk_keys(own.gone):
        await _forget_totals(conn, row.project_id, page, by_time=why != RETENTION)
        await _delete_calls(conn, own, page)
    await forget_trajectory(conn, row.id)
    await leave_datasets(conn, row.id)
    await forget_request(conn, row.id)
    for call_id, kept in own.shared.items():
        await _pass_on(conn, own, call_id, kept)
    await forget_calls(conn, row.project_id, [row.id])
    await _take_scores(conn, row.id)
    await _delete_tool_calls(conn, own)
    await conn.execute(delete(feedback).where(feedback.c.trajectory_id == row.id))
    await _take_address(conn, row)
    await conn.execute(delete(trajectories).where(trajectories.c.id == row.id))
    if row.group_id is not None:
        await _settle_group(conn, row.group_id)
    collected, shown = await collect_nodes(conn, own.ends)
    blobs = await collect_blobs(conn, own.blobs | shown)
    await _take_details(conn, row)
    detail = {"why": why, "calls": len(own.gone)}
    await ledger.write_rows(conn, [LedgerRow(row.project_id, "trajectory", row.id, DELETED, detail)])
    return DeletionResult(row.id, len(own.gone), collected, blobs)


async def _forget_totals(conn: AsyncConnection, project_id: str, page: Sequence[str], *, by_time: bool) -> None:
    """Delete the marks of counted calls; `by_time`: take those calls out of the totals by time."""
    c = counted_calls.c
    if by_time:
        counted = select(c.call_id).where(c.call_id.in_(page), c.counted_at.is_not(None))
        ids = list((await conn.execute(counted)).scalars())
        await take_out_calls(conn, project_id, await load_call_facts(conn, ids))
    await conn.execute(delete(counted_calls).where(c.call_id.in_(page)))


async def _delete_calls(conn: AsyncConnection, own: _TrajectoryParts, page: Sequence[str]) -> None:
    columns = (calls.c.prompt_node_id, calls.c.tools_blob_id, calls.c.format_blob_id, calls.c.request_blob_id)
    for node, *blobs in await conn.execute(select(*columns).where(calls.c.id.in_(page))):
        own.ends |= {node} - {None}
        own.blobs |= set(blobs) - {None}
    sampled = (await conn.execute(select(choices.c.node_id).where(choices.c.call_id.in_(page)))).scalars()
    own.ends |= set(sampled) - {None}
    await forget_calls(conn, own.row.project_id, page)
    await conn.execute(delete(issued).where(issued.c.call_id.in_(page)))
    await conn.execute(delete(choices).where(choices.c.call_id.in_(page)))
    await conn.execute(delete(calls).where(calls.c.id.in_(page)))


async def _delete_tool_calls(conn: AsyncConnection, own: _TrajectoryParts) -> None:
    """Delete its tool calls and its models' tool requests.

    Another trajectory's tool call that answered one of these requests stays.
    """
    await conn.execute(delete(tool_calls).where(tool_calls.c.trajectory_id == own.row.id))
    await conn.execute(delete(tool_requests).where(tool_requests.c.trajectory_id == own.row.id))
    for page in chunk_keys(own.gone):
        await conn.execute(delete(tool_requests).where(tool_requests.c.call_id.in_(page)))
        unasked = {"call_id": None, "choice": None, "position": None, "tool_call_id": None}
        await conn.execute(update(tool_calls).where(tool_calls.c.call_id.in_(page)).values(**unasked))


async def _pass_on(conn: AsyncConnection, own: _TrajectoryParts, call_id: str, kept: dict[int, str]) -> None:
    """Empty the choices of a shared call that belong to no trajectory now, and pass the call to the first sibling."""
    call = (await conn.execute(select(calls).where(calls.c.id == call_id))).one()
    if call.trajectory_id != own.row.id:
        kept = {**await _home_choice(conn, call), **kept}
    lost = (choices.c.call_id == call_id, choices.c.index.not_in(kept))
    own.ends |= set((await conn.execute(select(choices.c.node_id).where(*lost))).scalars()) - {None}
    empty = {"node_id": None, "token_ids": None, "logprobs": None, "hashes": None, "finish_reason": None}
    await conn.execute(
        update(choices).where(*lost).values(**empty, trainable=False, untrainable_reason=Exclusion.DELETED)
    )
    await conn.execute(delete(issued).where(issued.c.call_id == call_id, issued.c.choice.not_in(kept)))
    of_lost = (tool_requests.c.call_id == call_id, tool_requests.c.choice.not_in(kept))
    await conn.execute(delete(tool_requests).where(*of_lost))
    meta = {**(call.response_meta or {})}
    if CHOICE_EXTRAS in meta:
        meta[CHOICE_EXTRAS] = {str(index): extras for index in kept if (extras := choice_extras(meta, index))}
    values: dict[str, Any] = {"response_meta": meta or None}
    if call.trajectory_id == own.row.id:
        values["trajectory_id"] = next(iter(kept.values()))
        for choice, heir in kept.items():
            of_choice = (issued.c.call_id == call_id, issued.c.choice == choice)
            await conn.execute(update(issued).where(*of_choice).values(trajectory_id=heir))
            asked = (tool_requests.c.call_id == call_id, tool_requests.c.choice == choice)
            await conn.execute(update(tool_requests).where(*asked).values(trajectory_id=heir))
    await conn.execute(update(calls).where(calls.c.id == call_id).values(**values))
    counted = select(counted_calls.c.counted_at).where(counted_calls.c.call_id == call_id)
    if call.trajectory_id == own.row.id and (await conn.execute(counted)).scalar_one_or_none() is not None:
        await add_to_trajectories(conn, own.row.project_id, await load_call_facts(conn, [call_id]))
    await forget_calls(conn, own.row.project_id, [call_id])
    await queue_calls(conn, own.row.project_id, [call_id])


async def _home_choice(conn: AsyncConnection, call: Any) -> dict[int, str]:
    """Return the choice of a shared call that its own trajectory uses."""
    home = select(trajectories.c.leaf_call_id, trajectories.c.leaf_choice).where(
        trajectories.c.id == call.trajectory_id
    )
    leaf = (await conn.execute(home)).one()
    return {leaf.leaf_choice or 0: call.trajectory_id} if leaf.leaf_call_id == call.id else {}


async def _take_scores(conn: AsyncConnection, trajectory_id: str) -> None:
    """Delete its reward parts, and the prompts and replies of its scores; other trajectories keep their rewards.

    Deleted replies are no longer reused for other requests.
    """
    of_it = select(score_parts.c.score_id).where(score_parts.c.trajectory_id == trajectory_id)
    judged = list((await conn.execute(of_it.distinct())).scalars())
    for page in chunk_keys(judged):
        await conn.execute(update(scores).where(scores.c.id.in_(page)).values(reply=None, prompt_hash=None))
        await conn.execute(delete(prompts).where(prompts.c.score_id.in_(page)))
        replies = update(judge_replies).where(judge_replies.c.score_id.in_(page))
        await conn.execute(replies.values(reply=None, failed=None, verdicts=None))
        others = update(score_parts).where(score_parts.c.score_id.in_(page))
        await conn.execute(others.values(explanation=None))
    await conn.execute(delete(score_parts).where(score_parts.c.trajectory_id == trajectory_id))
    await conn.execute(delete(verdicts).where(verdicts.c.trajectory_id == trajectory_id))
    group = select(trajectories.c.group_id).where(trajectories.c.id == trajectory_id).scalar_subquery()
    beside = update(second_scores).where(second_scores.c.group_id == group)
    await conn.execute(beside.values(parts=None))
    await conn.execute(beside.where(second_scores.c.failed.is_not(None)).values(failed=DELETED))


async def _take_address(conn: AsyncConnection, row: Any) -> None:
    """Delete what exists only for its address: a key, and the result of the agent's attempt."""
    if row.external_id is None:
        return
    here = (
        trajectories.c.project_id == row.project_id,
        trajectories.c.address_group == row.address_group,
        trajectories.c.external_id == row.external_id,
    )
    if not await _first(conn, select(trajectories.c.id).where(*here, trajectories.c.id != row.id)):
        named = f"{row.address_group}/{row.external_id}" if row.address_group else row.external_id
        await conn.execute(delete(keys).where(keys.c.project_id == row.project_id, keys.c.trajectory_id == named))
    campaign = select(groups.c.campaign_id).where(groups.c.id == row.group_id).scalar_subquery()
    of_attempt = and_(
        attempts.c.campaign_id == campaign,
        attempts.c.group_external_id == row.address_group,
        attempts.c.trajectory_external_id == row.external_id,
    )
    await conn.execute(update(attempts).where(of_attempt).values(answer=None, error=None))


async def _settle_group(conn: AsyncConnection, group_id: str) -> None:
    """Exclude a group that waits for a judge or a trainer and now has too few members for either."""
    query = select(groups.c.state, groups.c.campaign_id, baseline_column()).where(groups.c.id == group_id)
    group = (await conn.execute(query)).one()
    if group.state not in _WAITING:
        return
    t = trajectories.c
    rows = await conn.execute(select(t.state, t.purpose, t.selection).where(t.group_id == group_id))
    members = [ReadinessMember(TrajectoryState(r.state), Purpose(r.purpose), r.selection) for r in rows]
    due = closing_verdict(members, one=is_one_enough(group.baseline, group.campaign_id))
    if due.verdict is GroupVerdict.MEASURED:
        await try_move_state(conn, groups, group_id, GroupState.MEASURED, reason=due.code)
    elif due.verdict is GroupVerdict.LEFT_OUT and due.code is not None:
        await try_move_state(conn, groups, group_id, GroupState.LEFT_OUT, reason=due.code)
        await write_exclusions(conn, [group_id], due.code)


async def _take_details(conn: AsyncConnection, row: Any) -> None:
    """Delete the details of its ledger rows, which may quote it; the codes stay."""
    of_it = and_(ledger_rows.c.object_kind == "trajectory", ledger_rows.c.object_id == row.id)
    of_group = and_(ledger_rows.c.object_kind == "group", ledger_rows.c.object_id == row.group_id)
    await conn.execute(update(ledger_rows).where(or_(of_it, of_group)).values(detail=None))


async def _first(conn: AsyncConnection, query: Any) -> Any:
    return (await conn.execute(query.limit(1))).first()


async def trajectory_ids(project: Project, name: str, group: str | None = None) -> list[str]:
    """Return the internal ids of `name`: itself if it is one, else all trajectories at that address, newest first.

    A trajectory with continuations is several trajectories, each with the conversation so far. `group` is the group
    part of the address, if trajectories of several groups share an id. Raises NotFound.
    """
    newest = await find_trajectory(project, name, group)
    if newest == name:
        return [name]
    t = trajectories.c
    async with project.store.read() as conn:
        row = await _row(conn, project.id, newest)
        here = (t.project_id == project.id, t.address_group == row.address_group, t.external_id == row.external_id)
        return list((await conn.execute(select(t.id).where(*here).order_by(t.sequence.desc()))).scalars())


def is_deletable(before: ColumnElement[float]) -> list[ColumnElement[bool]]:
    """Conditions for trajectories that retention may delete: ended before a time, in no open or held group."""
    answering = exists().where(calls.c.trajectory_id == trajectories.c.id, calls.c.state == CallState.OPEN)
    busy = exists().where(groups.c.id == trajectories.c.group_id, groups.c.state.in_((GroupState.OPEN, *HELD)))
    ended = and_(trajectories.c.state != TrajectoryState.OPEN, trajectories.c.ended_at <= before)
    return [ended, ~busy, ~answering]
