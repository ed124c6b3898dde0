"""What a model asked of its tools: the requests in a sampled message, and when a tool call is the one asked for.

Owns: the equality of a request and a call: their names, and their arguments as JSON values. Refuses: storage, and
deciding between equal requests (`recorder.capture.tool_calls`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from recorder.content import canonical
from recorder.content.turns import Message

# Some agents (Claude Code among them) show their model the tools of a server `x` as `mcp__x__<tool>`.
_CLIENTS_PREFIX = re.compile(r"^mcp__(?:[^_]|_(?!_))+__(?=.)")


def match(key: bytes, name: str, arguments: Any) -> bytes:
    """The 16 bytes in which a tool call equals the request for it; keyed with the project's `node_key`."""
    form = canonical.dumps([_CLIENTS_PREFIX.sub("", name), _plain(arguments if arguments is not None else {})])
    return blake2b(form, digest_size=16, key=key, person=b"tool").digest()


def requests_in(key: bytes, message: Message | None) -> list[tuple[int, str | None, bytes]]:
    """(position, tool-call id, match) of each function call in an assistant message whose arguments are JSON."""
    found = []
    calls = (message or {}).get("tool_calls")
    for position, call in enumerate(calls if isinstance(calls, Sequence) else ()):
        function = call.get("function") if isinstance(call, Mapping) else None
        if not isinstance(function, Mapping) or not isinstance(function.get("name"), str):
            continue
        try:
            wanted = match(key, function["name"], json.loads(function.get("arguments") or "{}"))
        except (TypeError, ValueError, RecursionError):
            continue  # what is no JSON can't be called with, nor what is nested deeper than is read
        id_ = call.get("id")
        found.append((position, id_ if isinstance(id_, str) else None, wanted))
    return found


def _plain(value: Any) -> Any:
    """Numbers as JavaScript writes them: 2.0 is 2."""
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return int(value)
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return {k: _plain(v) for k, v in value.items()} if isinstance(value, dict) else value
