"""Ask a recorded call again, with changes: through the app that serves calls, so that all its bounds hold.

Owns: who may do that, how the new call is addressed (purpose none, origin shadow), and reading its answers. Refuses:
the request (`repeat_body.py`), serving and recording (`proxy.serving`), and the comparison with the recorded answer
(`recorder.views.comparison.new_answers`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from proxy.admission.address import AddressSource, StatedAddress
from proxy.admission.auth import Caller
from proxy.dialects.base import DialectRules
from proxy.errors import BadGateway, EngineRefused, Forbidden, Unavailable
from proxy.http.asgi import App, Message, RawHeaders, Receive, Scope
from proxy.recorded_requests.repeat_body import RequestChanges, repeat_body
from recorder.errors import Conflict
from recorder.messages import calls
from recorder.registry import keys
from recorder.states import Origin, Purpose
from recorder.store.database import Project
from recorder.views.comparison import new_answers
from recorder.views.trajectories.by_response_id import add_reasoning
from recorder.views.trajectories.shapes import CallView
from recorder.views.trajectories.transcripts import find_owners
from recorder.views.trajectory_detail.outcome import version_names

WHAT: Final = "asking a call again"
_HEADERS: Final = {b"content-type": b"application/json", b"user-agent": b"hone"}


@dataclass(frozen=True, slots=True)
class NewAnswers:
    """The answers to a call that was asked again: index, message and finish reason of each.

    `trajectory_id` is None if the call could not be recorded.
    """

    call_id: str
    trajectory_id: str | None
    version: str | None
    answers: Sequence[tuple[int, calls.Message, str | None]]
    usage: Mapping[str, Any] | None


class CallRepeater:
    """Asks recorded calls again. `apps`: by route, the apps that serve the new calls."""

    def __init__(self, project: Project, apps: Mapping[str, App], rules: DialectRules) -> None:
        self._project = project
        self._apps = apps
        self._rules = rules

    async def ask(self, caller: Caller, call: CallView, changes: RequestChanges) -> NewAnswers:
        """Ask a call again, and return the answers; they are recorded.

        Raises Forbidden, BadRequest, Conflict if the call was asked as often as it may be, and the error of a call that
        got no answer.
        """
        await self._require(caller, call)
        name = await new_answers.free_name(self._project, call.id)
        if name is None:
            raise Conflict(
                f"the call {call.id} was asked again {new_answers.PLACES} times: delete one of those trajectories, or "
                "ask one of their calls again"
            )
        messages = await add_reasoning(self._project.store, call)
        path, body = repeat_body(call, messages, changes.model or await self._model(call), changes, self._rules)
        reply = await self._send(path, orjson.dumps(body), _stated(name, caller))
        return reply.read()

    async def _require(self, caller: Caller, call: CallView) -> None:
        """Raise Forbidden unless the caller may call models and versions, and read this call."""
        caller.require(keys.Scope.INFER, WHAT)
        caller.require(keys.Scope.EVAL, WHAT)
        if caller.may(keys.Scope.READ):
            return
        owners = await find_owners(self._project.store, [call.trajectory_id])
        if caller.run is not None or not all(map(caller.access.owns, owners)):
            raise Forbidden(f"the call {call.id} belongs to another key: use a key with the scope 'read' too.")

    async def _model(self, call: CallView) -> str:
        """The version that answered the call; without one, the model that the client asked for."""
        if call.version_id is None:
            return call.model
        return (await version_names(self._project.store, {call.version_id})).get(call.version_id, call.model)

    async def _send(self, path: str, body: bytes, stated: dict[str, Any]) -> _Reply:
        reply = _Reply()
        scope: Scope = {"type": "http", "method": "POST", "path": path, "hone.path": path, **stated}
        await self._apps[path](scope, _body_then_silence(body), reply.send)
        return reply


def _stated(name: str, caller: Caller) -> dict[str, Any]:
    """What admission leaves in a scope: the new call is a trajectory of its own, which ends with it."""
    address = calls.Address(
        trajectory=name, purpose=Purpose.NONE, origin=Origin.SHADOW, done=True, access=caller.access
    )
    return {
        "hone.headers": dict(_HEADERS),
        "hone.caller": caller,
        "hone.stated": StatedAddress(address, AddressSource.ASK_AGAIN),
        "hone.waited_s": 0.0,
    }


def _body_then_silence(body: bytes) -> Receive:
    """A `receive` of a client that sends a body and stays."""
    sent = False

    async def receive() -> Message:
        nonlocal sent
        if sent:
            await asyncio.Event().wait()
        sent = True
        return {"type": "http.request", "body": body, "more_body": False}

    return receive


@dataclass(slots=True)
class _Reply:
    """What the app sends."""

    status: int = 0
    headers: RawHeaders = field(default_factory=list)
    body: bytes = b""

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status, self.headers = message["status"], list(message["headers"])
        else:
            self.body += message.get("body", b"")

    def read(self) -> NewAnswers:
        """Return the answers. Raises the error that the app answered with."""
        if self.status != 200:
            raise self._error()
        about = {name: value.decode() for name, value in self.headers}
        try:
            answer = orjson.loads(self.body)
            answers = [(one["index"], _message(one), one.get("finish_reason")) for one in answer["choices"]]
        except (orjson.JSONDecodeError, KeyError, TypeError) as e:
            raise BadGateway(f"the answer is no completion: {e}") from e
        return NewAnswers(
            about.get(b"x-hone-call", ""),
            about.get(b"x-hone-trajectory"),
            about.get(b"x-hone-version"),
            sorted(answers, key=lambda one: int(one[0])),
            answer.get("usage"),
        )

    def _error(self) -> Exception:
        if not self.status:
            return Unavailable("the proxy stopped before the answer was complete: ask again in a moment.")
        try:
            fault = orjson.loads(self.body)["error"]
            message, kind = str(fault["message"]), str(fault.get("type") or "server_error")
            param, code = fault.get("param"), fault.get("code")
        except (orjson.JSONDecodeError, KeyError, TypeError):
            message, kind, param, code = self.body[:500].decode(errors="replace"), "server_error", None, None
        return EngineRefused(message, status=self.status, kind=kind, param=param, code=code)


def _message(choice: Mapping[str, Any]) -> calls.Message:
    """A choice's message, also of a completion, which has a text."""
    message = choice.get("message")
    return message if isinstance(message, dict) else {"role": "assistant", "content": str(choice.get("text") or "")}
