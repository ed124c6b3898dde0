"""A group as the judge sees it: each trajectory's messages and other branches, and the prefix that all share. Pure.

Owns: which fields of a message are shown, numbered tool calls, the common prefix, and which trajectories are identical.
Refuses: ids (`judge.llm.prompt`), the fence (`recorder.llm.untrusted_text`) and truncation (`judge.llm.truncation`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from recorder.base.json_limits import limit_nesting
from recorder.messages.plain_text import message_text
from recorder.states import CallKind
from recorder.views.trajectories.shapes import HistoryView, TrajectoryView

MAX_DEPTH: Final = 100  # lists and objects inside each other; what is deeper is left out, with a mark in its place
CUT: Final = "cut"
SUB_AGENT: Final = "sub_agent"

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class PromptTrajectory:
    """The parts of a trajectory that a prompt needs."""

    id: str
    messages: Sequence[Mapping[str, Any]]
    tools: Sequence[Mapping[str, Any]] | None = None
    histories: Sequence[HistoryView] = ()


def prompt_trajectory(member: TrajectoryView) -> PromptTrajectory:
    """A recorded trajectory as the judge sees it."""
    return PromptTrajectory(member.id, member.messages, member.tools, member.histories)


@dataclass(frozen=True, slots=True)
class PromptGroup:
    """A group ready for the prompt: the shared part, and each distinct trajectory under the hash of its content."""

    shared: Json
    own: Mapping[str, Json]
    members: Mapping[str, tuple[str, ...]]


def show_group(runs: Sequence[PromptTrajectory]) -> PromptGroup:
    """The prompt's view of at least one trajectory."""
    shown = [show_trajectory(run) for run in runs]
    tools = [[limit_nesting(tool, MAX_DEPTH) for tool in run.tools or ()] for run in runs]
    same_tools = all(these == tools[0] for these in tools)
    length = _shared_length([messages for messages, _ in shown])
    own: dict[str, Json] = {}
    members: dict[str, tuple[str, ...]] = {}
    for run, (messages, histories), these in zip(runs, shown, tools, strict=True):
        document: Json = {"histories": histories} if histories else {}
        if not same_tools:
            document["tools"] = these
        document["messages"] = messages[length:]  # last, as in time
        key = json_digest(document)
        own[key] = document
        members[key] = (*members.get(key, ()), run.id)
    shared = {"kind": "shared", "messages": shown[0][0][:length], "tools": tools[0] if same_tools else []}
    return PromptGroup(shared, own, members)


def show_trajectory(run: PromptTrajectory) -> tuple[list[Json], list[Json]]:
    """The prompt's view of one trajectory: its messages, and its other branches."""
    return _NumberedMessages().run(run)


def json_digest(value: Any) -> str:
    """A hash of any JSON value, independent of the order of keys."""
    return blake2b(json.dumps(value, sort_keys=True).encode(), digest_size=16).hexdigest()


def _shared_length(shown: Sequence[Sequence[Json]]) -> int:
    """The number of leading messages that all share; each trajectory keeps at least its last one.

    If all trajectories are identical, they share everything before the agent's first answer.
    """
    shortest = min(len(messages) for messages in shown)
    first = shown[0]
    if all(messages == first for messages in shown):
        answered = (i for i, message in enumerate(first) if message["role"] == "assistant")
        return next(answered, max(0, shortest - 1))
    length = 0
    while length < shortest - 1 and all(messages[length] == first[length] for messages in shown):
        length += 1
    return length


class _NumberedMessages:
    """The messages of one trajectory, with tool-call ids (which are random) replaced by numbers."""

    def __init__(self) -> None:
        self._numbers: dict[str, str] = {}

    def run(self, run: PromptTrajectory) -> tuple[list[Json], list[Json]]:
        """Its messages, and its other histories. The messages are numbered first, because trajectories share them."""
        messages = self._messages(run.messages)
        return messages, [
            {
                "turns": SUB_AGENT if history.kind is CallKind.SUB else CUT,
                "messages": self._messages(history.messages),
            }
            for history in run.histories
        ]

    def _messages(self, messages: Sequence[Mapping[str, Any]]) -> list[Json]:
        return [_show(limit_nesting(message, MAX_DEPTH), self._numbered) for message in messages]

    def _numbered(self, issued: Any) -> str:
        return self._numbers.setdefault(str(issued), f"call_{len(self._numbers) + 1}")


def _show(message: Mapping[str, Any], numbered: Callable[[Any], str]) -> Json:
    shown: Json = {"role": str(message.get("role", "")), "content": message_text(message, label=_label)}
    if message.get("name") is not None:
        shown["name"] = message["name"]
    if message.get("refusal"):
        shown["refusal"] = message["refusal"]
    if calls := message.get("tool_calls"):
        shown["tool_calls"] = [_show_call(call, numbered) for call in calls] if isinstance(calls, list) else calls
    if message.get("function_call") is not None:
        shown["function_call"] = message["function_call"]
    if message.get("tool_call_id") is not None:
        shown["tool_call_id"] = numbered(message["tool_call_id"])
    return shown


def _show_call(call: Any, numbered: Callable[[Any], str]) -> Any:
    """A tool call under its number. A malformed call is shown as it is, because the agent produced it."""
    if not isinstance(call, Mapping):
        return call
    return {**{name: value for name, value in call.items() if name != "index"}, "id": numbered(call.get("id"))}


def _label(part: Any) -> str:
    """The text shown for a non-text part: a refusal's text, or the type of images and audio."""
    if not isinstance(part, Mapping):
        return str(part)
    if isinstance(part.get("refusal"), str):
        return str(part["refusal"])
    return f"[{part.get('type', 'something')} not shown]"
