"""One shadow answer: a recorded call answered again by its own version, with lower priority than agents, and recorded.

Owns: waiting for an idle engine, asking it, and what is recorded. Refuses: which calls (`proxy.shadow.shadower`), and
running the tools that an answer calls: they are never run.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final

from proxy.dialects.base import RecordableAnswer
from proxy.dialects.chat import ChatDialect, ChatReader
from proxy.engine.client import Client
from proxy.errors import EngineFailed, ProxyError
from proxy.metrics import Metrics
from proxy.serving.model_requests import engine_refusal
from proxy.shadow.request_replay import replay_request
from proxy.versions.routing import Route, ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import Address, Attribution, ParentCall, RecordedCall, TrajectoryRef
from recorder.states import CallState, Confidence, Origin, TrajectoryState
from recorder.views.trajectories.shapes import CallView

IDLE_LOOK_S: Final = 0.1  # between two checks whether the engine is idle enough
BEGUN_PATIENCE_S: Final = 600.0  # how long an answer waits for room once others of its group have begun
SOURCE: Final = "shadow"  # the recorded source of its attribution
_ADDRESS: Final = Address(origin=Origin.SHADOW, done=True)


class ProxyStopping(ProxyError):
    """The proxy is stopping and sends no further requests."""


class EngineBusy(ProxyError):
    """The engine was never idle enough."""


@dataclass(frozen=True, slots=True)
class ShadowRequest:
    """A call to be answered again, and where."""

    call: CallView
    alias: str
    route: Route
    max_in_flight: int


class ShadowAnswerer:
    """Asks engines for shadow answers, and records them. Failures are recorded too, and not raised."""

    def __init__(
        self, project_id: str, client: Client, recorder: Recorder, versions: ServiceRouter, metrics: Metrics
    ) -> None:
        self._project_id = project_id
        self._client = client
        self._recorder = recorder
        self._versions = versions
        self._metrics = metrics

    async def answer(self, ask: ShadowRequest, into: TrajectoryRef, stopping: asyncio.Event) -> None:
        """Answer a call again as the trajectory `into`, which then has ended. Raises StoreError."""
        began = time.time()
        try:
            reading = replay_request(ask.call, ask.alias)
            sampled = await _unless(stopping, self._asked(ask, reading, stopping))
        except ProxyError as e:
            self._metrics.shadow_answer(ask.alias, TrajectoryState.ERRORED)
            await self._recorder.close(self._project_id, into.id, TrajectoryState.ERRORED, str(e))
            return
        await self._recorder.commit(self._recorded_call(ask, into, reading, sampled, began))
        usage = sampled.usage or {}
        spent = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        self._metrics.shadow_answer(ask.alias, TrajectoryState.COMPLETED, *spent)

    async def has_room(self, ask: ShadowRequest, within_s: float, stopping: asyncio.Event) -> bool:
        """Wait until the engine is idle enough; False if it is not in time, or the proxy stops."""
        until = time.monotonic() + within_s
        while self._versions.busy(ask.route) >= ask.max_in_flight:
            if stopping.is_set() or time.monotonic() >= until:
                return False
            await asyncio.sleep(IDLE_LOOK_S)  # polling: requests send no signal when they end
        return True

    async def _asked(self, ask: ShadowRequest, reading: ChatReader, stopping: asyncio.Event) -> RecordableAnswer:
        route, ids = ask.route, list(ask.call.prompt_token_ids or ())
        if not await self.has_room(ask, BEGUN_PATIENCE_S, stopping):
            raise EngineBusy(f"the engine at {route.replica_url} was not idle enough for {BEGUN_PATIENCE_S:g} s")
        with self._versions.hold(
            route
        ):  # without an await since the check, so that the limit holds for concurrent answers
            body = reading.engine_body(route.engine_model, ids)
            reply = await self._client.send(route.replica_url, ChatDialect.engine_path, body, key=route.engine_key)
            async with reply:
                reply_body = await reply.body()
        if reply.status != 200:
            raise engine_refusal(reply.status, reply_body, route, ask.alias)
        answer = reading.answer()
        answer.body(reply_body)
        return _of_these(answer.sampled(), ids)

    def _recorded_call(
        self, ask: ShadowRequest, into: TrajectoryRef, reading: ChatReader, sampled: RecordableAnswer, began: float
    ) -> RecordedCall:
        call, route = ask.call, ask.route
        call_id = new_id("call")
        parent = ParentCall(call.parent_call_id, call.parent_choice or 0) if call.parent_call_id is not None else None
        return RecordedCall(
            call_id=call_id,
            project_id=self._project_id,
            address=_ADDRESS,
            attribution=Attribution(SOURCE, Confidence.STATED, into, parent),
            # unique, so that it is never taken for a retry of a client's request
            request=replace(reading.request, body_hash=blake2b(call_id.encode(), digest_size=16).digest()),
            state=CallState.COMPLETE,
            alias_id=call.alias_id,
            version_id=route.version.id,
            base_fingerprint=route.base_fingerprint,
            prompt_token_ids=sampled.prompt_token_ids,
            choices=sampled.choices,
            usage=sampled.usage,
            response_meta=sampled.response_meta,
            http_status=200,
            error=None,
            started_at=began,
            first_token_at=None,
            finished_at=time.time(),
        )


def _of_these(sampled: RecordableAnswer, ids: Sequence[int]) -> RecordableAnswer:
    """The sampled answer, if its prompt is exactly these ids. Raises EngineFailed."""
    if list(sampled.prompt_token_ids or ()) != list(ids):
        raise EngineFailed("the engine's prompt differs from the recorded ids")
    return sampled


async def _unless(stopping: asyncio.Event, asking: Coroutine[None, None, RecordableAnswer]) -> RecordableAnswer:
    """Wait for an answer, or cancel it when the proxy stops. Raises ProxyStopping."""
    answering, stop = asyncio.ensure_future(asking), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({answering, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not answering.done():
            raise ProxyStopping("the proxy stopped before the answer was complete")
        return answering.result()
    finally:
        answering.cancel()
        stop.cancel()
        await asyncio.gather(answering, stop, return_exceptions=True)
