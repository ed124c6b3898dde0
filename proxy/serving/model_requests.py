"""Sending a call to a model: to its engine, to another replica of it, or to the provider that replaces the engine.

Owns: which of them is asked and in which order, what each is sent, and reading the answer: a whole answer into the
call, a stream event by event to the client, up to the last finish. Also the caller's errors for an unknown model, for a
model without an engine, and for an engine's refusal, in which the model has the name that the client knows. Refuses:
formats, attribution, what is recorded, and the end of an answer, which the client gets after the commit
(`proxy.serving.calls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

import orjson

from proxy.engine.client import EngineReply
from proxy.engine.providers import Provider, ProviderReply
from proxy.errors import (
    BadGateway,
    BadRequest,
    CallerError,
    EngineFailed,
    EngineRefused,
    EngineUnreachable,
    NoReplica,
    Unavailable,
    UnknownObject,
)
from proxy.http import sse
from proxy.http.asgi import Send, begin_stream
from proxy.http.sse import KeepAliveStream
from proxy.serving.body_reading import write_beside_loop
from proxy.serving.continuity import without_ids
from proxy.serving.running_call import RunningCall, ServingParts
from proxy.versions.routing import Route, ServiceRouter
from recorder.states import Purpose

MAX_MESSAGE_CHARS: Final = 2000  # of an engine's error message
AFTER_FINISH_S: Final = 2.0  # time limit for the rest of a stream after every choice has finished
CHAT_PATH: Final = "/v1/chat/completions"
_NOT_READY: Final = (502, 503, 504)


def unknown_model_error(model: str, versions: ServiceRouter) -> UnknownObject:
    """Return the error for an unknown model name, with the names that are known."""
    known = ", ".join(str(card["id"]) for card in versions.models()) or "none yet"
    return UnknownObject(
        f"the model {model!r:.200} is unknown, or that version is not in service. Known: {known}.",
        param="model",
        code="model_not_found",
    )


def no_engine_error(why: NoReplica) -> Unavailable:
    """Return the error for a model that no engine can serve now."""
    return Unavailable(str(why), code="engine_unavailable")


def engine_refusal(status: int, body: bytes, route: Route, client_model: str) -> CallerError:
    """Return the caller's error for an engine's refusal, with the model's name as the client knows it."""
    message, kind, param = _fault(body)
    is_unknown_model = route.engine_model in message
    message = message.replace(route.engine_model, client_model)
    if not (400 <= status < 500 or status == 500 or status in _NOT_READY):  # a redirect, no content, no HTTP at all
        return BadGateway(f"the engine at {route.replica_url} answered {status}, which Hone does not expect: {message}")
    if status in (401, 403):
        return BadGateway(f"the engine at {route.replica_url} refused Hone's key: set `api_key` in [engine].")
    if status == 404 and not is_unknown_model:
        text = f"the engine does not serve this request: {message}"
        return EngineRefused(text, status=404, kind="not_found_error", param=None, code="not_found")
    if status == 404:
        return Unavailable(f"the engine does not hold {route.version.name} now ({message}): retry in a moment.")
    if status in _NOT_READY:
        return Unavailable(f"the engine is not ready: {message}", code="engine_unavailable")
    return EngineRefused(message, status=status, kind=kind, param=param, code="engine_error" if status >= 500 else None)


def stream_error(message: str, route: Route | None, client_model: str) -> CallerError:
    """Return the caller's error for an error inside a stream that had begun."""
    text = message.replace(route.engine_model, client_model) if route is not None else message
    return BadGateway(text[:MAX_MESSAGE_CHARS], code="engine_error")


def _fault(body: bytes) -> tuple[str, str, str | None]:
    """Message, type and param of an engine's error body."""
    try:
        reply = orjson.loads(body)
    except orjson.JSONDecodeError:
        return body[:500].decode(errors="replace") or "no reason given", "server_error", None
    fault = reply.get("error", reply) if isinstance(reply, dict) else {}
    if not isinstance(fault, dict):
        fault = {"message": fault}
    message = str(fault.get("message") or fault.get("detail") or body[:500].decode(errors="replace"))
    kind, param = fault.get("type"), fault.get("param")
    return (
        message[:MAX_MESSAGE_CHARS],
        kind[:100] if isinstance(kind, str) and kind else "invalid_request_error",
        param[:100] if isinstance(param, str) else None,
    )


class ModelRequester:
    """Sends the calls of one wire format, and writes what it learns on the call.

    A format that needs to know or add more about an engine overrides `ask_engine`.
    """

    def __init__(self, engine_path: str, parts: ServingParts) -> None:
        self._engine_path = engine_path
        self._takes_providers = engine_path == CHAT_PATH  # the form that LiteLLM translates
        self._versions = parts.versions
        self._client = parts.client
        self._providers = parts.providers
        self._continuity = parts.continuity
        self._metrics = parts.metrics

    # --- the target

    def provider(self, model: str) -> Provider | None:
        """Return the provider of a model name, if any. Raises BadRequest where this format cannot ask it."""
        provider = self._providers.named(model)
        if provider is not None and not self._takes_providers:
            raise BadRequest(f"{model!r} is another provider's model: use {CHAT_PATH}.")
        return provider

    def find_engine(self, call: RunningCall) -> None:
        """Set the engine of a call without attribution, or the provider that replaces it. Raises Unavailable."""
        try:
            call.route = self._route(call)
        except Unavailable as e:
            self.without_engine(call, e)

    def _route(self, call: RunningCall) -> Route:
        """The route of a call: to its trajectory's version and engine, or to the live version without a trajectory.
        Raises Unavailable.
        """
        assert call.target is not None
        try:
            if call.trajectory is not None:
                return self._versions.route_trajectory(call.target, call.trajectory)
            return self._versions.route(call.target.alias, None, call.target.version)
        except NoReplica as e:
            raise no_engine_error(e) from e

    def without_engine(self, call: RunningCall, why: CallerError | EngineFailed) -> None:
        """Switch to the provider that replaces the engine. Raises `why` where that is not allowed.

        It is allowed while nothing was sent to the client and the request is not at fault; never for a version that was
        named or is measured.
        """
        if call.target is None or call.target.version is not None or not self._takes_providers or call.streaming:
            raise why
        measured = call.purpose in (Purpose.VAL, Purpose.EVAL)
        provider = self._providers.in_place_of(call.target.alias.name)
        if provider is None or measured or (isinstance(why, CallerError) and why.status < 500):
            raise why
        call.provider, call.fell_back, call.route = provider, str(why), None
        call.answer, call.http_status = call.reading.answer(), None
        self._metrics.fell_back(call.target.alias.name, provider.name)

    # --- sending

    async def ask(self, call: RunningCall, send: Send) -> None:
        """Send the call to its engine, or to the provider that replaces it. Raises CallerError, EngineFailed.

        On return the answer is finished; the client has received the part of a stream before its last finish.
        """
        if call.provider is None:
            try:
                await self._ask_engines(call, send)
                return
            except (CallerError, EngineFailed) as e:
                self.without_engine(call, e)
        await self._ask_provider(call, send)

    async def _ask_engines(self, call: RunningCall, send: Send) -> None:
        """Send the call to its engine; if it cannot be reached, to another replica that holds the version."""
        tried: set[str] = set()
        while True:
            assert call.route is not None
            tried.add(call.route.replica_url)
            try:
                await self.ask_engine(call, call.route, send)
                return
            except EngineUnreachable as e:
                self._versions.failed(call.route)
                other = self._route(call)
                if other.replica_url in tried:
                    raise Unavailable(f"{e}. Retry in a moment.", code="engine_unavailable") from e
                call.route = other

    async def ask_engine(self, call: RunningCall, route: Route, send: Send) -> None:
        """Send the call to one engine. Raises CallerError, EngineUnreachable, EngineFailed."""
        with self._versions.hold(route):
            ids = await self._prompt_ids(call, route)
            reply = await self._send(call, route, ids)
            if ids is not None and 400 <= reply.status < 500:  # whatever the reason: continuity never fails a call
                async with reply:
                    call.continued = without_ids(call.continued)
                reply = await self._send(call, route, None)
            async with reply:
                call.http_status = reply.status
                if reply.status != 200:
                    raise engine_refusal(reply.status, await reply.body(), route, call.reading.request.model)
                await self._take(call, reply, send)

    async def _send(self, call: RunningCall, route: Route, ids: Sequence[int] | None) -> EngineReply:
        reading = call.reading
        body = await write_beside_loop(reading.request, lambda: reading.engine_body(route.engine_model, ids))
        return await self._client.send(route.replica_url, self._engine_path, body, key=route.engine_key)

    async def _prompt_ids(self, call: RunningCall, route: Route) -> Sequence[int] | None:
        """The prompt's ids if the call continues recorded ones; None: the engine renders its messages."""
        if self._continuity is None or call.reading.chat is None:
            return None
        call.continued = await self._continuity.prompt(call.reading.chat, call.attribution, route)
        return call.continued.ids

    async def _ask_provider(self, call: RunningCall, send: Send) -> None:
        """Send the call to a provider. If it replaces an engine, its refusal is not the client's fault."""
        provider = call.provider
        assert provider is not None
        call.provided = provider.meta()
        reading = call.reading
        reading.undo_changes()
        body = await write_beside_loop(reading.request, lambda: reading.engine_body(provider.model))
        try:
            reply = await provider.send(body, reading.request)
        except CallerError as e:
            call.http_status = e.status
            if call.fell_back is None:
                raise
            raise Unavailable(f"{call.fell_back} Its fallback failed too: {e}") from e
        call.http_status = 200
        async with reply:
            await self._take(call, reply, send)
        call.provided |= reply.meta()

    # --- the answer

    async def _take(self, call: RunningCall, reply: EngineReply | ProviderReply, send: Send) -> None:
        """Read an answer that has begun, and relay it if it is streamed."""
        if call.reading.request.stream:
            await begin_stream(send, call.headers())
            call.streaming = True
            await self._pass_on(call, reply, send)
        else:
            call.body = call.answer.body(await reply.body())

    async def _pass_on(self, call: RunningCall, reply: EngineReply | ProviderReply, send: Send) -> None:
        """Send the client the events as they come, up to the one that carries the last finish."""
        parser, answer = sse.Parser(), call.answer
        with KeepAliveStream(send) as stream:
            while not (answer.finished or answer.over):
                chunk = await reply.chunk()
                if not chunk:
                    raise EngineFailed("the engine closed its answer before it was finished")
                if events := b"".join([answer.event(data) for data in parser.feed(chunk)]):
                    await stream.send(events)
                if call.first_token_at is None and answer.begun:
                    call.first_token_at = time.time()
                if answer.error is not None:
                    raise stream_error(answer.error, call.route, call.reading.request.model)
        # Only the usage and the end are missing. The answer is complete whether or not they come.
        with contextlib.suppress(TimeoutError, EngineFailed):
            async with asyncio.timeout(AFTER_FINISH_S):
                while chunk := await reply.chunk():
                    for data in parser.feed(chunk):
                        answer.event(data)
        if not answer.finished:
            raise EngineFailed("the engine closed its answer before it was finished")
