"""The parts in which an engine tells what a model calls: put together within a delta, and over a whole answer.

Owns: which parts are of one call, and the call as it grows. Refuses: the message around it, and how a format shows it.

An engine that is busy tells several parts of one call in one delta. Clients that put parts together across events alone
(OpenAI's own streaming helper does) lose the first of them, so each call has one part in a delta that is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass(slots=True)
class ToolCallBuilder:
    """A call while it grows."""

    id: str | None = None
    type: str = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def hear(self, part: Body) -> None:
        """Add one part. An id that was told already is taken out of it: clients put the texts of parts together."""
        if self.id is None:
            self.id = _text(part.get("id"))
        elif "id" in part:
            del part["id"]
        self.type = _text(part.get("type")) or self.type
        self.hear_function(part.get("function") or {})

    def hear_function(self, function: Body) -> None:
        """Add to the name and the arguments."""
        for pieces, said in ((self.name, function.get("name")), (self.arguments, function.get("arguments"))):
            if piece := _text(said):
                pieces.append(piece)

    def function(self) -> Body:
        """The name and the arguments."""
        return {"name": "".join(self.name), "arguments": "".join(self.arguments)}

    def whole(self) -> Body:
        """The call as a message has it."""
        return {"id": self.id, "type": self.type, "function": self.function()}


def add_deltas(calls: dict[int, ToolCallBuilder], parts: list[Body]) -> list[Body]:
    """Add a delta's parts to `calls`, and return them with one part a call, in the calls' order.

    Raises TypeError or AttributeError for what are no parts.
    """
    joined: dict[int, Body] = {}
    for at, part in enumerate(parts):
        index = part.get("index", at)
        if type(index) is not int or index < 0:
            raise TypeError(f"{index!r:.60} is no index of a tool call")
        calls.setdefault(index, ToolCallBuilder()).hear(part)
        known = joined.get(index)
        joined[index] = part if known is None else _joined(known, part)
    return [joined[index] for index in sorted(joined)]


def _joined(part: Body, more: Body) -> Body:
    """Two parts of one call as one."""
    one, other = part.get("function") or {}, more.get("function") or {}
    texts = {name: (one.get(name) or "") + (other.get(name) or "") for name in ("name", "arguments")}
    told = {name: text for name, text in texts.items() if text or one.get(name) is not None}
    beside = {name: value for name, value in more.items() if part.get(name) is None}
    return {**part, **beside, "function": {**other, **one, **told}}


def require_call_start(part: Mapping[str, Any]) -> tuple[str, str]:
    """The id and the name of a call that begins, for a format that tells both at once. Raises ValueError."""
    call_id, name = part.get("id"), (part.get("function") or {}).get("name")
    if not call_id or name is None:
        raise ValueError("a tool call began without an id or a name")
    return call_id, name


def require_continuation(part: Body, *, is_open: bool) -> None:
    """Raise ValueError where a part of a call that began cannot be told any more: it would be told as another."""
    function = part.get("function") or {}
    if function.get("name"):
        raise ValueError("a tool call has its name in pieces")
    if function.get("arguments") and not is_open:
        raise ValueError("the model went on with a tool call after it had begun another")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value
