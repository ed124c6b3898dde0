"""One generating call, from the request to the end of its answer: the order of the steps, for every wire format.

Owns: that order. Read the request, attribute it, send it to the model, commit the call, and only then tell the client
that the answer is finished. Refuses: formats (the dialects), which trajectory a call belongs to
(`proxy.attribution.attributor`), sending and streaming (`proxy.serving.model_requests`), what is written (`recorder`).

Recording never breaks a call. While the store is away, a call is served, and attributed and recorded when the store is
back (`recorder.capture.backlog`). A call that cannot be recorded is counted, an alarm is logged, and it is served all
the same. With `recorder.on_failure = "refuse"`, both are refused instead.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Mapping
from functools import partial

from proxy.admission.auth import Caller
from proxy.admission.replies import send_error
from proxy.attribution.attributor import Attributor
from proxy.attribution.conversations import ConversationMatcher
from proxy.attribution.hints import client_of, read_hints
from proxy.dialects.base import NOTHING_SAMPLED, CallReader, Dialect, RecordableAnswer
from proxy.errors import (
    BadGateway,
    CallerError,
    ClientDisconnected,
    EngineFailed,
    EngineRefused,
    NoReplica,
    Unavailable,
    WrongMethod,
)
from proxy.http.asgi import DisconnectWatch, RawHeaders, Receive, Scope, Send, read_body, respond
from proxy.serving.body_reading import dialect_rules, work_beside_loop
from proxy.serving.model_requests import ModelRequester, no_engine_error, unknown_model_error
from proxy.serving.running_call import DeferredAttribution, RunningCall, ServingParts
from proxy.versions.routing import Target
from recorder.base.rate_limited_log import RateLimitedLog
from recorder.errors import RolledBack, StoreError
from recorder.messages.calls import RecordedCall
from recorder.states import CallState, Purpose

log = logging.getLogger(__name__)


async def _ended(work: asyncio.Future[None], limit_s: float) -> bool:
    """Wait at most so many seconds for work that goes on whatever happens here; return whether it ended.

    As a shield within a timeout, and 12 function calls less.
    """
    loop = asyncio.get_running_loop()
    waiter = loop.create_future()

    def wake(_: object = None) -> None:
        if not waiter.done():
            waiter.set_result(None)

    timer = loop.call_later(limit_s, wake)
    work.add_done_callback(wake)
    try:
        await waiter
    finally:
        timer.cancel()
        work.remove_done_callback(wake)
    return work.done()


class CallHandler:
    """Serves the calls of one wire format as a raw ASGI app.

    A format that needs further steps overrides `_reading`, `_run` or `_broken`.
    """

    def __init__(self, dialect: Dialect, parts: ServingParts, requester: ModelRequester) -> None:
        self._dialect = dialect
        self._requester = requester
        self._project_id = parts.project_id
        self._settings = parts.settings
        self._rules = dialect_rules(parts.settings)
        self._overrides = parts.overrides
        self._commit_timeout_s = parts.recorder_settings.commit_timeout_s
        self._refuse = parts.recorder_settings.on_failure == "refuse"
        self._recorder = parts.recorder
        self._versions = parts.versions
        self._metrics = parts.metrics
        self._stop = parts.stop
        self._attributor = Attributor(parts.project_id, parts.recorder, parts.versions)
        self._conversations = ConversationMatcher()
        self._unrecorded = RateLimitedLog(log)
        self._late: set[asyncio.Future[None]] = set()  # commits of calls that are over

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one call."""
        try:
            call = await self._read(scope, receive)
            await self._place(call)
            self._override(call)
        except CallerError as e:
            await self._send_error(send, e)
        except ClientDisconnected:
            return
        else:
            await self._run(call, receive, send)

    # --- before the model

    async def _read(self, scope: Scope, receive: Receive) -> RunningCall:
        if scope["method"] != "POST":
            raise WrongMethod(f"{scope['method']} {self._dialect.path} is not served: use POST.")
        headers = scope["hone.headers"]
        body = await read_body(headers, receive, self._settings.max_body_bytes)
        caller: Caller = scope["hone.caller"]
        reading = await self._reading(body, headers, caller)
        model = reading.request.model
        provider = self._requester.provider(model)
        target = self._target(model, caller) if provider is None else None
        hints = read_hints(headers, reading.request.dialect, reading.request.rest)
        stated, client = scope["hone.stated"], client_of(headers)
        waited_s: float = scope["hone.waited_s"]
        return RunningCall(caller, stated, reading, target, reading.answer(), hints, provider, client, waited_s)

    async def _reading(self, body: bytes, headers: Mapping[bytes, bytes], caller: Caller) -> CallReader:
        return await work_beside_loop(len(body), lambda: self._dialect.read(body, headers, self._rules))

    def _target(self, model: str, caller: Caller) -> Target:
        try:
            target = self._versions.resolve(model)
        except NoReplica as e:
            raise no_engine_error(e) from e
        if target is None:
            raise unknown_model_error(model, self._versions)
        if target.version is not None:
            caller.require_version(model)
        return target

    async def _place(self, call: RunningCall) -> None:
        """Find the call's trajectory and its engine; without the store it gets an engine only."""
        began = time.monotonic()
        may_defer = not self._refuse
        try:
            self._conversations.recognise(call.stated.address, call.reading)
            # a store that is known to be away is not waited for: what needs no I/O ends before the limit
            left_s = 0 if may_defer and self._recorder.is_away() else self._commit_timeout_s - call.waited_s
            async with asyncio.timeout(left_s):
                await self._recorder.caught_up()
                placed = await self._attributor.place(call.target, call.stated, call.reading.request, call.hints)
            call.attribution, call.route = placed.attribution, placed.route
            if placed.no_route is not None:
                self._requester.without_engine(call, no_engine_error(placed.no_route))
        except NoReplica as e:
            raise no_engine_error(e) from e
        except CallerError:
            raise
        except Exception as e:  # a fault in recording must not reach the agent
            if may_defer and isinstance(e, RolledBack | TimeoutError):
                known, named = self._attributor.remembered(call.stated, call.reading.request) or (None, False)
                call.deferred = DeferredAttribution(known, named)
                call.waited_s += time.monotonic() - began
            else:
                refused = self._alarm(call, "attribution", e)
                if refused is not None:
                    raise refused from e
            if call.target is not None:
                self._requester.find_engine(call)

    def _override(self, call: RunningCall) -> None:
        """Replace the sampling values of a call that may be trained on by the alias's values."""
        if call.target is None or call.purpose is not Purpose.TRAIN:
            return
        if values := self._overrides.get(call.target.alias.name):
            call.reading.override(values)

    # --- the model

    async def _run(self, call: RunningCall, receive: Receive, send: Send) -> None:
        if call.attribution is not None:
            self._recorder.begin(call.turn(self._project_id, CallState.OPEN, NOTHING_SAMPLED))
        try:
            async with DisconnectWatch(receive, self._stop):
                await self._requester.ask(call, send)
        except ClientDisconnected as e:
            call.error = str(e)
        except CallerError as e:
            call.failure, call.error = e, str(e)
        except EngineFailed as e:
            call.failure, call.error = BadGateway(f"{e}. The answer is incomplete: send the request again."), str(e)
        except Exception as e:  # a bug must neither leave the call open nor the client without an answer
            log.exception("call %s failed by a bug in Hone", call.id)
            call.error = f"a bug in Hone: {type(e).__name__}: {e}"
            call.failure = EngineRefused(
                f"{call.error}. The proxy's log has the traceback.", status=500, kind="server_error"
            )
        state, sampled = self._state(call), call.answer.sampled()
        refused = await self._record(call, state, sampled)
        self._count(call, state, sampled)
        await self._finish(call, send, refused)

    # --- after the answer

    def _state(self, call: RunningCall) -> CallState:
        if call.answer.finished and (call.streaming or call.body):
            call.error = call.failure = None  # the answer is complete, even if something failed after it
            return CallState.COMPLETE
        return CallState.ABORTED if call.failure is None else CallState.ERRORED

    async def _record(self, call: RunningCall, state: CallState, sampled: RecordableAnswer) -> CallerError | None:
        """Commit the call, or stop waiting for it. Returns the client's error if unrecorded calls are refused."""
        if call.attribution is None and call.deferred is None:
            return None
        turn = call.turn(self._project_id, state, sampled)
        began = time.perf_counter()
        committing = asyncio.ensure_future(self._commit(call, turn))
        try:
            if not await _ended(committing, self._commit_timeout_s - call.waited_s):
                raise TimeoutError
            committing.result()
        except TimeoutError as e:
            self._metrics.late()
            self._late.add(committing)
            committing.add_done_callback(partial(self._after_all, call))
            refused = self._refusal(e)
            if refused is None:
                self._conversations.note(call.stated.address, call.reading, sampled)
                if call.deferred is None:
                    self._recorder.answered_early(committing)
            return refused
        except Exception as e:  # noqa: BLE001 - a fault in recording must not reach the agent
            return self._alarm(call, "store", e)
        self._metrics.committed(time.perf_counter() - began)
        self._conversations.note(call.stated.address, call.reading, sampled)
        return None

    async def _commit(self, call: RunningCall, turn: RecordedCall) -> None:
        if call.deferred is None:
            await self._recorder.commit(turn)
            return
        attribute = partial(
            self._attributor.attribute_later, call.target, call.stated, turn.request, call.hints, turn.version_id
        )
        await self._recorder.commit_later(turn, attribute)

    def _after_all(self, call: RunningCall, committing: asyncio.Future[None]) -> None:
        """Handle the end of a late commit: only a failed one counts as an unrecorded call."""
        self._late.discard(committing)
        if not committing.cancelled() and (error := committing.exception()) is not None:
            self._alarm(call, "timeout", error)

    def _alarm(self, call: RunningCall, why: str, error: BaseException) -> CallerError | None:
        """Count and log an unrecorded call; return the client's error if such calls are refused."""
        self._metrics.unrecorded(why)
        self._unrecorded(
            logging.ERROR,
            "call %s is %s and NOT RECORDED (%s): %s. See hone_unrecorded_calls in /metrics.",
            call.id,
            "refused" if self._refuse else "served",
            why,
            str(error) or type(error).__name__,
            error=None if isinstance(error, StoreError | TimeoutError) else error,
        )
        return self._refusal(error)

    def _refusal(self, error: BaseException) -> CallerError | None:
        """The client's error for a call that cannot be recorded, if such calls are refused."""
        if not self._refuse:
            return None
        reason = str(error) or f"no commit within {self._commit_timeout_s:g} s"
        return Unavailable(
            f"the call cannot be recorded, and unrecorded calls are refused: {reason}", code="unrecorded"
        )

    def _count(self, call: RunningCall, state: CallState, sampled: RecordableAnswer) -> None:
        first_s = call.first_token_at - call.started_at if call.first_token_at is not None else None
        elapsed_s = time.time() - call.started_at
        self._metrics.call(self._dialect.name, call.served_by(), str(state), elapsed_s, first_s)
        usage = sampled.usage or {}
        self._metrics.tokens(usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0)

    async def _finish(self, call: RunningCall, send: Send, refused: CallerError | None) -> None:
        """Send the end of the answer, or the error. It has no effect if the client has disconnected."""
        failure = refused or call.failure
        if call.streaming:
            end = self._broken(call, failure) if failure is not None else call.answer.tail()
            await send({"type": "http.response.body", "body": end})
        elif failure is not None:
            await self._send_error(send, failure, call.headers())
        else:
            await respond(send, 200, call.body, headers=call.headers())

    def _broken(self, call: RunningCall, failure: CallerError) -> bytes:
        """The end of a stream that broke off."""
        return self._dialect.error_events(failure)

    async def _send_error(self, send: Send, error: CallerError, headers: RawHeaders | None = None) -> None:
        self._metrics.refused(error.status)
        await send_error(send, self._dialect.path, error, headers)
