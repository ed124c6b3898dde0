"""Read a stored message: its text, its thinking and its tool calls, in all variants of the internal form.

Owns: reading these even where values are invalid, and when a tool call equals a model's request: the same name, and the
same arguments as JSON values. Refuses: display, storage, and choosing among equal requests
(`recorder.capture.tool_calls`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Any, Final

from recorder.base.json_limits import MAX_DEPTH, limit_nesting, parse_json_text
from recorder.messages import content_hashes
from recorder.messages.calls import Message

_THINKING: Final = ("reasoning_content", "reasoning")


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A tool call in a message. `arguments` as stored: mostly a JSON string."""

    id: str | None
    name: str
    arguments: object


def thinking_text(message: Message) -> str:
    """Return the model's thinking, or ""."""
    return next((said for name in _THINKING if isinstance(said := message.get(name), str) and said), "")


def tool_calls(message: Message) -> list[ToolCall]:
    """Return the tool calls of a message, and its `function_call`, the older form."""
    asked, old = message.get("tool_calls"), message.get("function_call")
    found = [one for one in asked if isinstance(one, Mapping)] if isinstance(asked, list) else []
    return [_tool_call(one) for one in [*found, *([{"function": old}] if isinstance(old, Mapping) else [])]]


def _tool_call(one: Mapping[str, object]) -> ToolCall:
    function = one.get("function") or one.get("custom")
    told: Mapping[str, object] = function if isinstance(function, Mapping) else {}
    id_ = str(one["id"]) if one.get("id") else None
    return ToolCall(id_, str(told.get("name", "?")), told.get("arguments", told.get("input", "")))


def message_text(
    message: Mapping[str, object], *, separator: str = "\n", label: Callable[[object], str] | None = None
) -> str:
    """Return the text of a message's content, or of an MCP result's: a string, a list of parts, or nothing.

    `label` returns the text for a part that is not text; without it such parts are skipped.
    """
    if label is None:
        return separator.join(text_parts(message))
    found = content_parts(message.get("content"))
    return separator.join(label(part) if text is None else text for text, part in found)


def text_parts(message: Mapping[str, object]) -> Iterator[str]:
    """Yield the texts of a message's content, in order."""
    return find_texts(message.get("content"))


def find_texts(content: object) -> Iterator[str]:
    """Yield all texts in a content, at any depth."""
    pending = [content]
    while pending:
        one = pending.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, Mapping):
            pending.append(one.get("text"))
        elif isinstance(one, list | tuple):
            pending += reversed(one)


def content_parts(content: object) -> list[tuple[str | None, object]]:
    """Return the parts of a message's content, each with its text, or None if it is not text."""
    if content is None or content == "":
        return []
    if isinstance(content, str):
        return [(content, content)]
    if not isinstance(content, list):
        return [(json.dumps(limit_nesting(content, MAX_DEPTH), ensure_ascii=False), content)]
    return [(_text(part), part) for part in content]


def _text(part: object) -> str | None:
    text = part.get("text") if isinstance(part, Mapping) else part
    return text if isinstance(text, str) else None


def kind_label(part: object) -> str:
    """Return the label of a part that is not text, by its type, for `message_text`."""
    return f"[{media_kind(part)}]"


def media_kind(part: object) -> str:
    """Return the kind of a part that is not text."""
    return str(part.get("type", "?")) if isinstance(part, Mapping) else type(part).__name__


# Some agents (Claude Code among them) show their model the tools of a server `x` as `mcp__x__<tool>`.
_CLIENTS_PREFIX = re.compile(r"^mcp__(?:[^_]|_(?!_))+__(?=.)")


def match_key(key: bytes, name: str, arguments: Any) -> bytes:
    """Return a hash of 16 bytes that a tool call and its request share, keyed with the project's `node_key`."""
    form = content_hashes.canonical_json(
        [_CLIENTS_PREFIX.sub("", name), _plain(arguments if arguments is not None else {})]
    )
    return blake2b(form, digest_size=16, key=key, person=b"tool").digest()


def parse_tool_requests(key: bytes, message: Message | None) -> list[tuple[int, str | None, bytes]]:
    """Return (position, tool-call id, match key) of each function call of an assistant message with JSON arguments."""
    found = []
    calls = (message or {}).get("tool_calls")
    for position, call in enumerate(calls if isinstance(calls, Sequence) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        try:
            wanted = match_key(key, function["name"], parse_json_text(function.get("arguments") or "{}"))
        except (TypeError, ValueError, RecursionError):
            continue  # not JSON, or nested too deep: no tool can be called with it
        id_ = call.get("id")
        found.append((position, id_ if isinstance(id_, str) else None, wanted))
    return found


def _plain(value: Any) -> Any:
    """Return a value with numbers as JavaScript writes them: 2.0 becomes 2."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
