"""Calls and conversations by the response id that Hone issued with an answer.

Owns: the queries; an answer that belongs to another key counts as unknown. Refuses: wire formats, and which call
continues which (`recorder.capture.resolver`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

from sqlalchemy import and_, delete, literal, select

from recorder.messages import content_hashes
from recorder.messages.calls import ANYBODY, CHOICE_EXTRAS, KeyAccess, Message, choice_extras
from recorder.store.database import Project, Store
from recorder.store.schema import calls, choices, issued, nodes, trajectories
from recorder.views.trajectories.shapes import CallView, ChoiceView
from recorder.views.trajectories.transcripts import PAGE, load_call

_KIND: Final = "response"
_OF: Final = trajectories.c.id == issued.c.trajectory_id
_AT: Final = (trajectories.c.made_by, trajectories.c.address_group, trajectories.c.external_id)


@dataclass(frozen=True, slots=True)
class AnsweredCall:
    """A call, and the choice of the response id (None: nothing was sampled)."""

    call: CallView
    choice: ChoiceView | None


def _may_read(access: KeyAccess, row: Any) -> bool:
    return access.may_read(row.made_by, row.address_group, row.external_id)


@dataclass(frozen=True, slots=True)
class AnswerRecord:
    """One answer without its conversation."""

    streamed: bool
    meta: Mapping[str, Any]
    message: Message | None


async def find_answered_call(project: Project, response_id: str, access: KeyAccess = ANYBODY) -> AnsweredCall | None:
    """Return the call whose answer has this response id. None: unknown, forgotten, or another key's."""
    query = select(issued.c.call_id, issued.c.choice, *_AT).where(
        issued.c.project_id == project.id, issued.c.issued_id == response_id, issued.c.kind == _KIND
    )
    async with project.store.read() as conn:
        row = (await conn.execute(query.join(trajectories, _OF))).one_or_none()
    if row is not None and not _may_read(access, row):
        return None
    call = await load_call(project.store, row.call_id) if row is not None else None
    if row is None or call is None:
        return None
    return AnsweredCall(call, next((choice for choice in call.choices if choice.index == row.choice), None))


async def find_running_process(store: Store, call_id: str) -> str | None:
    """Return the process that runs an open call, by its lease's name; None: not recorded."""
    async with store.read() as conn:
        return (await conn.execute(select(calls.c.process).where(calls.c.id == call_id))).scalar_one_or_none()


async def load_answers(
    project: Project, response_ids: Collection[str], access: KeyAccess = ANYBODY
) -> dict[str, AnswerRecord]:
    """Return the answers that have these ids, by id, without their conversations; unknown ids are absent."""
    at_choice = and_(choices.c.call_id == issued.c.call_id, choices.c["index"] == issued.c.choice)
    query = (
        select(issued.c.issued_id, issued.c.choice, calls.c.stream, calls.c.response_meta, nodes.c.message, *_AT)
        .join(trajectories, _OF)
        .join(calls, calls.c.id == issued.c.call_id)
        .outerjoin(choices, at_choice)
        .outerjoin(nodes, nodes.c.id == choices.c.node_id)
        .where(issued.c.project_id == project.id, issued.c.kind == _KIND)
    )
    ids = iter(response_ids)
    found: dict[str, AnswerRecord] = {}
    while page := list(islice(ids, PAGE)):
        async with project.store.read() as conn:
            rows = (await conn.execute(query.where(issued.c.issued_id.in_(page)))).all()
        found |= {row.issued_id: _said(row) for row in rows if _may_read(access, row)}
    return found


def _said(row: Any) -> AnswerRecord:
    meta = dict(row.response_meta or {})
    extras = choice_extras(meta, row.choice)
    meta.pop(CHOICE_EXTRAS, None)
    return AnswerRecord(bool(row.stream), meta, None if row.message is None else {**row.message, **extras})


async def forget_response_id(project: Project, response_id: str) -> bool:
    """Forget a response id; its call stays recorded. False: the id is unknown."""
    query = delete(issued).where(
        issued.c.project_id == project.id, issued.c.issued_id == response_id, issued.c.kind == _KIND
    )
    async with project.store.write() as conn:
        return bool((await conn.execute(query)).rowcount)


async def add_reasoning(store: Store, call: CallView) -> list[Message]:
    """Return a call's prompt messages, each assistant turn with its sampled reasoning.

    Reasoning is not part of a message's identity, so it is stored with the calls and not with the messages.
    """
    messages = list(call.messages)
    thoughts = await _thoughts(store, call.id)
    for at in reversed(range(len(messages))):
        if thoughts and messages[at].get("role") == "assistant":
            said, extras = thoughts[0]
            if content_hashes.canonical_message(said) == content_hashes.canonical_message(messages[at]):
                messages[at] = {**messages[at], **extras}
                thoughts = thoughts[1:]
    return messages


async def _thoughts(store: Store, call_id: str) -> list[tuple[Message, Mapping[str, Any]]]:
    """Return the sampled messages with reasoning among a call's ancestors, newest first."""
    first = select(calls.c.parent_call_id, calls.c.parent_choice, literal(0).label("height"))
    up = first.where(calls.c.id == call_id).cte("up", recursive=True)
    next_ = select(calls.c.parent_call_id, calls.c.parent_choice, up.c.height + 1).where(
        calls.c.id == up.c.parent_call_id
    )
    up = up.union_all(next_)
    query = (
        select(calls.c.response_meta, choices.c["index"], nodes.c.message)
        .join(up, up.c.parent_call_id == calls.c.id)
        .join(choices, and_(choices.c.call_id == calls.c.id, choices.c["index"] == up.c.parent_choice))
        .join(nodes, nodes.c.id == choices.c.node_id)
        .order_by(up.c.height)
    )
    async with store.read() as conn:
        rows = (await conn.execute(query)).all()
    return [(message, extras) for meta, index, message in rows if (extras := choice_extras(meta, index))]
