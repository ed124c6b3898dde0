"""Invariants of calls, choices, messages, blobs and stored prompts.

Owns: no call stays open after its process has ended; each call is in its trajectory's tree; trainable choices are
complete and finite; every reference has its row and every row is referenced; prompts resolve, and their block hashes
match their token ids. Refuses: removing unused rows. A deletion removes them in its own transaction
(`recorder.maintenance.dependents`), so an unused row is a fault.

Calls are read in the order of their ids, which is the order of their times. So a prompt's parent is usually cached.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Mapping
from typing import Any, Final

from sqlalchemy import Column, Row, Table, and_, exists, func, literal, or_, select

from recorder.base.lru import Lru
from recorder.errors import CorruptRecord
from recorder.maintenance.integrity.reader import CheckReader, Violation, Violations
from recorder.messages import tokens
from recorder.queue.leases import PROXY
from recorder.states import TERMINAL_TRAJECTORY, CallState, TrajectoryState
from recorder.store.schema import blobs, calls, choices, leases, node_blobs, nodes, projects, said, trajectories
from recorder.store.sql import now

_SWEEP: Final = "start `hone serve` or `hone up` on this folder: its sweep ends the calls of dead processes"
_NEVER_TRAIN: Final = "do not train on it: delete the trajectory with `hone delete`, and report how this happened"
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
    """Every trainable choice has as many finite logprobs as token ids, and every other choice has a reason."""
    query = select(choices, choices.c["index"].label("choice"), calls.c.state).join(
        calls, calls.c.id == choices.c.call_id
    )
    async for row in look.find(query, calls.c.id):
        what = _wrong_with(row)
        if what is not None:
            yield Violation("choice", f"{row.call_id}/{row.choice}", what, _NEVER_TRAIN)


def _wrong_with(row: Row[Any]) -> str | None:
    if not row.trainable:
        return None if row.untrainable_reason else "it is not trainable, but has no reason"
    if row.state != CallState.COMPLETE:
        return f"it is trainable, but its call is {row.state}"
    if not row.token_ids or row.logprobs is None:
        return "it is trainable, but has no token ids or no logprobs"
    try:
        ids, logprobs = tokens.unpack_ids(row.token_ids), tokens.unpack_logprobs(row.logprobs)
    except CorruptRecord as e:
        return f"it is trainable, but damaged: {e}"
    if len(ids) != len(logprobs):
        return f"it is trainable, but has {len(ids)} token ids and {len(logprobs)} logprobs"
    return None if all(map(math.isfinite, logprobs)) else "it is trainable, but has a logprob that is not finite"


_LEFT_OVER: Final = "nothing uses it, but it takes space: please report how this happened"
_BLOBS: Final = (calls.c.tools_blob_id, calls.c.format_blob_id, calls.c.request_blob_id)
_NEEDS_BLOB: Final = (*_BLOBS, node_blobs.c.blob_id)

_under = nodes.alias("under")


async def messages_that_are_referred_to_exist(look: CheckReader) -> Violations:
    """Every message that a call, a choice or a later message refers to exists."""
    for column, kind, key in (
        (calls.c.prompt_node_id, "call", calls.c.id),
        (choices.c.node_id, "call", calls.c.id),
        (nodes.c.parent_id, "node", nodes.c.id),
    ):
        async for id_ in _dangling(look, column, nodes, key):
            yield Violation(kind, id_, "a message of its conversation is missing", _DAMAGED)


async def blobs_that_are_referred_to_exist(look: CheckReader) -> Violations:
    """Every blob that a call or a message refers to exists."""
    for column in _BLOBS:
        async for id_ in _dangling(look, column, blobs, calls.c.id):
            yield Violation("call", id_, f"its {column.name.removesuffix('_blob_id')} are missing", _DAMAGED)
    async for id_ in _dangling(look, node_blobs.c.blob_id, blobs, nodes.c.id):
        yield Violation("node", id_, "media of its messages are missing", _DAMAGED)


async def _dangling(look: CheckReader, column: Column[Any], to: Table, key: Column[Any]) -> Any:
    """Yield the keys of the rows whose `column` refers to a missing row of `to`."""
    missing = ~exists().where(_other(to).c.id == column).correlate(column.table)
    query = select(key).where(column.is_not(None), missing)
    if column.table is choices:
        query = query.join(choices, choices.c.call_id == calls.c.id)
    if column.table is node_blobs:
        query = query.join(node_blobs, node_blobs.c.node_id == nodes.c.id)
    async for row in look.find(query, key):
        yield _shown(row[0])


def _other(table: Table) -> Any:
    return table.alias("other")


async def what_is_searched_was_said_in_a_call(look: CheckReader) -> Violations:
    """Every row of the search index belongs to an existing call of its trajectory, or to a sibling."""
    there = exists().where(calls.c.id == said.c.call_id, calls.c.trajectory_id == said.c.trajectory_id)
    run = trajectories.c
    shares = exists().where(run.id == said.c.call_id, run.id == said.c.trajectory_id, run.leaf_call_id.is_not(None))
    async for row in look.find(select(said.c.call_id).where(~there, ~shares), said.c.id):
        why = "it is in the search index, but its call does not exist or belongs to another trajectory"
        yield Violation("call", row[0], why, "a deletion should have removed it: please report how this happened")


async def every_message_is_needed(look: CheckReader) -> Violations:
    """Every message is part of a call's conversation."""
    ends = (
        exists().where(calls.c.prompt_node_id == nodes.c.id),
        exists().where(choices.c.node_id == nodes.c.id),
        exists().where(_under.c.parent_id == nodes.c.id),
    )
    query = select(nodes.c.id).where(*(~end for end in ends))
    async for row in look.find(query, nodes.c.id):
        yield Violation("node", _shown(row.id), "no call's conversation contains this message", _LEFT_OVER)


async def every_blob_is_needed(look: CheckReader) -> Violations:
    """Every blob belongs to a call or to a message."""
    query = select(blobs.c.id, blobs.c.kind).where(*(~exists().where(column == blobs.c.id) for column in _NEEDS_BLOB))
    async for row in look.find(query, blobs.c.id):
        yield Violation("blob", _shown(row.id), f"nothing refers to this blob ({row.kind})", _LEFT_OVER)


def _shown(id_: bytes | str) -> str:
    return id_.hex() if isinstance(id_, bytes) else id_


_KEPT: Final = 256  # prompts: 32 MiB if each has 32k ids
_DAMAGED_PROMPT: Final = (
    "restore the store from a backup, or delete the trajectory with `hone delete`: its tokens are not exact"
)
_COLUMNS: Final = (
    calls.c.id,
    calls.c.project_id,
    calls.c.parent_call_id,
    calls.c.parent_choice,
    calls.c.prompt_shared,
    calls.c.prompt_delta,
    calls.c.prompt_len,
    calls.c.prompt_hashes,
)


async def prompts_resolve_and_their_hashes_agree(look: CheckReader) -> Violations:
    """Every stored prompt can be assembled, and its hashes match its token ids."""
    prompts = _Prompts(look, {row.id: row.node_key for row in await look.rows(select(projects))})
    async for page in look.pages(select(*_COLUMNS).where(calls.c.prompt_len.is_not(None)), calls.c.id):
        sampled = await prompts.choices_of([row.id for row in page])
        for row in page:
            try:
                await prompts.compare(row, sampled.get(row.id, {}))
            except CorruptRecord as e:
                yield Violation("call", row.id, str(e), _DAMAGED_PROMPT)


class _Prompts:
    """Assembles prompts, and caches the newest."""

    def __init__(self, look: CheckReader, keys: dict[str, bytes]) -> None:
        self._look = look
        self._keys = keys
        self._known: Lru[str, array[int]] = Lru(_KEPT)

    async def choices_of(self, call_ids: list[str]) -> dict[str, dict[int, Row[Any]]]:
        query = select(choices.c.call_id, choices.c["index"].label("choice"), choices.c.token_ids, choices.c.hashes)
        found: dict[str, dict[int, Row[Any]]] = {}
        for row in await self._look.rows(query.where(choices.c.call_id.in_(call_ids))):
            found.setdefault(row.call_id, {})[row.choice] = row
        return found

    async def compare(self, row: Row[Any], sampled: dict[int, Row[Any]]) -> None:
        """Raise CorruptRecord if the prompt cannot be assembled, or a hash does not match."""
        prompt = tokens.pack_ids(await self._prompt(row))
        seed = tokens.chain_seed(self._keys[row.project_id])
        hashes = tokens.block_hashes(prompt, seed)
        if hashes[(row.prompt_shared or 0) // tokens.BLOCK * tokens.HASH_BYTES :] != (row.prompt_hashes or b""):
            raise CorruptRecord("the hashes of its prompt do not match its token ids")
        for choice in sampled.values():
            if choice.token_ids and tokens.extend_hashes(prompt, hashes, choice.token_ids, seed) != choice.hashes:
                raise CorruptRecord(f"the hashes of its choice {choice.choice} do not match its token ids")

    async def _prompt(self, row: Row[Any]) -> array[int]:
        chain = [row]
        while chain[-1].prompt_shared and self._known.get(chain[-1].parent_call_id) is None:
            chain.append(await self._parent(chain[-1]))
            if chain[-1].id in {one.id for one in chain[:-1]}:
                raise CorruptRecord("its prompt is stored as a difference to itself")
        for one in reversed(chain):
            self._known.put(one.id, await self._joined(one))
        return self._known.get(row.id) or array("i")

    async def _joined(self, row: Row[Any]) -> array[int]:
        above = None
        if row.prompt_shared:
            sampled = (await self.choices_of([row.parent_call_id])).get(row.parent_call_id, {})
            choice = sampled.get(row.parent_choice or 0)
            above = (self._known.get(row.parent_call_id) or array("i"))[:]
            above.extend(tokens.unpack_ids(choice.token_ids if choice is not None and choice.token_ids else b""))
        return tokens.join_ids(above, row.prompt_shared or 0, row.prompt_delta or b"", row.prompt_len or 0)

    async def _parent(self, row: Row[Any]) -> Row[Any]:
        found = await self._look.rows(select(*_COLUMNS).where(calls.c.id == row.parent_call_id))
        if not found:
            raise CorruptRecord(f"it shares token ids with call {row.parent_call_id}, which does not exist")
        return found[0]
