"""A conversation as turns that can be held against another's: what was said, which tools were called, what came back.

Owns: what a turn is here (a message; an assistant's with the results of its tools), and by what two are equal. Ids of
tool calls say nothing: every attempt has its own. Refuses: putting turns side by side
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
    """One argument of a tool call. `text`: the string itself, or JSON where the value is no string (`is_json`).

    Arguments that are no object are one argument without a name.
    """

    name: str
    text: str
    is_json: bool


@dataclass(frozen=True, slots=True)
class ToolExchange:
    """A tool that was called. `result` None: the conversation has none."""

    name: str
    arguments: tuple[Argument, ...]
    result: str | None = None

    @property
    def act(self) -> tuple[str, tuple[Argument, ...]]:
        """What was done, whatever came of it. The order of arguments says nothing."""
        return self.name, tuple(sorted(self.arguments, key=lambda one: (one.name, one.text)))


@dataclass(frozen=True, slots=True)
class ConversationTurn:
    """One turn. `call_id` names the model call that sampled it, where one did; equality does not look at it."""

    role: str
    text: str
    thinking: str = ""
    tool_calls: tuple[ToolExchange, ...] = ()
    call_id: str | None = field(default=None, compare=False)

    @property
    def act(self) -> object:
        """What the turn did: its tool calls, whatever was said beside them; without any, what it said."""
        return (self.role, tuple(one.act for one in self.tool_calls)) if self.tool_calls else (self.role, self.text)

    @property
    def tools(self) -> tuple[str, tuple[str, ...]]:
        """Its role, and the names of the tools that it called."""
        return self.role, tuple(one.name for one in self.tool_calls)


def conversation_turns(messages: Sequence[Message], sampled: Mapping[int, str] | None = None) -> list[ConversationTurn]:
    """The turns of a conversation. `sampled`: position of a message → the call that sampled it."""
    turns: list[ConversationTurn] = []
    open_ids: list[str | None] = []  # of the last turn's tool calls, None where the result is there
    for at, message in enumerate(messages):
        if message.get("role") == "tool" and _answer(turns, open_ids, message):
            continue
        turns.append(_turn(message, (sampled or {}).get(at)))
        open_ids = [str(one.id) for one in plain_text.tool_calls(message)]
    return turns


def _answer(turns: list[ConversationTurn], open_ids: list[str | None], message: Message) -> bool:
    """Put a tool's result to the call that it answers; False where the last turn has no such call."""
    id_ = str(message.get("tool_call_id"))
    if id_ not in open_ids:
        return False
    at = open_ids.index(id_)
    open_ids[at] = None
    asked = list(turns[-1].tool_calls)
    asked[at] = replace(asked[at], result=plain_text.message_text(message, label=plain_text.kind_label))
    turns[-1] = replace(turns[-1], tool_calls=tuple(asked))
    return True


def _turn(message: Message, call_id: str | None) -> ConversationTurn:
    asked = tuple(ToolExchange(one.name, _arguments(one.arguments)) for one in plain_text.tool_calls(message))
    role, text = str(message.get("role", "?")), plain_text.message_text(message, label=plain_text.kind_label)
    return ConversationTurn(role, text, plain_text.thinking_text(message), asked, call_id)


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
