"""Calls that a person makes to see other answers to a recorded one: served and recorded as any call.

Owns: that their tool calls are not known to attribution, because no agent has seen them. Refuses: what is asked
(`proxy.recorded_requests`), and routes: no client reaches this app.
"""

from __future__ import annotations

from dataclasses import replace

from proxy.dialects.base import RecordableAnswer
from proxy.errors import CallerError
from proxy.serving.calls import CallHandler
from proxy.serving.running_call import RunningCall
from recorder.states import CallState


class RepeatCalls(CallHandler):
    """Serves them as a raw ASGI app."""

    async def _record(self, call: RunningCall, state: CallState, sampled: RecordableAnswer) -> CallerError | None:
        return await super()._record(call, state, replace(sampled, issued_ids=()))
