"""The base of an alias (`NAME@0`) asked by a judge: `POST /hone/v1/judge/chat/completions`.

Owns: that such a call is no traffic: no run, no record but the judge's own, no place in the figures of agents' calls;
and that it keeps out of agents' way. Refuses: any other model than a base, and judging.

What a judge was asked and replied stands with its score. An agent's calls go first: a judge's waits while the engine
answers `BUSY` requests of this proxy, and few are asked at a time. It waits for so long at most: an engine that is
never idle would leave groups unjudged for ever, and a few requests more are what it takes then.
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
AT_ONCE: Final = 2  # requests of judges that one proxy has open at its engines
BUSY: Final = 4  # requests at an engine, from which on a judge's waits
PATIENCE_S: Final = 20.0
LOOK_S: Final = 0.1  # requests tell nobody when they end


class JudgeCalls(CallHandler):
    """Serves judges, as a raw ASGI app."""

    def __init__(self, parts: ServingParts) -> None:
        # no token continuity: a judge's conversation has no past that was recorded
        super().__init__(ChatDialect(), parts, ModelRequester(CHAT_PATH, replace(parts, continuity=None)))
        self._room = asyncio.Semaphore(AT_ONCE)

    def _target(self, model: str, caller: Caller) -> Target:
        target = super()._target(model, caller)
        if target.version is None or target.version.number != 0:
            raise BadRequest(
                f"the model {model!r:.200} is not asked here: judges ask for what an alias began with, "
                f"'{target.alias.name}@0'. Agents ask at {CHAT_PATH}.",
                param="model",
            )
        return target

    async def _place(self, call: RunningCall) -> None:
        """Give the call its engine, and no run."""
        self._asking.find_engine(call)

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

    async def _say(self, send: Send, error: CallerError, headers: RawHeaders | None = None) -> None:
        await send_error(send, CHAT_PATH, error, headers)
