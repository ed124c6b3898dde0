"""Judge calls to the base of an alias (`NAME@0`): `POST /hone/v1/judge/chat/completions`.

Owns: keeping judge calls apart from agents' traffic: they have no trajectory, no record but the judge's own and no
share in the metrics of agents' calls; and giving agents' calls priority. Refuses: any model but a base, and judging.

The prompt and the reply of a judge are stored with its score. A judge call waits while the engine answers `BUSY`
requests of this proxy, and at most `AT_ONCE` run at a time. It waits `PATIENCE_S` at most: otherwise an engine that is
never idle would leave groups unscored for ever.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import Final

from proxy.admission.auth import Caller
from proxy.admission.replies import send_error
from proxy.dialects.base import RecordableAnswer
from proxy.dialects.chat import ChatDialect
from proxy.errors import BadRequest, CallerError
from proxy.http.asgi import RawHeaders, Receive, Send
from proxy.serving.calls import CallHandler
from proxy.serving.model_requests import CHAT_PATH, ModelRequester
from proxy.serving.running_call import RunningCall, ServingParts
from proxy.versions.routing import Target
from recorder.states import CallState

PATH: Final = "/hone/v1/judge/chat/completions"
AT_ONCE: Final = 2  # judge calls that one proxy runs at a time
BUSY: Final = 4  # running requests at an engine from which on a judge call waits
PATIENCE_S: Final = 20.0
LOOK_S: Final = 0.1  # polling: requests send no signal when they end


class JudgeCalls(CallHandler):
    """Serves judge calls as a raw ASGI app."""

    def __init__(self, parts: ServingParts) -> None:
        # no token continuity: a judge's conversation has no recorded history
        super().__init__(ChatDialect(), parts, ModelRequester(CHAT_PATH, replace(parts, continuity=None)))
        self._room = asyncio.Semaphore(AT_ONCE)

    def _target(self, model: str, caller: Caller) -> Target:
        target = super()._target(model, caller)
        if target.version is None or target.version.number != 0:
            raise BadRequest(
                f"the model {model!r:.200} is not served here: judges use the base of an alias, "
                f"'{target.alias.name}@0'. Agents use {CHAT_PATH}.",
                param="model",
            )
        return target

    async def _place(self, call: RunningCall) -> None:
        """Find the call's engine; it has no trajectory."""
        self._requester.find_engine(call)

    async def _run(self, call: RunningCall, receive: Receive, send: Send) -> None:
        async with self._room:
            await self._when_idle(call)
            await super()._run(call, receive, send)

    async def _when_idle(self, call: RunningCall) -> None:
        until = time.monotonic() + PATIENCE_S
        route = call.route
        while route is not None and self._versions.busy(route) >= BUSY and time.monotonic() < until:  # noqa: ASYNC110 - see LOOK_S
            await asyncio.sleep(LOOK_S)

    def _count(self, call: RunningCall, state: CallState, sampled: RecordableAnswer) -> None:
        assert call.target is not None
        self._metrics.judge_call(call.target.alias.name, state.value)

    async def _send_error(self, send: Send, error: CallerError, headers: RawHeaders | None = None) -> None:
        await send_error(send, CHAT_PATH, error, headers)
