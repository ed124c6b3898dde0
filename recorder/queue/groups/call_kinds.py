"""Decide the kinds of a trajectory's calls in the store when it ends.

Owns: loading what the rule needs (nothing if all calls have the same tools), and writing the result: kinds, choices
that are no longer trainable, and the main leaf. Refuses: the rule (`recorder.messages.call_tree`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import and_, func, literal, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages import lineage
from recorder.messages.call_tree import CallFacts, CallNode, ThreadTexts, main_leaf, side_call_kinds
from recorder.messages.calls import STATED_KIND, Message, ParentCall
from recorder.messages.plain_text import message_text
from recorder.messages.trainability import Exclusion
from recorder.states import CallKind, CallState, Confidence
from recorder.store.schema import calls, choices, nodes, trajectories

TOOL_FINISHES: Final = ("tool_calls", "function_call")  # finish reasons of choices that call tools


async def settle_kinds(conn: AsyncConnection, trajectory_ids: Collection[str]) -> None:
    """Decide the kinds of calls of ending trajectories. Trajectories whose client stated a kind are not changed."""
    for trajectory_id in await _with_several_heads(conn, trajectory_ids):
        rows = await _calls(conn, trajectory_id)
        if any((row.response_meta or {}).get(STATED_KIND) for row in rows):
            continue
        found = await _kinds(conn, rows)
        if found:
            await _write(conn, trajectory_id, rows, found)


async def _with_several_heads(conn: AsyncConnection, trajectory_ids: Collection[str]) -> list[str]:
    if not trajectory_ids:
        return []
    tools = func.count(func.distinct(func.coalesce(calls.c.tools_blob_id, literal(b"", calls.c.tools_blob_id.type))))
    query = select(calls.c.trajectory_id).where(calls.c.trajectory_id.in_(trajectory_ids))
    several = query.group_by(calls.c.trajectory_id).having(tools > 1).order_by(calls.c.trajectory_id)
    return list((await conn.execute(several)).scalars())


async def _calls(conn: AsyncConnection, trajectory_id: str) -> Sequence[Any]:
    first = and_(choices.c.call_id == calls.c.id, choices.c.index == 0)
    query = select(calls, choices.c.finish_reason, choices.c.node_id).outerjoin(choices, first)
    return (await conn.execute(query.where(calls.c.trajectory_id == trajectory_id))).all()


async def _kinds(conn: AsyncConnection, rows: Sequence[Any]) -> dict[str, CallKind]:
    known = {row.id for row in rows}
    facts = [
        CallFacts(
            row.id,
            row.parent_call_id if row.parent_call_id in known else None,
            row.tools_blob_id,
            row.started_at,
            row.finished_at,
            row.finish_reason in TOOL_FINISHES,
        )
        for row in rows
        if row.superseded_by is None
    ]
    firsts = [row for row in rows if row.superseded_by is None and row.parent_call_id not in known]
    return side_call_kinds(facts, {row.id: await _words(conn, row) for row in firsts})


async def _words(conn: AsyncConnection, row: Any) -> ThreadTexts:
    prompt = await _conversation(conn, row.prompt_node_id)
    answer = (await _conversation(conn, row.node_id))[-1:]
    return ThreadTexts(
        user=lineage.first_user_text(prompt),
        prompt="\n".join(message_text(m) for m in prompt),
        answer=message_text(answer[0]) if answer else "",
    )


async def _conversation(conn: AsyncConnection, node: bytes | None) -> list[Message]:
    """Return the messages up to a node."""
    columns = (nodes.c.id, nodes.c.parent_id, nodes.c.depth, nodes.c.message)
    up = select(*columns).where(nodes.c.id == node).cte("up", recursive=True)
    above = select(*columns).join(up, nodes.c.id == up.c.parent_id)
    whole = up.union_all(above)
    return [row.message for row in await conn.execute(select(whole.c.message).order_by(whole.c.depth))]


async def _write(conn: AsyncConnection, trajectory_id: str, rows: Sequence[Any], kinds: dict[str, CallKind]) -> None:
    of_kind: dict[CallKind, list[str]] = defaultdict(list)
    for call_id, kind in kinds.items():
        of_kind[kind].append(call_id)
    for kind, ids in of_kind.items():
        await conn.execute(update(calls).where(calls.c.id.in_(ids)).values(turn_kind=kind))
    if auxiliary := of_kind[CallKind.AUX]:
        untrained = update(choices).where(choices.c.call_id.in_(auxiliary), choices.c.trainable)
        await conn.execute(untrained.values(trainable=False, untrainable_reason=Exclusion.AUXILIARY))
    leaf = main_leaf(list(_nodes(rows, kinds)))
    own = update(trajectories).where(trajectories.c.id == trajectory_id)
    # a sibling of a first call with n>1 has its own choice as its leaf
    moved = own.where(or_(trajectories.c.leaf_call_id.is_(None), trajectories.c.leaf_call_id.in_([r.id for r in rows])))
    if leaf is not None:
        at_leaf = moved.where(func.coalesce(trajectories.c.leaf_call_id, "") != leaf.call_id)
        await conn.execute(at_leaf.values(leaf_call_id=leaf.call_id, leaf_choice=leaf.choice))


def _nodes(rows: Iterable[Any], kinds: dict[str, CallKind]) -> Iterable[CallNode]:
    for row in rows:
        if row.attribution_confidence != Confidence.HINT:
            yield CallNode(
                id=row.id,
                parent=ParentCall(row.parent_call_id, row.parent_choice or 0)
                if row.parent_call_id is not None
                else None,
                choices=int(row.finish_reason is not None or row.node_id is not None),
                state=CallState(row.state),
                call_kind=kinds.get(row.id, CallKind(row.turn_kind)),
                superseded=row.superseded_by is not None,
                at=row.started_at,
            )
