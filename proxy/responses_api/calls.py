"""Responses that run without their client: `background: true`.

Owns: which of them run in this process, and ending them before their time. Refuses: what they do
(`proxy.serving.calls`), and those that ended: the record has them.

How long a prompt and its answer may be together, by engine: what an answer's `max_output_tokens` is reckoned from.

Owns: asking each engine once in a while. Refuses: failing a call over it.

Asking engines for a response, in chat's words.

Owns: what an answer must know of the engine that gives it, and an engine's refusal with the fields called as the
client calls them. Refuses: which engine is asked, and taking its answer (`proxy.serving.model_requests`).

Calls of the Responses API: what they need beside the way of every call.

Owns: finding the answers that a request refers to before it is placed, and serving `background: true` without the
client. Refuses: the way itself (`proxy.serving.calls`), asking engines (`proxy.responses_api.calls`), the format
(`proxy.dialects.responses.dialect`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

import orjson

from proxy.admission.auth import Caller
from proxy.dialects.base import CallReader
from proxy.dialects.responses.dialect import ResponsesAnswer, ResponsesDialect, ResponsesReader
from proxy.dialects.responses.fields import response_object
from proxy.engine.client import Client
from proxy.errors import CallerError, EngineError, EngineRefused, Unavailable
from proxy.http.asgi import Message, Receive, Send, respond
from proxy.responses_api.stored_responses import CampaignHistory
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
    """The background responses of one process. `stop()` ends them all."""

    def __init__(self) -> None:
        self._runs: dict[str, _BackgroundCall] = {}

    def __contains__(self, response_id: str) -> bool:
        return response_id in self._runs

    def start(self, answer: ResponsesAnswer, serve: Serve) -> None:
        """Serve a call to a client that waits for nothing, until it is done or `cancel` hangs up."""
        hung_up = asyncio.Event()

        async def receive() -> Message:
            await hung_up.wait()
            return {"type": "http.disconnect"}

        async def send(message: Message) -> None:
            return

        async def run() -> None:
            try:
                await serve(receive, send)
            except Exception:  # a boundary: nobody waits for this task, and a lost one must leave a word
                log.exception("the background response %s ended by a fault in Hone", answer.head.id)
            finally:
                del self._runs[answer.head.id]

        task = asyncio.get_running_loop().create_task(run(), name=f"background {answer.head.id}")
        self._runs[answer.head.id] = _BackgroundCall(answer, hung_up, task)

    async def cancel(self, response_id: str) -> bool:
        """End a response; returns when that is recorded. False: it does not run here."""
        run = self._runs.get(response_id)
        if run is None:
            return False
        run.answer.cancelled = True
        run.hung_up.set()
        await asyncio.wait([run.task])
        return True

    async def stop(self) -> None:
        """End all, as failed: nobody asked for it."""
        runs = list(self._runs.values())
        for run in runs:
            run.hung_up.set()
        if runs:
            await asyncio.wait([run.task for run in runs])


BELIEVED_S = 60.0  # an engine that was started anew may serve another length
TIMEOUT_S = 2.0  # no call is held up for longer: its engine may be busy, and the length is told where it is known


class ContextLengths:
    """The context lengths of engines, in tokens. One a process."""

    def __init__(self, client: Client) -> None:
        self._client = client
        self._known: dict[str, tuple[int | None, float]] = {}

    async def of(self, route: Route) -> int | None:
        """The context length of the engine that a call goes to; None where it does not say. Mostly without I/O."""
        length, asked_at = self._known.get(route.replica_url, (None, float("-inf")))
        if time.monotonic() - asked_at < BELIEVED_S:
            return length
        length = await self._ask(route)
        self._known[route.replica_url] = (length, time.monotonic())
        return length

    async def _ask(self, route: Route) -> int | None:
        try:
            async with asyncio.timeout(TIMEOUT_S):
                reply = await self._client.send(route.replica_url, "/v1/models", key=route.engine_key, method="GET")
                async with reply:
                    cards = orjson.loads(await reply.body())["data"]
            lengths = [card.get("max_model_len") for card in cards]
            return min((length for length in lengths if isinstance(length, int) and length > 0), default=None)
        except (TimeoutError, EngineError, ValueError, KeyError, TypeError, AttributeError):
            return None  # the call itself will tell what is wrong


# What the engine is asked in chat's words, and may find fault with → what the client said.
_FIELDS: Final[Mapping[str, str]] = {
    "max_completion_tokens": "max_output_tokens",
    "max_tokens": "max_output_tokens",
    "messages": "input",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}


class ResponseRequester(ModelRequester):
    """Asks for the calls of `POST /v1/responses`."""

    def __init__(self, engine_path: str, parts: ServingParts) -> None:
        super().__init__(engine_path, parts)
        self._lengths = ContextLengths(parts.client)

    async def ask_engine(self, call: RunningCall, route: Route, send: Send) -> None:
        """Send the call to one engine, after asking for its context. Raises what `ModelRequester.ask_engine` does."""
        assert isinstance(call.answer, ResponsesAnswer)
        call.answer.context_length = await self._lengths.of(route)
        try:
            await super().ask_engine(call, route, send)
        except EngineRefused as e:
            raise _in_own_words(e) from e


def _in_own_words(error: EngineRefused) -> EngineRefused:
    """An engine's refusal with the fields called as the client calls them."""
    message = str(error)
    for chats, own in _FIELDS.items():
        message = message.replace(f"{chats}=", f"{own}=")
    param = _FIELDS.get(error.param or "", error.param)
    return EngineRefused(message, status=error.status, kind=error.kind, param=param, code=error.code)


class ResponseCalls(CallHandler):
    """Serves `POST /v1/responses`."""

    def __init__(
        self, dialect: ResponsesDialect, history: CampaignHistory, background: BackgroundResponses, parts: ServingParts
    ) -> None:
        super().__init__(dialect, parts, ResponseRequester(dialect.engine_path, parts))
        self._responses = dialect
        self._history = history
        self._background = background

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> CallReader:
        reading = self._responses.read(body, headers, self._rules)
        if reading.refers_to:
            try:
                reading.resolve(await self._history.earlier(reading.refers_to, reading.previous, caller.whose))
            except StoreError as e:
                raise Unavailable(f"the earlier response cannot be read now: {e}") from e
        return reading

    async def _run(self, call: RunningCall, receive: Receive, send: Send) -> None:
        if isinstance(call.reading, ResponsesReader) and call.reading.background:
            try:
                await self._run_behind(call, send)
            except CallerError as e:
                await self._say(send, e, call.headers())
        else:
            await super()._run(call, receive, send)

    async def _run_behind(self, call: RunningCall, send: Send) -> None:
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

    def _broken(self, call: RunningCall, failure: CallerError) -> bytes:
        assert isinstance(call.answer, ResponsesAnswer)
        return call.answer.failed(failure)
