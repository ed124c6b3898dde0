"""Calls of the Responses API: what they need beyond other calls.

Owns: loading the answers that a request refers to, background responses (`background: true`), the context lengths of
engines, from which an answer's `max_output_tokens` follows, and engine errors with the client's field names. Refuses:
the steps of a call (`proxy.serving.calls`), asking engines (`proxy.serving.model_requests`), the format
(`proxy.dialects.responses.dialect`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from proxy.admission.auth import Caller
from proxy.dialects.base import CallReader
from proxy.dialects.responses.dialect import ResponsesAnswer, ResponsesDialect, ResponsesReader
from proxy.dialects.responses.fields import response_object
from proxy.engine.context_lengths import ContextLengths
from proxy.errors import CallerError, EngineRefused, Unavailable
from proxy.http.asgi import Message, Receive, Send, respond
from proxy.responses_api.stored_responses import StoredResponses
from proxy.serving.body_reading import work_beside_loop
from proxy.serving.calls import CallHandler
from proxy.serving.model_requests import ModelRequester
from proxy.serving.running_call import RunningCall, ServingParts
from proxy.versions.routing import Route
from recorder.errors import StoreError
from recorder.states import CallState

log = logging.getLogger(__name__)

Serve = Callable[[Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True)
class _BackgroundCall:
    answer: ResponsesAnswer
    hung_up: asyncio.Event
    task: asyncio.Task[None]


class BackgroundResponses:
    """The background responses of one process. `stop()` ends all of them."""

    def __init__(self) -> None:
        self._runs: dict[str, _BackgroundCall] = {}

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._runs

    def start(self, answer: ResponsesAnswer, serve: Serve) -> None:
        """Serve a call without its client, until it ends or `cancel` hangs up."""
        hung_up = asyncio.Event()

        async def receive() -> Message:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            return

        async def run() -> None:
            try:
                await serve(receive, send)
            except Exception:  # a boundary: nothing awaits this task, so its failure must be logged
                log.exception("the background response %s ended by a bug in Hone", answer.head.id)
            finally:
                del self._runs[answer.head.id]

        task = asyncio.get_running_loop().create_task(run(), name=f"background {answer.head.id}")
        self._runs[answer.head.id] = _BackgroundCall(answer, hung_up, task)

    async def cancel(self, response_id: str) -> bool:
        """End a response, and return once that is recorded; False if the response is not running here."""
        run = self._runs.get(response_id)
        if run is None:
            return False
        run.answer.cancelled = True
        run.hung_up.set()
        await asyncio.wait([run.task])
        return True

    async def stop(self) -> None:
        """End all of them, as failed: no client requested the end."""
        runs = list(self._runs.values())
        for run in runs:
            run.hung_up.set()
        if runs:
            await asyncio.wait([run.task for run in runs])


# Names of chat's fields, in an engine's errors → names of the client's fields.
_FIELDS: Final[Mapping[str, str]] = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class ResponseRequester(ModelRequester):
    """Sends the calls of `POST /v1/responses`."""

    def __init__(self, engine_path: str, parts: ServingParts) -> None:
        super().__init__(engine_path, parts)
        self._lengths = ContextLengths(parts.client)

    async def ask_engine(self, call: RunningCall, route: Route, send: Send) -> None:
        """Send the call to one engine, after its context length is known. Raises what `ModelRequester.ask_engine`
        raises.
        """
        assert isinstance(call.answer, ResponsesAnswer)
        call.answer.context_length = await self._lengths.of(route.replica_url, route.engine_key)
        try:
            await super().ask_engine(call, route, send)
        except EngineRefused as e:
            raise _in_own_words(e) from e


def _in_own_words(error: EngineRefused) -> EngineRefused:
    """An engine's refusal with the client's field names."""
    message = str(error)
    for chats, own in _FIELDS.items():
        message = message.replace(f"{chats}=", f"{own}=")
    param = _FIELDS.get(error.param or "", error.param)
    return EngineRefused(message, status=error.status, kind=error.kind, param=param, code=error.code)


class ResponseCalls(CallHandler):
    """Serves `POST /v1/responses`."""

    def __init__(
        self, dialect: ResponsesDialect, history: StoredResponses, background: BackgroundResponses, parts: ServingParts
    ) -> None:
        super().__init__(dialect, parts, ResponseRequester(dialect.engine_path, parts))
        self._responses = dialect
        self._history = history
        self._background = background

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> CallReader:
        reading = await work_beside_loop(len(body), lambda: self._responses.read(body, headers, self._rules))
        if reading.refers_to:
            try:
                await self._recorder.require_caught_up()  # the earlier response may wait to be recorded
                earlier = await self._history.earlier(reading.refers_to, reading.previous, caller.access)
            except StoreError as e:
                raise Unavailable(f"the earlier response cannot be read now: {e}") from e
            size_bytes = len(body) + sum(one.size_bytes for one in earlier.values())
            await work_beside_loop(size_bytes, lambda: reading.resolve(earlier))
        return reading

    async def _run(self, call: RunningCall, receive: Receive, send: Send) -> None:
        if isinstance(call.reading, ResponsesReader) and call.reading.background:
            try:
                await self._run_behind(call, send)
            except CallerError as e:
                await self._send_error(send, e, call.headers())
        else:
            await super()._run(call, receive, send)

    async def _run_behind(self, call: RunningCall, send: Send) -> None:
        """Send the client the id of a response that runs in the background. It can be retrieved from now on."""
        answer = call.answer
        assert isinstance(answer, ResponsesAnswer)
        if call.attribution is None:
            raise Unavailable("a background response needs the store, which does not answer now.")
        turn = call.turn(self._project_id, CallState.OPEN, answer.sampled())
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                await self._recorder.show(turn)
        except (StoreError, TimeoutError) as e:
            raise Unavailable(f"a background response needs the store, which does not answer now: {e}") from e
        self._background.start(answer, partial(super()._run, call))
        queued = response_object(answer.head, "queued")
        await respond(send, 200, orjson.dumps(queued), headers=call.headers())

    def _broken(self, call: RunningCall, failure: CallerError) -> bytes:
        assert isinstance(call.answer, ResponsesAnswer)
        return call.answer.failed(failure)
