"""One generating call, from the request to the end of its answer: the order of things, for every wire format.

Owns: that order. Read, place, send, pass on, commit, and only then tell the client that the answer is finished; and
when another provider's model answers in the engine's place.
Refuses: formats (the dialects), whose call it is (`proxy.attribution.attributor`), what is written (`recorder`).

Capture never breaks what it captures: when the store fails, the call is served all the same (unless
`recorder.on_failure = "refuse"`), counted, and alarmed on.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Mapping, Sequence

from proxy.admission.auth import Caller
from proxy.admission.replies import say
from proxy.attribution.attributor import Attributor
from proxy.attribution.conversations import Conversations
from proxy.attribution.hints import read_hints
from proxy.dialects.base import NOTHING_SAMPLED, Dialect, Reading, Rules, Sampled
from proxy.engine.client import Reply
from proxy.engine.providers import ProviderReply
from proxy.errors import (
    BadGateway,
    BadRequest,
    CallerError,
    ClientGone,
    EngineBroke,
    EngineSaid,
    EngineUnreachable,
    NoReplica,
    Unavailable,
    WrongMethod,
)
from proxy.http import sse
from proxy.http.asgi import Connected, RawHeaders, Receive, Scope, Send, begin_stream, read_body, respond
from proxy.http.keep_alive import Pulse
from proxy.serving.call import Call, Parts
from proxy.serving.continuity import refused
from proxy.serving.refusals import engine_said, in_stream, stopping, unknown_model
from proxy.versions.in_service import Route, Target
from recorder.errors import StoreError
from recorder.states import CallState, Purpose

log = logging.getLogger(__name__)

AFTER_FINISH_S = 2.0  # how long an answer whose every choice is finished may take to say so
CHAT_PATH = "/v1/chat/completions"
ALARM_EVERY_S = 10.0  # a failing store is logged at most this often


class Calls:
    """Serves the calls of one wire format as a raw ASGI app."""

    def __init__(self, dialect: Dialect, parts: Parts) -> None:
        self._dialect = dialect
        self._project_id = parts.project_id
        self._settings = parts.settings
        self._takes_providers = dialect.engine_path == CHAT_PATH  # the form that LiteLLM translates
        settings = parts.settings
        self._rules = Rules(settings.defaults, frozenset(settings.allowed_media_hosts), settings.strict_tools)
        self._commit_timeout_s = parts.recorder_settings.commit_timeout_s
        self._refuse = parts.recorder_settings.on_failure == "refuse"
        self._recorder = parts.recorder
        self._versions = parts.versions
        self._client = parts.client
        self._providers = parts.providers
        self._metrics = parts.metrics
        self._continuity = parts.continuity
        self._traces = parts.traces
        self._attributor = Attributor(parts.project_id, parts.recorder, parts.versions)
        self._conversations = Conversations()
        self._alarmed_at = float("-inf")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        try:
            call = await self._read(scope, receive)
            await self._place(call)
        except CallerError as e:
            await self._say(send, e)
        except ClientGone:
            return
        except asyncio.CancelledError:
            await self._say(send, stopping())
        else:
            await self._run(call, receive, send)

    # --- before the engine

    async def _read(self, scope: Scope, receive: Receive) -> Call:
        if scope["method"] != "POST":
            raise WrongMethod(f"{scope['method']} {self._dialect.path} is not served: use POST.")
        headers = scope["hone.headers"]
        body = await read_body(headers, receive, self._settings.max_body_bytes)
        reading = await self._reading(body, headers)
        caller: Caller = scope["hone.caller"]
        model = reading.request.model
        provider = self._providers.named(model)
        if provider is not None and not self._takes_providers:
            raise BadRequest(f"{model!r} is another provider's model: it is served by /v1/chat/completions.")
        target = self._target(model, caller) if provider is None else None
        hints = read_hints(headers, reading.request.dialect, reading.request.rest)
        trace = headers.get(b"traceparent")
        return Call(caller, scope["hone.stated"], reading, target, reading.answer(), hints, provider, trace)

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes]) -> Reading:
        return self._dialect.read(body, headers, self._rules)

    def _target(self, model: str, caller: Caller) -> Target:
        target = self._versions.resolve(model)
        if target is None:
            raise unknown_model(model, self._versions)
        if target.version is not None:
            caller.require_version(model)
        return target

    async def _place(self, call: Call) -> None:
        """Find the call's run and its engine; without the store it gets an engine and no run."""
        try:
            self._conversations.recognise(call.stated.address, call.reading)
            async with asyncio.timeout(self._commit_timeout_s):
                placed = await self._attributor.place(call.target, call.stated, call.reading.request, call.hints)
            call.attribution, call.route = placed.attribution, placed.route
            if placed.no_route is not None:
                self._without_engine(call, _unavailable(placed.no_route))
        except NoReplica as e:
            raise _unavailable(e) from e
        except CallerError:
            raise
        except Exception as e:  # whatever is wrong with recording must not reach the agent
            refused = self._alarm(call, "attribution", e)
            if refused is not None:
                raise refused from e
            if call.target is not None:
                self._route_unplaced(call, call.target)

    def _route_unplaced(self, call: Call, target: Target) -> None:
        try:
            call.route = self._route(call, target)
        except Unavailable as e:
            self._without_engine(call, e)

    def _route(self, call: Call, target: Target) -> Route:
        """The route of a call: its run's version, or what is live where there is no run. Raises Unavailable."""
        pinned = call.attribution.trajectory.version_id if call.attribution is not None else None
        try:
            return self._versions.route(target.alias, pinned, target.version)
        except NoReplica as e:
            raise _unavailable(e) from e

    def _without_engine(self, call: Call, why: CallerError | EngineBroke) -> None:
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

    # --- the engine

    async def _run(self, call: Call, receive: Receive, send: Send) -> None:
        if call.attribution is not None:
            self._recorder.begin(call.turn(self._project_id, CallState.OPEN, NOTHING_SAMPLED))
        try:
            async with Connected(receive):
                await self._ask(call, send)
        except ClientGone as e:
            call.error = str(e)
        except CallerError as e:
            call.failure, call.error = e, str(e)
        except EngineBroke as e:
            call.failure, call.error = BadGateway(f"{e}. The call was not finished; try again."), str(e)
        except asyncio.CancelledError:
            call.failure = stopping()
            call.error = str(call.failure)
        except Exception as e:  # a fault of ours must neither leave the call open nor the client without an answer
            log.exception("call %s failed by a fault in Hone", call.id)
            call.error = f"a fault in Hone: {type(e).__name__}: {e}"
            call.failure = EngineSaid(f"{call.error}. Its log has more.", status=500, kind="server_error")
        state, sampled = self._state(call), call.answer.sampled()
        refused = await self._record(call, state, sampled)
        self._count(call, state, sampled)
        await self._finish(call, send, refused)

    async def _ask(self, call: Call, send: Send) -> None:
        """Send the call to its engine, or to the provider in its place."""
        if call.provider is None:
            try:
                await self._ask_engines(call, send)
                return
            except (CallerError, EngineBroke) as e:
                self._without_engine(call, e)
        await self._ask_provider(call, send)

    async def _ask_engines(self, call: Call, send: Send) -> None:
        """Send the call to its engine; where that cannot be reached, to another that holds the version."""
        tried: set[str] = set()
        while True:
            assert call.route is not None
            assert call.target is not None
            tried.add(call.route.replica_url)
            try:
                await self._ask_one(call, call.route, send)
                return
            except EngineUnreachable as e:
                self._versions.failed(call.route)
                other = self._route(call, call.target)
                if other.replica_url in tried:
                    raise Unavailable(f"{e}. Try again in a moment.", code="engine_unavailable") from e
                call.route = other

    async def _ask_one(self, call: Call, route: Route, send: Send) -> None:
        with self._versions.hold(route):
            ids = await self._prompt_ids(call, route)
            reply = await self._send(call, route, ids)
            if ids is not None and 400 <= reply.status < 500:  # whatever it dislikes: continuity fails no call
                async with reply:
                    call.continued = refused(call.continued)
                reply = await self._send(call, route, None)
            async with reply:
                call.http_status = reply.status
                if reply.status != 200:
                    raise engine_said(reply.status, await reply.body(), route, call.reading.request.model)
                await self._take(call, reply, send)

    async def _send(self, call: Call, route: Route, ids: Sequence[int] | None) -> Reply:
        body = call.reading.engine_body(route.engine_model, ids)
        return await self._client.send(route.replica_url, self._dialect.engine_path, body, key=route.engine_key)

    async def _prompt_ids(self, call: Call, route: Route) -> Sequence[int] | None:
        """The prompt's ids where the call goes on from recorded ones; None: the engine renders its messages."""
        if self._continuity is None or call.reading.chat is None:
            return None
        call.continued = await self._continuity.prompt(call.reading.chat, call.attribution, route)
        return call.continued.ids

    async def _ask_provider(self, call: Call, send: Send) -> None:
        """Send the call to a provider. Where it stands in for an engine, its refusal is not the client's fault."""
        provider = call.provider
        assert provider is not None
        call.provided = provider.meta()
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

    async def _take(self, call: Call, reply: Reply | ProviderReply, send: Send) -> None:
        """Take an answer that has begun, and pass it on where it streams."""
        if call.reading.request.stream:
            await begin_stream(send, call.headers())
            call.streaming = True
            await self._pass_on(call, reply, send)
        else:
            call.body = call.answer.body(await reply.body())

    async def _pass_on(self, call: Call, reply: Reply | ProviderReply, send: Send) -> None:
        """Give the client the events as they come, up to the one that carries the last finish."""
        parser, answer = sse.Parser(), call.answer
        with Pulse(send) as pulse:
            while not (answer.finished or answer.over):
                chunk = await reply.chunk()
                if not chunk:
                    raise EngineBroke("the engine ended its answer before it was finished")
                if events := b"".join([answer.event(data) for data in parser.feed(chunk)]):
                    await pulse.send(events)
                if call.first_token_at is None and answer.begun:
                    call.first_token_at = time.time()
                if answer.error is not None:
                    raise in_stream(answer.error, call.route, call.reading.request.model)
        # All that is left is the usage and the end. The turn is complete whether or not they come.
        with contextlib.suppress(TimeoutError, EngineBroke):
            async with asyncio.timeout(AFTER_FINISH_S):
                while chunk := await reply.chunk():
                    for data in parser.feed(chunk):
                        answer.event(data)
        if not answer.finished:
            raise EngineBroke("the engine ended its answer before it was finished")

    # --- after the engine

    def _state(self, call: Call) -> CallState:
        if call.answer.finished and (call.streaming or call.body):
            call.error = call.failure = None  # whatever broke then, the turn is whole
            return CallState.COMPLETE
        return CallState.ABORTED if call.failure is None else CallState.ERRORED

    async def _record(self, call: Call, state: CallState, sampled: Sampled) -> CallerError | None:
        """Commit the turn, or give up waiting for it. Returns what the client is told if that is to be refused."""
        if call.attribution is None:
            return None
        turn = call.turn(self._project_id, state, sampled)
        began = time.perf_counter()
        try:
            async with asyncio.timeout(self._commit_timeout_s):
                await self._recorder.commit(turn)
        except TimeoutError as e:
            return self._alarm(call, "timeout", e)
        except Exception as e:  # noqa: BLE001 - whatever is wrong with recording must not reach the agent
            return self._alarm(call, "store", e)
        self._metrics.committed(time.perf_counter() - began)
        self._traces.seen(call.traceparent, call.attribution.trajectory.id)
        self._conversations.note(call.stated.address, call.reading, sampled)
        return None

    def _alarm(self, call: Call, why: str, error: Exception) -> CallerError | None:
        """Count and log a call that is not recorded; the error for the client where calls are refused then."""
        self._metrics.unrecorded(why)
        now = time.monotonic()
        if now - self._alarmed_at >= ALARM_EVERY_S:
            self._alarmed_at = now
            unexpected = not isinstance(error, StoreError | TimeoutError)
            log.error(
                "call %s is %s and NOT RECORDED (%s): %s. See hone_unrecorded_calls in /metrics.",
                call.id,
                "refused" if self._refuse else "served",
                why,
                error or type(error).__name__,
                exc_info=error if unexpected else None,
            )
        if not self._refuse:
            return None
        reason = str(error) or f"no commit within {self._commit_timeout_s:g} s"
        return Unavailable(
            f"the call cannot be recorded, and unrecorded calls are refused: {reason}", code="unrecorded"
        )

    def _count(self, call: Call, state: CallState, sampled: Sampled) -> None:
        first_s = call.first_token_at - call.started_at if call.first_token_at is not None else None
        elapsed_s = time.time() - call.started_at
        self._metrics.call(self._dialect.name, call.served_by(), state.value, elapsed_s, first_s)
        usage = sampled.usage or {}
        self._metrics.tokens(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)

    async def _finish(self, call: Call, send: Send, refused: CallerError | None) -> None:
        """Tell the client how it ended. To one that is gone this says nothing, and costs nothing."""
        failure = refused or call.failure
        if call.streaming:
            end = self._broken(call, failure) if failure is not None else call.answer.tail()
            await send({"type": "http.response.body", "body": end})
        elif failure is not None:
            await self._say(send, failure, call.headers())
        else:
            await respond(send, 200, call.body, headers=call.headers())

    def _broken(self, call: Call, failure: CallerError) -> bytes:
        """The end of a stream that broke off."""
        return self._dialect.error_events(failure)

    async def _say(self, send: Send, error: CallerError, headers: RawHeaders | None = None) -> None:
        self._metrics.refused(error.status)
        await say(send, self._dialect.path, error, headers)


def _unavailable(error: NoReplica) -> Unavailable:
    return Unavailable(str(error), code="engine_unavailable")
