"""Live runs as users leave them, for tests of what is made of traffic."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    ParentCall,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
)
from recorder.states import CallState, Confidence
from tests.trainer.ring import ALIAS, PROJECT, Ring

SYSTEM = {"role": "system", "content": "You help."}


async def asked(
    ring: Ring,
    task: str,
    *turns: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]] | None = None,
    tags: Mapping[str, str] | None = None,
) -> str:
    """A run that began with a task and ended; each of `turns` is an answer and what its agent said to it."""
    messages: list[Mapping[str, Any]] = [SYSTEM, {"role": "user", "content": task}]
    name, parent, run = new_id("run"), None, ""
    every = [*turns, [{"role": "assistant", "content": "done"}]]
    for number, (answer, *then) in enumerate(every):
        address = Address(name, done=number == len(every) - 1, tags=dict(tags or {}))
        request = RecordedRequest("chat", "/v1/chat/completions", ALIAS, False, list(messages), tools, None, {},
                          new_id("b").encode()[-16:], SamplingParameters())  # fmt: skip
        ref = await ring.recorder.trajectory_at(PROJECT, ring.alias.id, address, request, ring.alias.live_version_id)
        now, call_id, run = time.time(), new_id("call"), ref.id
        said = SampledChoice(0, answer, [4], [-0.1], "tool_calls" if answer.get("tool_calls") else "stop")
        turn = RecordedCall(call_id, PROJECT, address, Attribution("path", Confidence.STATED, ref, parent), request,
                    CallState.COMPLETE, ring.alias.id, ring.alias.live_version_id, None, [1, 2], [said], None, None,
                    200, None, now, now, now)  # fmt: skip
        await ring.recorder.commit(turn)
        messages += [answer, *then]
        parent = ParentCall(call_id, 0)
    return run
