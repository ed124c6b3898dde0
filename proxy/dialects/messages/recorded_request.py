"""A recorded request as a body of the Messages API again: the inverse of `blocks.py`, as a pure function.

Owns: messages of the chat form → `system` and `messages`, and functions → `tools`. The other fields are recorded as the
client sent them. Read again, the body has the recorded messages. Refuses: parts that were dropped before the recording.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from proxy.dialects.base import is_json_object
from proxy.dialects.messages.blocks import INVALID_JSON, thinking_signature
from recorder.messages.calls import Message

Body = dict[str, Any]

_BASE64: Final = ";base64,"


def recorded_body(
    messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] | None, rest: Mapping[str, Any]
) -> Body:
    """Return a body with these messages and tools. `rest`: the client's other fields."""
    body: Body = dict(rest)
    first = messages[0] if messages else {}
    begins = first.get("role") == "system" and isinstance(first.get("content"), str)
    if begins:
        body["system"] = first["content"]
    body["messages"] = list(_messages(messages[begins:]))
    if tools:
        body["tools"] = [_tool(tool) for tool in tools]
    return body


def _tool(tool: Mapping[str, Any]) -> Body:
    function = dict(tool.get("function") or {})
    schema = function.pop("parameters", None) or {"type": "object"}
    return {**function, "input_schema": schema}


def _messages(messages: Sequence[Message]) -> Iterator[Body]:
    """The messages; results that follow one another are one message, as the format wants."""
    results: list[Body] = []
    for message in messages:
        if message.get("role") == "tool":
            results.append(_result(message))
            continue
        if results:
            yield {"role": "user", "content": results}
            results = []
        yield _message(message)
    if results:
        yield {"role": "user", "content": results}


def _message(message: Message) -> Body:
    role, content = message.get("role"), message.get("content")
    if role != "assistant":
        return {"role": role, "content": content if isinstance(content, str) else _blocks(content)}
    blocks: list[Body] = []
    if reasoning := message.get("reasoning"):
        blocks.append({"type": "thinking", "thinking": reasoning, "signature": thinking_signature(reasoning)})
    blocks += _blocks(content)
    blocks += [_tool_use(call) for call in message.get("tool_calls") or ()]
    alone = len(blocks) == 1 and isinstance(content, str)
    return {"role": role, "content": content if alone or not blocks else blocks}


def _blocks(content: object) -> list[Body]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    return [_block(part) for part in content] if isinstance(content, list) else []


def _block(part: Any) -> Body:
    image = part.get("image_url") if isinstance(part, dict) else None
    if not isinstance(image, dict):
        return dict(part)
    url = str(image.get("url"))
    kind, marker, data = url.removeprefix("data:").partition(_BASE64)
    if url.startswith("data:") and marker:
        return {"type": "image", "source": {"type": "base64", "media_type": kind, "data": data}}
    return {"type": "image", "source": {"type": "url", "url": url}}


def _tool_use(call: Mapping[str, Any]) -> Body:
    function = call.get("function") or {}
    written = function.get("arguments") or ""
    given = json.loads(written) if is_json_object(written) else {INVALID_JSON: written} if written else {}
    return {"type": "tool_use", "id": call.get("id"), "name": function.get("name"), "input": given}


def _result(message: Message) -> Body:
    content = message.get("content")
    result: Body = {"type": "tool_result", "tool_use_id": message.get("tool_call_id")}
    if isinstance(content, list):
        result["content"] = [
            {"type": "tool_reference", "tool_name": part.get("name")} if part.get("type") == "tool_reference" else part
            for part in content
        ]
    else:
        result["content"] = content or ""
    return result | ({"is_error": True} if message.get("is_error") is True else {})
