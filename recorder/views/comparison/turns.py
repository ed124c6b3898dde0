"""A conversation as turns that can be compared: text, tool calls and tool results.

Owns: what a turn is here (a message; an assistant's message together with its tools' results), and when two are equal.
Ids of tool calls are ignored, because every attempt has its own. Refuses: aligning turns
(`recorder.views.comparison.alignment`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from recorder.messages import plain_text
from recorder.messages.calls import Message


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a tool call. `text`: the string itself, or JSON if the value is not a string (`is_json`).

    Arguments that are not an object become one argument with an empty name.
    """

    name: str
    text: str
    is_json: bool


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """A tool call with its result, None if the conversation has none."""

    name: str
    arguments: tuple[Argument, ...]
    result: str | None = None

    @property
    def act(self) -> tuple[str, tuple[Argument, ...]]:
        """The tool's name and sorted arguments, without the result."""
        return self.name, tuple(sorted(self.arguments, key=lambda one: (one.name, one.text)))


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One turn. `call_id` is the model call that sampled it, if any; equality ignores it."""

    role: str
    text: str
    thinking: str = ""
    tool_calls: tuple[ToolExchange, ...] = ()
    call_id: str | None = field(default=None, compare=False)

    @property
    def act(self) -> object:
        """What the turn did: its tool calls without their results, or its text if it has no tool calls."""
        return (self.role, tuple(one.act for one in self.tool_calls)) if self.tool_calls else (self.role, self.text)

    @property
    def tools(self) -> tuple[str, tuple[str, ...]]:
        """The role, and the names of the tools that the turn called."""
        return self.role, tuple(one.name for one in self.tool_calls)


def conversation_turns(messages: Sequence[Message], sampled: Mapping[int, str] | None = None) -> list[ConversationTurn]:
    """Return the turns of a conversation. `sampled`: position of a message → the call that sampled it."""
    turns: list[ConversationTurn] = []
    open_ids: list[str | None] = []  # the last turn's tool calls, None once the result is known
    for at, message in enumerate(messages):
        if message.get("role") == "tool" and _answer(turns, open_ids, message):
            continue
        turns.append(_turn(message, (sampled or {}).get(at)))
        open_ids = [str(one.id) for one in plain_text.tool_calls(message)]
    return turns


def _answer(turns: list[ConversationTurn], open_ids: list[str | None], message: Message) -> bool:
    """Add a tool's result to the call that it answers; return False if the last turn has no such call."""
    id_ = str(message.get("tool_call_id"))
    if id_ not in open_ids:
        return False
    at = open_ids.index(id_)
    open_ids[at] = None
    exchanges = list(turns[-1].tool_calls)
    exchanges[at] = replace(exchanges[at], result=plain_text.message_text(message, label=plain_text.kind_label))
    turns[-1] = replace(turns[-1], tool_calls=tuple(exchanges))
    return True


def _turn(message: Message, call_id: str | None) -> ConversationTurn:
    exchanges = tuple(ToolExchange(one.name, _arguments(one.arguments)) for one in plain_text.tool_calls(message))
    role, text = str(message.get("role", "?")), plain_text.message_text(message, label=plain_text.kind_label)
    return ConversationTurn(role, text, plain_text.thinking_text(message), exchanges, call_id)


def _arguments(given: object) -> tuple[Argument, ...]:
    try:
        value = json.loads(given) if isinstance(given, str) and given else given or {}
    except (ValueError, RecursionError):
        return (Argument("", str(given), is_json=False),)
    if not isinstance(value, dict):
        return (_argument("", value),)
    return tuple(_argument(str(name), one) for name, one in value.items())


def _argument(name: str, value: object) -> Argument:
    if isinstance(value, str):
        return Argument(name, value, is_json=False)
    return Argument(name, json.dumps(value, ensure_ascii=False, sort_keys=True), is_json=True)
