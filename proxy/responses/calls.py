"""Calls of the Responses API: what they need beside the way of every call.

Owns: finding the answers that a request refers to before it is placed, and serving `background: true` without the
client. Refuses: the way itself (`proxy.serving.calls`), the format (`proxy.dialects.responses.dialect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

import orjson

from proxy.dialects.base import Reading
from proxy.dialects.responses.dialect import ResponsesAnswer, ResponsesDialect, ResponsesReading
from proxy.dialects.responses.object import response_object
from proxy.errors import CallerError, EngineSaid, Unavailable
from proxy.http.asgi import Receive, Send, respond
from proxy.responses.background import Background
from proxy.responses.context_lengths import ContextLengths
from proxy.responses.history import History
from proxy.serving.call import Call, Parts
from proxy.serving.calls import Calls
from proxy.versions.in_service import Route
from recorder.errors import StoreError
from recorder.states import CallState

# What the engine is asked in chat's words, and may find fault with → what the client said.
_FIELDS: Final[Mapping[str, str]] = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class ResponseCalls(Calls):
    """Serves `POST /v1/responses`."""

    def __init__(self, dialect: ResponsesDialect, history: History, background: Background, parts: Parts) -> None:
        super().__init__(dialect, parts)
        self._responses = dialect
        self._lengths = ContextLengths(self._client)
        self._history = history
        self._background = background

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes]) -> Reading:
        reading = self._responses.read(body, headers, self._rules)
        if reading.refers_to:
            try:
                reading.resolve(await self._history.earlier(reading.refers_to, reading.previous))
            except StoreError as e:
                raise Unavailable(f"the earlier response cannot be read now: {e}") from e
        return reading

    async def _run(self, call: Call, receive: Receive, send: Send) -> None:
        if isinstance(call.reading, ResponsesReading) and call.reading.background:
            try:
                await self._run_behind(call, send)
            except CallerError as e:
                await self._say(send, e, call.headers())
        else:
            await super()._run(call, receive, send)

    async def _run_behind(self, call: Call, send: Send) -> None:
        """Tell the client the id of a response that goes on without it. It can be asked for from now on."""
        answer = call.answer
        assert isinstance(answer, ResponsesAnswer)
        if call.attribution is None:
            raise Unavailable("a background response is kept in the store, which does not answer now.")
        turn = call.turn(self._project_id, CallState.OPEN, answer.sampled())
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                await self._recorder.show(turn)
        except (StoreError, TimeoutError) as e:
            raise Unavailable(f"a background response is kept in the store, which does not answer now: {e}") from e
        self._background.start(answer, partial(super()._run, call))
        queued = response_object(answer.head, "queued")
        await respond(send, 200, orjson.dumps(queued), headers=call.headers())

    async def _ask_one(self, call: Call, route: Route, send: Send) -> None:
        assert isinstance(call.answer, ResponsesAnswer)
        call.answer.context_length = await self._lengths.of(route)
        try:
            await super()._ask_one(call, route, send)
        except EngineSaid as e:
            raise _in_own_words(e) from e

    def _broken(self, call: Call, failure: CallerError) -> bytes:
        assert isinstance(call.answer, ResponsesAnswer)
        return call.answer.failed(failure)


def _in_own_words(error: EngineSaid) -> EngineSaid:
    """An engine's refusal with the fields called as the client calls them."""
    message = str(error)
    for chats, own in _FIELDS.items():
        message = message.replace(f"{chats}=", f"{own}=")
    param = _FIELDS.get(error.param or "", error.param)
    return EngineSaid(message, status=error.status, kind=error.kind, param=param, code=error.code)
