"""One further answer to a recorded turn: asked of the turn's own version beside the agents' calls, and recorded.

Owns: asking for one while the engine is idle enough, and what is recorded of it. Refuses: which turns (`draw.py`,
`shadower.py`), and calling the tools that an answer asks for: nobody does.
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
from proxy.serving.refusals import engine_refusal
from proxy.shadow.request_replay import replay_request
from proxy.versions.routing import Route, ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import Address, Attribution, ParentCall, RecordedCall, TrajectoryRef
from recorder.states import CallState, Confidence, Origin, TrajectoryState
from recorder.views.trajectories.shapes import CallView

IDLE_LOOK_S: Final = 0.1  # between two looks whether the engine is idle enough
BEGUN_PATIENCE_S: Final = 600.0  # how long an answer waits for room once others to the turn are asked for
SOURCE: Final = "shadow"  # how such a call came to its run
_ADDRESS: Final = Address(origin=Origin.SHADOW, done=True)


class ProxyStopping(ProxyError):
    """The proxy stops: nothing more is asked for."""


class EngineBusy(ProxyError):
    """The engine was never idle enough."""


@dataclass(frozen=True, slots=True)
class ShadowRequest:
    """A turn to be answered again, and where."""

    call: CallView
    alias: str
    route: Route
    max_in_flight: int


class ShadowAnswerer:
    """Asks engines for further answers, and records them. What fails is recorded too, and raises nothing."""

    def __init__(
        self, project_id: str, client: Client, recorder: Recorder, versions: ServiceRouter, metrics: Metrics
    ) -> None:
        self._project_id = project_id
        self._client = client
        self._recorder = recorder
        self._versions = versions
        self._metrics = metrics

    async def answer(self, ask: ShadowRequest, into: TrajectoryRef, stopping: asyncio.Event) -> None:
        """Answer a turn again; the run `into` is that answer, and has ended then. Raises StoreError."""
        began = time.time()
        try:
            reading = replay_request(ask.call, ask.alias)
            sampled = await _unless(stopping, self._asked(ask, reading, stopping))
        except ProxyError as e:
            self._metrics.shadow_answer(ask.alias, TrajectoryState.ERRORED)
            await self._recorder.close(self._project_id, into.id, TrajectoryState.ERRORED, str(e))
            return
        await self._recorder.commit(self._turn(ask, into, reading, sampled, began))
        usage = sampled.usage or {}
        spent = usage.get("prompt_tokens") or 0, usage.get("completion_tokens") or 0
        self._metrics.shadow_answer(ask.alias, TrajectoryState.COMPLETED, *spent)

    async def has_room(self, ask: ShadowRequest, within_s: float, stopping: asyncio.Event) -> bool:
        """Wait until the engine is idle enough; False where it is not in time, or the proxy stops."""
        until = time.monotonic() + within_s
        while self._versions.busy(ask.route) >= ask.max_in_flight:
            if stopping.is_set() or time.monotonic() >= until:
                return False
            await asyncio.sleep(IDLE_LOOK_S)  # requests tell nobody when they end
        return True

    async def _asked(self, ask: ShadowRequest, reading: ChatReader, stopping: asyncio.Event) -> RecordableAnswer:
        route, ids = ask.route, list(ask.call.prompt_token_ids or ())
        if not await self.has_room(ask, BEGUN_PATIENCE_S, stopping):
            raise EngineBusy(f"the engine at {route.replica_url} was not idle enough for {BEGUN_PATIENCE_S:g} s")
        with self._versions.hold(route):  # nothing is awaited in between: the bound holds for several at once
            body = reading.engine_body(route.engine_model, ids)
            reply = await self._client.send(route.replica_url, ChatDialect.engine_path, body, key=route.engine_key)
            async with reply:
                said = await reply.body()
        if reply.status != 200:
            raise engine_refusal(reply.status, said, route, ask.alias)
        answer = reading.answer()
        answer.body(said)
        return _of_these(answer.sampled(), ids)

    def _turn(
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
            # no client's request is equal to it: it is no attempt at one
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
    """What was sampled, where it answers these very ids. Raises EngineBroke."""
    if list(sampled.prompt_token_ids or ()) != list(ids):
        raise EngineFailed("the engine answered another prompt than the recorded ids")
    return sampled


async def _unless(stopping: asyncio.Event, asking: Coroutine[None, None, RecordableAnswer]) -> RecordableAnswer:
    """Wait for an answer, or give it up where the proxy stops. Raises Stopped."""
    asked, stop = asyncio.ensure_future(asking), asyncio.ensure_future(stopping.wait())
    try:
        await asyncio.wait({asked, stop}, return_when=asyncio.FIRST_COMPLETED)
        if not asked.done():
            raise ProxyStopping("the proxy stopped before the answer was whole")
        return asked.result()
    finally:
        asked.cancel()
        stop.cancel()
        await asyncio.gather(asked, stop, return_exceptions=True)
