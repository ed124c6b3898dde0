"""Stored responses by their ids: which conversation a request continues, and what `GET` returns.

Owns: the response object and the conversation of a recorded call, for callers that may use it. The record holds them,
so every proxy can serve them, whichever engine sampled them. Refuses: routes, and the wire format itself.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from proxy.dialects.responses import fields, items, tools
from proxy.dialects.responses.dialect import EarlierAnswer
from proxy.dialects.responses.fields import META, ResponseHead, Status, response_object, response_status
from proxy.errors import BadRequest, UnknownObject
from recorder.capture.recorder import Recorder
from recorder.messages.calls import KeyAccess, Message
from recorder.messages.plain_text import message_text
from recorder.queue import leases
from recorder.queue.leases import PROXY, is_dead
from recorder.states import CallState
from recorder.store.database import Project
from recorder.views.trajectories import by_response_id
from recorder.views.trajectories.by_response_id import AnsweredCall
from recorder.views.trajectories.shapes import CallView

Body = dict[str, Any]


def response_not_found(response_id: str, param: str = "response_id") -> UnknownObject:
    """Return the error for an unknown response id."""
    return UnknownObject(f"Response with id {response_id[:120]!r} not found.", param=param)


@dataclass(frozen=True, slots=True)
class StoredResponses:
    """The stored responses of one project."""

    project: Project
    recorder: Recorder
    began_at: float = field(
        default_factory=time.time
    )  # a call that was opened later and names no process is this one's

    async def earlier(self, ids: Iterable[str], previous: str | None, access: KeyAccess) -> dict[str, EarlierAnswer]:
        """Return the answers that a request refers to: `previous` with its conversation, the others for their items.

        Others that are unknown, or that the caller may not use, are omitted. Raises UnknownObject, and BadRequest for a
        `previous` without an answer.
        """
        others = [id_ for id_ in ids if id_ != previous]
        records = await by_response_id.load_answers(self.project, others, access) if others else {}
        answers = {
            id_: EarlierAnswer((), _items(one.meta[META], one.message, streamed=one.streamed))
            for id_, one in records.items()
        }
        return answers if previous is None else answers | {previous: await self._previous(previous, access)}

    async def _previous(self, response_id: str, access: KeyAccess) -> EarlierAnswer:
        answered = await self._find(response_id, "previous_response_id", access)
        if answered.call.state is not CallState.COMPLETE or answered.choice is None:
            became = recorded_status(answered, runs=await self._runs(answered))
            raise BadRequest(
                f"the response {response_id!r} is {became}: it has no answer to continue.",
                param="previous_response_id",
            )
        messages = await by_response_id.add_reasoning(self.project.store, answered.call)
        last = [answered.choice.message] if answered.choice.message is not None else []
        loaded = tools.declared_tools(_meta(answered.call).get("loaded", ()), answered.call.tools or ())
        return EarlierAnswer([*_without_instructions(answered.call, messages), *last], _output(answered), loaded)

    async def response(self, response_id: str, access: KeyAccess) -> Body:
        """Return the response object as the client received it. Raises UnknownObject."""
        answered = await self._find(response_id, "response_id", access)
        return response_body(answered, runs=await self._runs(answered))

    async def input_items(self, response_id: str, access: KeyAccess) -> list[Body]:
        """Return the input of an answer without the instructions, as items in order. Raises UnknownObject."""
        answered = await self._find(response_id, "response_id", access)
        messages = await by_response_id.add_reasoning(self.project.store, answered.call)
        return items.input_items(
            _without_instructions(answered.call, messages), response_id, _origins(_meta(answered.call))
        )

    async def delete(self, response_id: str) -> None:
        """Delete an answer's id, so that it is neither shown nor continued; the record stays. Raises UnknownObject."""
        self.recorder.forget_issued(self.project.id, response_id)
        if not await by_response_id.forget_response_id(self.project, response_id):
            raise response_not_found(response_id)

    async def _runs(self, answered: AnsweredCall) -> bool:
        """Whether an open call still runs, here or in another proxy of the store."""
        if answered.call.state is not CallState.OPEN:
            return False
        process = await by_response_id.find_running_process(self.project.store, answered.call.id)
        if process is None:
            return answered.call.started_at >= self.began_at
        held = await leases.list_holders(self.project, PROXY + process)
        return any(not is_dead(lease.owner) for lease in held)

    async def _find(self, response_id: str, param: str, access: KeyAccess) -> AnsweredCall:
        answered = await by_response_id.find_answered_call(self.project, response_id, access)
        if answered is None:
            raise response_not_found(response_id, param)
        return answered


def response_body(answered: AnsweredCall, *, runs: bool) -> Body:
    """Return the response object of a recorded call."""
    call, now = answered.call, recorded_status(answered, runs=runs)
    meta = _meta(call)
    head = ResponseHead(meta["id"], meta["created_at"], call.model, _fields(call), meta.get("max_output_tokens"))
    failed = now == "failed"
    why = call.error or "the process that served it ended before the response was complete"
    usage = call.usage if call.state is not CallState.OPEN else None
    return response_object(head, now, _output(answered), usage, ("server_error", why) if failed else None)


def recorded_status(answered: AnsweredCall, *, runs: bool) -> Status:
    """Return a recorded call's status as the Responses API names it. `runs`: an open call still runs."""
    call = answered.call
    if call.state is CallState.COMPLETE:
        return response_status(answered.choice.finish_reason if answered.choice is not None else None)
    if call.state is CallState.OPEN and runs:
        return "in_progress"
    # A client that hung up no longer wants the answer; a client of a background response does.
    unwanted = _meta(call).get("cancelled") or not call.rest.get("background")
    return "cancelled" if call.state is CallState.ABORTED and unwanted else "failed"


def _meta(call: CallView) -> Body:
    return dict((call.response_meta or {})[META])


def _fields(call: CallView) -> Body:
    says = _meta(call).get("instructions")
    instructions = None if says is None else message_text(call.messages[0], separator="") if says else ""
    return fields.recorded_fields(call.rest, call.tools, call.response_format, instructions, _meta(call).get("tools"))


def _without_instructions(call: CallView, messages: list[Message]) -> list[Message]:
    return messages[1:] if _meta(call).get("instructions") else messages


def _output(answered: AnsweredCall) -> list[Body]:
    """The items of an answer; if it broke off, the complete ones."""
    if answered.call.state is not CallState.COMPLETE:
        return list(_meta(answered.call).get("items", ()))
    message = answered.choice.message if answered.choice is not None else None
    return _items(_meta(answered.call), message, streamed=answered.call.stream)


def _items(meta: Body, message: Message | None, *, streamed: bool) -> list[Body]:
    """The items of an answer, as the client received them."""
    if "items" in meta:
        return list(meta["items"])
    if message is not None and meta.get("reasoning_hidden"):
        message = {name: value for name, value in message.items() if name != "reasoning"}
    return items.output_items(message, meta["id"], meta.get("logprobs"), streamed=streamed, origins=_origins(meta))


def _origins(meta: Body) -> dict[str, tools.ToolOrigin]:
    """The client's tool for each function of the model."""
    return tools.tool_origins([*meta.get("tools", ()), *meta.get("loaded", ())])
