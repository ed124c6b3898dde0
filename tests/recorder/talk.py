"""A stand-in for the proxy: attributes calls as it does, and commits them through a real recorder."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Any

from recorder.capture.recorder import Recorder
from recorder.ids import new_id
from recorder.messages.calls import (
    Address,
    Attribution,
    Message,
    ParentCall,
    RecordedCall,
    RecordedRequest,
    SampledChoice,
    SamplingParameters,
    TrajectoryRef,
)
from recorder.messages.content_hashes import canonical_json
from recorder.states import CallState, Confidence

PROJECT = "default"
NOWHERE = Address()


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def tool_turn(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "find", "arguments": '{"b": 1, "a": 2}'}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def tool_result(id_: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": id_, "content": text}


def request(messages: Sequence[Message], **changes: Any) -> RecordedRequest:
    made = RecordedRequest(
        dialect="chat",
        endpoint="/v1/chat/completions",
        model="helpdesk",
        stream=False,
        messages=messages,
        tools=None,
        response_format=None,
        rest={},
        body_hash=blake2b(canonical_json(list(messages)), digest_size=16).digest(),
        sampling=SamplingParameters(),
    )
    return replace(made, **changes)


def choice(message: Message | None, index: int = 0, **changes: Any) -> SampledChoice:
    made = SampledChoice(index, message, [7, 8, 9], [-0.5, -0.25, -0.125], "stop")
    return replace(made, **changes)


def tool_calls(sampled: SampledChoice) -> Sequence[Mapping[str, Any]]:
    return (sampled.message or {}).get("tool_calls") or ()


def turn(
    ref: TrajectoryRef,
    asked: RecordedRequest,
    choices: Sequence[SampledChoice],
    *,
    source: str = "path",
    confidence: Confidence = Confidence.STATED,
    parent: ParentCall | None = None,
    address: Address = NOWHERE,
    **changes: Any,
) -> RecordedCall:
    now = time.time()
    ids = changes.get("prompt_token_ids", [1, 2, 3])
    made = RecordedCall(
        call_id=new_id("call"),
        project_id=PROJECT,
        address=address,
        attribution=Attribution(source, confidence, ref, parent),
        request=asked,
        state=CallState.COMPLETE,
        alias_id=None,
        version_id=None,
        base_fingerprint=None,
        prompt_token_ids=ids,
        choices=choices,
        usage={"prompt_tokens": len(ids or ()), "completion_tokens": sum(len(one.token_ids or ()) for one in choices)},
        response_meta=None,
        http_status=200,
        error=None,
        started_at=now,
        first_token_at=now,
        finished_at=now,
        issued_ids=[(call["id"], "tool_call", s.index) for s in choices for call in tool_calls(s)],
    )
    return replace(made, **changes)


class Talk:
    """Calls, attributed and committed."""

    def __init__(self, recorder: Recorder) -> None:
        self.recorder = recorder

    async def attributed(
        self, messages: Sequence[Message], answers: Sequence[SampledChoice], address: Address, **changes: Any
    ) -> RecordedCall:
        """The turn as the proxy would attribute it, not yet committed."""
        of_request = {k: changes.pop(k) for k in tuple(changes) if k in RecordedRequest.__slots__}
        asked = request(messages, **of_request)
        if address.trajectory is not None:
            ref = await self.recorder.trajectory_at(PROJECT, None, address, asked, changes.get("version_id"))
            parent = await self.recorder.find.parent_in(ref, messages)
            return turn(ref, asked, answers, parent=parent, address=address, **changes)
        found = await self.recorder.find.run(PROJECT, messages, asked)
        if found.trajectory is not None:
            how: dict[str, Any] = {"source": found.source, "confidence": found.confidence, "parent": found.parent}
            return turn(found.trajectory, asked, answers, address=address, **how, **changes)
        if address.group is not None:
            ref = await self.recorder.trajectory_at(PROJECT, None, address, asked, changes.get("version_id"))
        else:
            ref = self.recorder.new_trajectory(address, changes.get("version_id"))
        source = "new" if found.source == "none" else found.source
        return turn(ref, asked, answers, source=source, confidence=found.confidence, address=address, **changes)

    async def call(
        self,
        messages: Sequence[Message],
        answer: Message | Sequence[SampledChoice] | str,
        address: Address = NOWHERE,
        **changes: Any,
    ) -> RecordedCall:
        """One call from the request to its commit."""
        made = await self.attributed(messages, answers_of(answer), address, **changes)
        await self.recorder.commit(made)
        return made


def answers_of(answer: Message | Sequence[SampledChoice] | str) -> Sequence[SampledChoice]:
    if isinstance(answer, str):
        return [choice(assistant(answer))]
    if isinstance(answer, Mapping):
        return [choice(answer)]
    return answer
