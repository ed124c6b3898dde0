"""Load the follow-ups of one trajectory, wherever they were recorded.

Owns: the queries: by the parent of a call, by the session and by the address, each bounded and by an index; only a
request's last messages are read. Refuses: which turn a follow-up answers (`recorder.views.follow_ups.rules`), and
writing.

Links to other trajectories count if they are certain, if the same key made both, and if neither is Hone's own (shadow
answers, replays).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from sqlalchemy import ColumnElement, Integer, Select, and_, literal, select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.messages.calls import Message, ParentCall
from recorder.messages.plain_text import tool_calls as requested_tools
from recorder.states import CallKind, CallState, Confidence, Origin
from recorder.store.database import Store
from recorder.store.schema import calls, nodes, trajectories
from recorder.views.follow_ups.events import FollowUp
from recorder.views.follow_ups.rules import LinkedCall, TrajectoryEnd, attach_follow_ups
from recorder.views.trajectories.assembly import restore_message
from recorder.views.trajectories.shapes import TrajectoryView

MOST_TURNS: Final = 64  # newest main calls of a trajectory whose follow-ups are loaded
MOST_LATER: Final = 128  # calls of other trajectories
MOST_NEXT: Final = 4  # next trajectories of a session, or at an address
MOST_TAIL: Final = 16  # messages of a request, from its end

_UNSURE: Final = (Confidence.AMBIGUOUS, Confidence.HINT)
_OWN_WORK: Final = (Origin.SHADOW, Origin.REPLAY)
_COLUMNS: Final = (
    calls.c.id,
    calls.c.trajectory_id,
    calls.c.parent_call_id,
    calls.c.parent_choice,
    calls.c.prompt_node_id,
    calls.c.state,
    calls.c.started_at,
    calls.c.finished_at,
)


async def load_follow_ups(store: Store, view: TrajectoryView) -> list[FollowUp]:
    """Return what came next after the answers of a trajectory: by answer in time order, then by time.

    Only the newest `MOST_TURNS` answers are considered.
    """
    main = [call.id for call in view.calls if call.call_kind is CallKind.MAIN][-MOST_TURNS:]
    if not main:
        return []
    async with store.read() as conn:
        own = (await conn.execute(select(*_COLUMNS).where(calls.c.id.in_(main)))).all()
        others = [*await _linked(conn, view, own), *await _next_conversations(conn, view, own)]
        known = {row.id for row in own}
        rows = list({row.id: row for row in others if row.id not in known}.values())
        tails = await _tails(conn, {row.prompt_node_id for row in (*own, *rows)} - {None})
    linked = {row.id: _call(row, tails) for row in (*own, *rows)}
    return attach_follow_ups([linked[id_] for id_ in main], [linked[row.id] for row in rows], _end(view))


def _call(row: Any, tails: dict[bytes, list[Message]]) -> LinkedCall:
    parent = ParentCall(row.parent_call_id, row.parent_choice or 0) if row.parent_call_id is not None else None
    return LinkedCall(
        id=row.id,
        trajectory_id=row.trajectory_id,
        parent=parent,
        prompt=row.prompt_node_id,
        tail=tails.get(row.prompt_node_id, ()),
        state=CallState(row.state),
        started_at=row.started_at,
        finished_at=row.finished_at,
    )


def _end(view: TrajectoryView) -> TrajectoryEnd:
    choices = dict(view.main_path)
    leaf = ParentCall(*view.main_path[-1]) if view.main_path else None
    last = view.messages[-1] if leaf is not None and view.messages else None
    waits = last is not None and last.get("role") == "assistant" and bool(requested_tools(last))
    return TrajectoryEnd(view.state, view.ended_at, leaf, waits, view.feedback, view.tool_calls, choices)


def _certain(view: TrajectoryView) -> ColumnElement[bool]:
    """The condition on a call of another trajectory that may be linked."""
    of_same_key = select(trajectories.c.made_by).where(trajectories.c.id == view.id).scalar_subquery()
    return and_(
        calls.c.trajectory_id != view.id,
        calls.c.turn_kind == CallKind.MAIN,
        calls.c.attribution_confidence.not_in(_UNSURE),
        trajectories.c.made_by == of_same_key,
        trajectories.c.origin.not_in(_OWN_WORK),
    )


def _calls_of_others(view: TrajectoryView, *conditions: ColumnElement[bool]) -> Select[Any]:
    joined = select(*_COLUMNS).join(trajectories, trajectories.c.id == calls.c.trajectory_id)
    return joined.where(*conditions, _certain(view)).order_by(calls.c.started_at, calls.c.id).limit(MOST_LATER)


async def _linked(conn: AsyncConnection, view: TrajectoryView, own: Sequence[Any]) -> Sequence[Any]:
    """Return calls of other trajectories that continue an own call, or what an own call continues."""
    parents = {row.id for row in own} | {row.parent_call_id for row in own if row.parent_call_id is not None}
    return list(await conn.execute(_calls_of_others(view, calls.c.parent_call_id.in_(sorted(parents)))))


async def _next_conversations(conn: AsyncConnection, view: TrajectoryView, own: Iterable[Any]) -> Sequence[Any]:
    """Return the first calls of the next conversations in the session or at the address: they may repeat an own one."""
    if all(row.parent_call_id is not None for row in own):
        return []
    following = await _following(conn, view)
    if not following:
        return []
    begins = (calls.c.trajectory_id.in_(following), calls.c.parent_call_id.is_(None))
    return list(await conn.execute(_calls_of_others(view, *begins)))


async def _following(conn: AsyncConnection, view: TrajectoryView) -> list[str]:
    """Return the ids of the next trajectories in the same session, and at the same address."""
    t = trajectories.c
    found: list[str] = []
    if view.session is not None:
        later = select(t.id).where(t.project_id == view.project_id, t.session == view.session, t.id > view.id)
        found += (await conn.execute(later.order_by(t.id).limit(MOST_NEXT))).scalars()
    if view.external_id is not None:
        own = (await conn.execute(select(t.address_group, t.sequence).where(t.id == view.id))).first()
        assert own is not None
        here = (t.project_id == view.project_id, t.address_group == own.address_group)
        after = select(t.id).where(*here, t.external_id == view.external_id, t.sequence > own.sequence)
        found += (await conn.execute(after.order_by(t.sequence).limit(MOST_NEXT))).scalars()
    return sorted(set(found))


async def _tails(conn: AsyncConnection, ends: Collection[bytes]) -> dict[bytes, list[Message]]:
    """Return the last messages of each request: those behind its last assistant message, at most `MOST_TAIL`."""
    if not ends:
        return {}
    columns = (nodes.c.id, nodes.c.parent_id, nodes.c.role, nodes.c.message)
    start = (
        select(nodes.c.id.label("end"), *columns, literal(1, Integer).label("place"))
        .where(nodes.c.id.in_(sorted(ends)), nodes.c.role != "assistant")
        .cte("tail", recursive=True)
    )
    above = nodes.alias("above")
    more = (
        select(start.c.end, above.c.id, above.c.parent_id, above.c.role, above.c.message, start.c.place + 1)
        .join(above, above.c.id == start.c.parent_id)
        .where(above.c.role != "assistant", start.c.place < MOST_TAIL)
    )
    tail = start.union_all(more)
    rows = await conn.execute(select(tail.c.end, tail.c.message).order_by(tail.c.end, tail.c.place.desc()))
    found: dict[bytes, list[Message]] = {}
    for end, message in rows:
        found.setdefault(end, []).append(restore_message(message, {}))
    return found
