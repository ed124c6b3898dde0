"""Who answers a call, and asking them: its engine, another replica of it, or the provider in the engine's place.

Owns: which of them is asked and in which order, what each is sent, and taking its answer: a whole one into the call, a
stream event by event to the client, up to the last finish. Refuses: whose call it is, what is recorded, and the end of
an answer: the client is told that when the turn is committed (`proxy.serving.calls`).
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import Final

from proxy.engine.client import EngineReply
from proxy.engine.providers import Provider, ProviderReply
from proxy.errors import BadRequest, CallerError, EngineFailed, EngineUnreachable, NoReplica, Unavailable
from proxy.http import sse
from proxy.http.asgi import Send, begin_stream
from proxy.http.sse import KeepAliveStream
from proxy.serving.continuity import without_ids
from proxy.serving.refusals import engine_refusal, no_engine_error, stream_error
from proxy.serving.running_call import RunningCall, ServingParts
from proxy.versions.routing import Route
from recorder.states import Purpose

AFTER_FINISH_S: Final = 2.0  # how long an answer whose every choice is finished may take to say so
CHAT_PATH: Final = "/v1/chat/completions"


class ModelRequester:
    """Asks for the calls of one wire format. What is found out about a call is written on it.

    A format that must know or say more about an engine overrides `ask_engine`.
    """

    def __init__(self, engine_path: str, parts: ServingParts) -> None:
        self._engine_path = engine_path
        self._takes_providers = engine_path == CHAT_PATH  # the form that LiteLLM translates
        self._versions = parts.versions
        self._client = parts.client
        self._providers = parts.providers
        self._continuity = parts.continuity
        self._metrics = parts.metrics

    # --- who

    def provider(self, model: str) -> Provider | None:
        """The provider whose model goes by this name. Raises BadRequest where this format cannot ask it."""
        provider = self._providers.named(model)
        if provider is not None and not self._takes_providers:
            raise BadRequest(f"{model!r} is another provider's model: it is served by {CHAT_PATH}.")
        return provider

    def find_engine(self, call: RunningCall) -> None:
        """Give a call that was not placed its engine, or the provider in its place. Raises Unavailable."""
        try:
            call.route = self._route(call)
        except Unavailable as e:
            self.without_engine(call, e)

    def _route(self, call: RunningCall) -> Route:
        """The route of a call: its run's version, or what is live where there is no run. Raises Unavailable."""
        assert call.target is not None
        pinned = call.attribution.trajectory.version_id if call.attribution is not None else None
        try:
            return self._versions.route(call.target.alias, pinned, call.target.version)
        except NoReplica as e:
            raise no_engine_error(e) from e

    def without_engine(self, call: RunningCall, why: CallerError | EngineFailed) -> None:
        """Turn to the provider that answers in the engine's place. Raises `why` where none may.

        One may where nothing was sent yet and the fault is not the request's; never where a version was asked for by
        name, or is measured.
        """
        if call.target is None or call.target.version is not None or not self._takes_providers or call.streaming:
            raise why
        measured = call.attribution is not None and call.attribution.trajectory.purpose in (Purpose.VAL, Purpose.EVAL)
        provider = self._providers.in_place_of(call.target.alias.name)
        if provider is None or measured or (isinstance(why, CallerError) and why.status < 500):
            raise why
        call.provider, call.fell_back, call.route = provider, str(why), None
        call.answer, call.http_status = call.reading.answer(), None
        self._metrics.fell_back(call.target.alias.name, provider.name)

    # --- asking them

    async def ask(self, call: RunningCall, send: Send) -> None:
        """Send the call to its engine, or to the provider in its place. Raises CallerError, EngineBroke.

        When this returns, the answer is finished; the client has of it what streamed before its last finish.
        """
        if call.provider is None:
            try:
                await self._ask_engines(call, send)
                return
            except (CallerError, EngineFailed) as e:
                self.without_engine(call, e)
        await self._ask_provider(call, send)

    async def _ask_engines(self, call: RunningCall, send: Send) -> None:
        """Send the call to its engine; where that cannot be reached, to another that holds the version."""
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
                    raise Unavailable(f"{e}. Try again in a moment.", code="engine_unavailable") from e
                call.route = other

    async def ask_engine(self, call: RunningCall, route: Route, send: Send) -> None:
        """Send the call to one engine. Raises CallerError, EngineUnreachable, EngineBroke."""
        with self._versions.hold(route):
            ids = await self._prompt_ids(call, route)
            reply = await self._send(call, route, ids)
            if ids is not None and 400 <= reply.status < 500:  # whatever it dislikes: continuity fails no call
                async with reply:
                    call.continued = without_ids(call.continued)
                reply = await self._send(call, route, None)
            async with reply:
                call.http_status = reply.status
                if reply.status != 200:
                    raise engine_refusal(reply.status, await reply.body(), route, call.reading.request.model)
                await self._take(call, reply, send)

    async def _send(self, call: RunningCall, route: Route, ids: Sequence[int] | None) -> EngineReply:
        body = call.reading.engine_body(route.engine_model, ids)
        return await self._client.send(route.replica_url, self._engine_path, body, key=route.engine_key)

    async def _prompt_ids(self, call: RunningCall, route: Route) -> Sequence[int] | None:
        """The prompt's ids where the call goes on from recorded ones; None: the engine renders its messages."""
        if self._continuity is None or call.reading.chat is None:
            return None
        call.continued = await self._continuity.prompt(call.reading.chat, call.attribution, route)
        return call.continued.ids

    async def _ask_provider(self, call: RunningCall, send: Send) -> None:
        """Send the call to a provider. Where it stands in for an engine, its refusal is not the client's fault."""
        provider = call.provider
        assert provider is not None
        call.provided = provider.meta()
        call.reading.as_asked()
        try:
            reply = await provider.send(call.reading.engine_body(provider.model), call.reading.request)
        except CallerError as e:
            call.http_status = e.status
            if call.fell_back is None:
                raise
            raise Unavailable(f"{call.fell_back} Its fallback could not answer either: {e}") from e
        call.http_status = 200
        async with reply:
            await self._take(call, reply, send)
        call.provided |= reply.meta()

    # --- their answer

    async def _take(self, call: RunningCall, reply: EngineReply | ProviderReply, send: Send) -> None:
        """Take an answer that has begun, and pass it on where it streams."""
        if call.reading.request.stream:
            await begin_stream(send, call.headers())
            call.streaming = True
            await self._pass_on(call, reply, send)
        else:
            call.body = call.answer.body(await reply.body())

    async def _pass_on(self, call: RunningCall, reply: EngineReply | ProviderReply, send: Send) -> None:
        """Give the client the events as they come, up to the one that carries the last finish."""
        parser, answer = sse.Parser(), call.answer
        with KeepAliveStream(send) as pulse:
            while not (answer.finished or answer.over):
                chunk = await reply.chunk()
                if not chunk:
                    raise EngineFailed("the engine ended its answer before it was finished")
                if events := b"".join([answer.event(data) for data in parser.feed(chunk)]):
                    await pulse.send(events)
                if call.first_token_at is None and answer.begun:
                    call.first_token_at = time.time()
                if answer.error is not None:
                    raise stream_error(answer.error, call.route, call.reading.request.model)
        # All that is left is the usage and the end. The turn is complete whether or not they come.
        with contextlib.suppress(TimeoutError, EngineFailed):
            async with asyncio.timeout(AFTER_FINISH_S):
                while chunk := await reply.chunk():
                    for data in parser.feed(chunk):
                        answer.event(data)
        if not answer.finished:
            raise EngineFailed("the engine ended its answer before it was finished")
