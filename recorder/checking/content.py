"""Messages and blobs: what is referred to is there, and what is there is referred to.

Owns: these invariants. Refuses: removing what nobody needs: a deletion does that in its own
transaction (`recorder.upkeep.collect`), so whatever is left over was left by a fault.
"""

from __future__ import annotations

from typing import Any, Final

from sqlalchemy import Column, Table, exists, select

from recorder.checking.look import Look, Violation, Violations
from recorder.store.schema import blobs, calls, choices, node_blobs, nodes, said, trajectories

_DAMAGED: Final = "restore the store from a backup, or delete the run with `hone delete`"
_LEFT_OVER: Final = "nothing reads it and it costs its bytes: please report how it came about"
_BLOBS: Final = (calls.c.tools_blob_id, calls.c.format_blob_id, calls.c.request_blob_id)
_NEEDS_BLOB: Final = (*_BLOBS, node_blobs.c.blob_id)

_under = nodes.alias("under")


async def messages_that_are_referred_to_exist(look: Look) -> Violations:
    """Every message that a call, a choice or a later message refers to is there."""
    for column, kind, key in (
        (calls.c.prompt_node_id, "call", calls.c.id),
        (choices.c.node_id, "call", calls.c.id),
        (nodes.c.parent_id, "node", nodes.c.id),
    ):
        async for id_ in _dangling(look, column, nodes, key):
            yield Violation(kind, id_, "a message of its conversation is not there", _DAMAGED)


async def blobs_that_are_referred_to_exist(look: Look) -> Violations:
    """Every blob that a call or a message refers to is there."""
    for column in _BLOBS:
        async for id_ in _dangling(look, column, blobs, calls.c.id):
            yield Violation("call", id_, f"its {column.name.removesuffix('_blob_id')} are not there", _DAMAGED)
    async for id_ in _dangling(look, node_blobs.c.blob_id, blobs, nodes.c.id):
        yield Violation("node", id_, "media that it shows are not there", _DAMAGED)


async def _dangling(look: Look, column: Column[Any], to: Table, key: Column[Any]) -> Any:
    """The keys of the rows whose `column` names a row of `to` that is not there."""
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


async def what_is_searched_was_said_in_a_call(look: Look) -> Violations:
    """Every row of the index over what was said is of a call that is there, and of its run, or of a sibling."""
    there = exists().where(calls.c.id == said.c.call_id, calls.c.trajectory_id == said.c.trajectory_id)
    run = trajectories.c
    shares = exists().where(run.id == said.c.call_id, run.id == said.c.trajectory_id, run.leaf_call_id.is_not(None))
    async for row in look.find(select(said.c.call_id).where(~there, ~shares), said.c.id):
        why = "it is found by a search, and its call is gone or another run's"
        yield Violation("call", row[0], why, "what a deletion should have taken: please report how it came about")


async def every_message_is_needed(look: Look) -> Violations:
    """Every message is part of a call's conversation."""
    ends = (
        exists().where(calls.c.prompt_node_id == nodes.c.id),
        exists().where(choices.c.node_id == nodes.c.id),
        exists().where(_under.c.parent_id == nodes.c.id),
    )
    query = select(nodes.c.id).where(*(~end for end in ends))
    async for row in look.find(query, nodes.c.id):
        yield Violation("node", _shown(row.id), "no call's conversation has this message", _LEFT_OVER)


async def every_blob_is_needed(look: Look) -> Violations:
    """Every blob belongs to a call or to a message."""
    query = select(blobs.c.id, blobs.c.kind).where(*(~exists().where(column == blobs.c.id) for column in _NEEDS_BLOB))
    async for row in look.find(query, blobs.c.id):
        yield Violation("blob", _shown(row.id), f"nothing refers to this blob ({row.kind})", _LEFT_OVER)


def _shown(id_: bytes | str) -> str:
    return id_.hex() if isinstance(id_, bytes) else id_
