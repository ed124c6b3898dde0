"""Streams put together again, as a client would: what is compared and what is sent back."""

from __future__ import annotations

import json
from typing import Any


def events(raw: bytes | str) -> list[dict[str, Any]]:
    """The events of an Anthropic stream; asserts that each is named as it says."""
    text = raw.decode() if isinstance(raw, bytes) else raw
    found = []
    for block in text.split("\n\n"):
        if not block or block.startswith(":"):
            continue
        name, data = block.split("\n")
        parsed = json.loads(data.removeprefix("data: "))
        assert name == f"event: {parsed['type']}"
        found.append(parsed)
    return found


def merged(stream: list[dict[str, Any]]) -> dict[str, Any]:
    """The message of an Anthropic stream; asserts the exact order of events that clients rely on."""
    assert [event["type"] for event in stream[-2:]] == ["message_delta", "message_stop"]
    first, *middle, last, _ = stream
    assert first["type"] == "message_start"
    message: dict[str, Any] = dict(first["message"])
    blocks: list[dict[str, Any]] = []
    is_open, arguments = False, ""
    for event in middle:
        if event["type"] == "content_block_start":
            assert not is_open
            assert event["index"] == len(blocks)
            blocks.append(dict(event["content_block"]))
            is_open, arguments = True, ""
        elif event["type"] == "content_block_delta":
            assert is_open
            assert event["index"] == len(blocks) - 1
            arguments += _add(blocks[-1], event["delta"])
        else:
            assert event["type"] == "content_block_stop"
            assert is_open
            assert event["index"] == len(blocks) - 1
            if blocks[-1]["type"] == "tool_use":
                blocks[-1]["input"] = _input(arguments)
            is_open = False
    assert not is_open
    return {**message, "content": blocks, **last["delta"], "usage": last["usage"]}


def _input(arguments: str) -> Any:
    """A tool's input; the text that a model wrote instead of one, or that was cut off."""
    try:
        return json.loads(arguments or "{}")
    except ValueError:
        return arguments


def _add(block: dict[str, Any], delta: dict[str, Any]) -> str:
    """Add a delta to its block; what it says of a tool's arguments."""
    kind = delta["type"]
    if kind == "text_delta":
        block["text"] += delta["text"]
    elif kind == "thinking_delta":
        block["thinking"] += delta["thinking"]
    elif kind == "signature_delta":
        block["signature"] = delta["signature"]
    else:
        assert kind == "input_json_delta"
        return str(delta["partial_json"])
    return ""
