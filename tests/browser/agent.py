"""An agent of a helpdesk, played for pages to show: what it asks and is told goes through a real recorder."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from recorder.capture.recorder import Recorder
from recorder.capture.tool_calls import ToolCall
from recorder.ids import new_id
from recorder.messages.calls import Address, ParentCall, RecordedCall, SampledChoice, SamplingParameters
from recorder.registry.aliases import AliasView
from recorder.states import CallKind, CallState, Purpose, ToolOutcome, TrajectoryState
from tests.proxy.fake_engine import ids_of, prompt_ids
from tests.recorder.talk import PROJECT, assistant, request, turn, user

SYSTEM: Final = {
    "role": "system",
    "content": "You answer customers of a parcel service. Look an order up before you say anything about it. "
    "Never guess. Be short.",
}
TOOLS: Final[Sequence[Mapping[str, Any]]] = tuple(
    {
        "type": "function",
        "function": {
            "name": name,
            "description": about,
            "parameters": {"type": "object", "properties": {"order_id": {"type": "string"}}, "required": ["order_id"]},
        },
    }
    for name, about in (
        ("orders__find", "Find an order by its number."),
        ("parcels__track", "Where a parcel was last seen."),
        ("parcels__hold", "Hold a parcel at its depot."),
    )
)
_CAREFUL: Final = (
    "The customer wants to know where it is. I must not guess: I look the order up first, then its parcel."
)


@dataclass
class Agent:
    """One run. `messages`: what its next call will send."""

    recorder: Recorder
    alias: AliasView
    address: Address
    task: str

    def __post_init__(self) -> None:
        self.messages: list[Mapping[str, Any]] = [SYSTEM, user(self.task)]
        self.parent: ParentCall | None = None
        self.run = ""

    async def say(self, text: str, **more: Any) -> RecordedCall:
        """An answer in words."""
        return await self.answer(assistant(text), **more)

    async def answer(self, message: Mapping[str, Any], **more: Any) -> RecordedCall:
        """One call and its answer; the conversation goes on from it."""
        made = await self.call(self.messages, [message], **more)
        self.messages = [*self.messages, message]
        self.parent = ParentCall(made.call_id, 0)
        return made

    async def call(
        self, messages: Sequence[Mapping[str, Any]], answers: Sequence[Mapping[str, Any]], **more: Any
    ) -> RecordedCall:
        """A call of the run, wherever it goes on from."""
        sampling = SamplingParameters(temperature=0.8, n=len(answers), max_tokens=512)
        rest, body = {"temperature": 0.8}, new_id("b").encode()[-16:]
        asked = request(messages, tools=TOOLS, sampling=sampling, rest=rest, body_hash=body)
        live = self.alias.live_version_id
        ref = await self.recorder.trajectory_at(PROJECT, self.alias.id, self.address, asked, live)
        prompt = prompt_ids([dict(message) for message in messages])
        said = [sampled(message, at) for at, message in enumerate(answers)]
        usage = {"prompt_tokens": len(prompt), "completion_tokens": sum(len(s.token_ids or ()) for s in said)}
        began = time.time()
        made = turn(
            ref, asked, said, parent=self.parent, address=self.address, alias_id=self.alias.id, version_id=live,
            base_fingerprint=self.alias.base_fingerprint, prompt_token_ids=prompt, usage=usage,
            started_at=began - 0.4, first_token_at=began - 0.3, finished_at=began,
        )  # fmt: skip
        made = replace(made, **more)
        await self.recorder.commit(made)
        self.run = ref.id
        return made

    async def use(self, tool: str, result: str, failed: bool = False, said: str = "", **arguments: str) -> None:
        """Ask for a tool, which the gateway calls, and be told what it says."""
        id_ = new_id("toolu")
        function = {"name": tool, "arguments": json.dumps(arguments)}
        call = {"id": id_, "type": "function", "function": function}
        await self.answer({"role": "assistant", "content": said or None, "tool_calls": [call]})
        tools, now = self.recorder.tools, time.time()
        joined = await tools.join(PROJECT, tool, arguments, stated=self.run, source="path")
        await tools.commit(
            ToolCall(
                new_id("tc"), PROJECT, joined, tool.partition("__")[0], tool, tool.partition("__")[2], arguments,
                ToolOutcome.FAILED if failed else ToolOutcome.COMPLETE,
                {"content": [{"type": "text", "text": result}], "isError": failed},
                "no such order" if failed else None, {"readOnlyHint": True}, now - 0.12, now,
            )
        )  # fmt: skip
        self.messages = [*self.messages, {"role": "tool", "tool_call_id": id_, "content": result}]

    async def errand(self) -> None:
        """A title for the conversation, beside its path."""
        asked = [user("Name this conversation in five words."), user(self.task)]
        await self.beside(asked, "Where a parcel is now", CallKind.AUX)

    async def sub_agent(self) -> None:
        """A sub-agent that reads a policy, beside the path."""
        asked = [{"role": "system", "content": "You read policies."}, user("May we hold a parcel for ten days?")]
        await self.beside(asked, "Yes, up to fourteen days.", CallKind.SUB)

    async def beside(self, messages: Sequence[Mapping[str, Any]], answer: str, kind: CallKind) -> None:
        """A call of the run that its conversation does not go on from."""
        parent, self.parent = self.parent, None
        address, self.address = self.address, replace(self.address, call_kind=kind)
        made = await self.call(messages, [assistant(answer)])
        self.parent, self.address = parent, address
        assert made.attribution.trajectory.id == self.run

    async def refused(self) -> None:
        """A call that the engine did not answer."""
        await self.call(
            self.messages, [], state=CallState.ERRORED, http_status=503, error="engine_down: nothing listens",
            prompt_token_ids=None, usage=None,
        )  # fmt: skip

    async def end(self, state: TrajectoryState = TrajectoryState.COMPLETED, reason: str = "closed") -> str:
        """The run is over; its id."""
        await self.recorder.close(PROJECT, self.run, state, reason)
        return self.run


def sampled(message: Mapping[str, Any], index: int) -> SampledChoice:
    """As an engine says it: a token a word, some surer than others."""
    spoken = [str(message.get("reasoning_content") or ""), str(message.get("content") or "")]
    ids = ids_of(" ".join([*spoken, json.dumps(message.get("tool_calls") or "")]))
    logprobs = [-0.02 - (id_ % 37) ** 2 / 400 for id_ in ids]
    return SampledChoice(index, message, ids, logprobs, "tool_calls" if message.get("tool_calls") else "stop")


def thinking(text: str, thought: str = _CAREFUL) -> dict[str, Any]:
    """An answer with what was thought before it."""
    return {"role": "assistant", "content": text, "reasoning_content": thought}


def at(group: str, number: int, size: int | None, purpose: Purpose = Purpose.TRAIN, **tags: str) -> Address:
    """The address of a group's attempt."""
    return Address(f"{number}", group, size, purpose, tags=tags)
