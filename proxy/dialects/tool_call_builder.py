"""Tool calls assembled from an engine's parts, within a delta and over a whole answer.

Owns: which parts belong to one call, and the call as it grows. Refuses: the message around it, and each format's form.

A busy engine puts several parts of one call into one delta. Clients that only merge parts across events (as OpenAI's
streaming helper does) lose the first of them, so a delta that is sent has one part per call.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Body = dict[str, Any]


@dataclass(slots=True)
class ToolCallBuilder:
    """A tool call while it grows."""

    id: str | None = None
    type: str = "function"
    name: list[str] = field(default_factory=list)
    arguments: list[str] = field(default_factory=list)

    def add(self, part: Body) -> None:
        """Add one part. A repeated id is removed from it: clients concatenate the texts of parts."""
        if self.id is None:
            self.id = _text(part.get("id"))
        elif "id" in part:
            del part["id"]
        self.type = _text(part.get("type")) or self.type
        self.add_function(part.get("function") or {})

    def add_function(self, function: Body) -> None:
        """Add to the name and the arguments."""
        for pieces, text in ((self.name, function.get("name")), (self.arguments, function.get("arguments"))):
            if piece := _text(text):
                pieces.append(piece)

    def function(self) -> Body:
        """Return the name and the arguments."""
        return {"name": "".join(self.name), "arguments": "".join(self.arguments)}

    def whole(self) -> Body:
        """Return the call in a message's form."""
        return {"id": self.id, "type": self.type, "function": self.function()}


def add_deltas(calls: dict[int, ToolCallBuilder], parts: list[Body]) -> list[Body]:
    """Add a delta's parts to `calls`, and return them merged to one part per call, in the calls' order.

    Raises TypeError or AttributeError for malformed parts.
    """
    joined: dict[int, Body] = {}
    for at, part in enumerate(parts):
        index = part.get("index", at)
        if type(index) is not int or index < 0:
            raise TypeError(f"{index!r:.60} is not an index of a tool call")
        calls.setdefault(index, ToolCallBuilder()).add(part)
        known = joined.get(index)
        joined[index] = part if known is None else _joined(known, part)
    return [joined[index] for index in sorted(joined)]


def _joined(part: Body, more: Body) -> Body:
    """Return two parts of one call, merged."""
    one, other = part.get("function") or {}, more.get("function") or {}
    texts = {name: (one.get(name) or "") + (other.get(name) or "") for name in ("name", "arguments")}
    joined = {name: text for name, text in texts.items() if text or one.get(name) is not None}
    added = {name: value for name, value in more.items() if part.get(name) is None}
    return {**part, **added, "function": {**other, **one, **joined}}


def require_call_start(part: Mapping[str, Any]) -> tuple[str, str]:
    """Return the id and the name of a call that begins, for a format that sends both at once. Raises ValueError."""
    call_id, name = part.get("id"), (part.get("function") or {}).get("name")
    if not call_id or name is None:
        raise ValueError("a tool call began without an id or a name")
    return call_id, name


def require_continuation(part: Body, *, is_open: bool) -> None:
    """Raise ValueError if a part continues a call that the client can no longer receive: it would join another call."""
    function = part.get("function") or {}
    if function.get("name"):
        raise ValueError("the name of a tool call arrived in pieces")
    if function.get("arguments") and not is_open:
        raise ValueError("the model continued a tool call after it had begun another")


def _text(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is not a text")
    return value
