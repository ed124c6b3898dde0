"""Calls of the Responses API: what they need beside the way of every call.

Owns: finding the answers that a request refers to before it is placed, and serving `background: true` without the
client. Refuses: the way itself (`proxy.serving.calls`), asking engines (`proxy.responses.asking`), the format
(`proxy.dialects.responses.dialect`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial

import orjson

from proxy.admission.auth import Caller
from proxy.dialects.base import Reading
from proxy.dialects.responses.dialect import ResponsesAnswer, ResponsesDialect, ResponsesReading
from proxy.dialects.responses.object import response_object
from proxy.errors import CallerError, Unavailable
from proxy.http.asgi import Receive, Send, respond
from proxy.responses.asking import ResponseAsking
from proxy.responses.background import Background
from proxy.responses.history import History
from proxy.serving.call import Call, Parts
from proxy.serving.calls import Calls
from recorder.errors import StoreError
from recorder.states import CallState


class ResponseCalls(Calls):
    """Serves `POST /v1/responses`."""

    def __init__(self, dialect: ResponsesDialect, history: History, background: Background, parts: Parts) -> None:
        super().__init__(dialect, parts, ResponseAsking(dialect.engine_path, parts))
        self._responses = dialect
        self._history = history
        self._background = background

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> Reading:
        reading = self._responses.read(body, headers, self._rules)
        if reading.refers_to:
            try:
                reading.resolve(await self._history.earlier(reading.refers_to, reading.previous, caller.whose))
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

    def _broken(self, call: Call, failure: CallerError) -> bytes:
        assert isinstance(call.answer, ResponsesAnswer)
        return call.answer.failed(failure)
