"""The events of Anthropic's message streams, from the deltas of a chat completion.

Owns: the state machine. It tracks which content block is open, when it ends, and the exact order of events that clients
require (message_start, then start, deltas and stop of one block at a time, then message_delta, message_stop). Pure: it
reads no bytes and records nothing. Refuses: whole answers (`blocks.py`).
"""

from __future__ import annotations

from itertools import groupby
from operator import itemgetter
from typing import Any, Literal

import orjson

from proxy.dialects.base import CallSequence, is_json_object, require_call_start, require_continuation
from proxy.dialects.messages.blocks import render_stop, render_usage, thinking_signature

Body = dict[str, Any]


def encode_event(name: str, **fields: Any) -> bytes:
    """Return one event: Anthropic's clients read its name from its `event:` line."""
    return b"event: " + name.encode() + b"\ndata: " + orjson.dumps({"type": name, **fields}) + b"\n\n"


class MessageEvents:
    """The events of one message. `begin`, then `add` for each delta, then `end`."""

    __slots__ = (
        "_arguments",
        "_buffered",
        "_calls",
        "_index",
        "_kind",
        "_pieces",
        "_texts",
        "_tool",
        "_tools",
        "begun",
    )

    def __init__(self) -> None:
        self.begun = False
        self._texts: list[str] = []  # of the closed text blocks
        self._kind: str | None = None  # of the open block
        self._index = 0  # of the open block, or of the next
        self._pieces: list[str] = []  # of the open text or thinking block
        self._tool: int | None = None  # the open tool call, as the engine numbers them
        self._tools: set[int] = set()
        self._calls = CallSequence()
        self._arguments: list[str] = []  # of the last tool call
        self._buffered: list[tuple[Literal["text", "thinking"], str]] = []  # received while a tool call was open

    def begin(self, message_id: str, model: str, usage: Body | None) -> bytes:
        """Return the first event."""
        self.begun = True
        message: Body = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "content": [],
            "model": model,
            "stop_reason": None,
            "stop_sequence": None,
            "usage": render_usage(usage),
        }
        return encode_event("message_start", message=message)

    def add(self, delta: Body) -> bytes:
        """Return the events for a delta of a chat completion, perhaps none."""
        events = []
        if reasoning := delta.get("reasoning"):
            events.append(self._thinking(reasoning))
        if content := delta.get("content"):
            events.append(self._text(content))
        for part in delta.get("tool_calls") or ():
            events += [self._tool_part(ready) for ready in self._calls.add(part)]
        return b"".join(events)

    def end(self, finish: str | None, matched: object, usage: Body | None) -> bytes:
        """Return the last events: the end of the open block, and of the message with its reason."""
        events = b"".join(self._tool_part(part) for part in self._calls.rest()) + self._close()
        complete = bool(self._tools) and is_json_object("".join(self._arguments))
        reason, sequence = render_stop(finish, matched, bool(self._tools), complete)
        delta = {"stop_reason": reason, "stop_sequence": sequence}
        return (
            events
            + encode_event("message_delta", delta=delta, usage=render_usage(usage))
            + encode_event("message_stop")
        )

    def texts(self) -> list[str]:
        """Return the text blocks of the message: the closed ones, the open one, and those that are still buffered."""
        open_text = "".join(self._pieces) if self._kind == "text" else ""
        buffered = [
            "".join(text for _, text in run) for kind, run in groupby(self._buffered, itemgetter(0)) if kind == "text"
        ]
        return [text for text in (*self._texts, open_text, *buffered) if text]

    # --- blocks

    def _thinking(self, piece: str) -> bytes:
        if self._kind == "tool_use":
            return self._keep("thinking", piece)
        # The engine's first event has no signature; the official clients' types require one.
        opened = self._open("thinking", {"type": "thinking", "thinking": "", "signature": ""})
        self._pieces.append(piece)
        return opened + self._delta(type="thinking_delta", thinking=piece)

    def _text(self, piece: str) -> bytes:
        if self._kind == "tool_use":
            return self._keep("text", piece)
        opened = self._open("text", {"type": "text", "text": ""})
        self._pieces.append(piece)
        return opened + self._delta(type="text_delta", text=piece)

    def _keep(self, kind: Literal["text", "thinking"], piece: str) -> bytes:
        """Buffer text: arguments of the open tool call may still follow, and blocks must not overlap."""
        self._buffered.append((kind, piece))
        return b""

    def _tool_part(self, part: Body) -> bytes:
        at, function = part["index"], part.get("function") or {}
        opened = b""
        if at in self._tools:
            require_continuation(part, is_open=self._tool == at)
        else:
            call_id, name = require_call_start(part)
            opened = self._close() + self._start(
                "tool_use", {"type": "tool_use", "id": call_id, "name": name, "input": {}}
            )
            self._tools.add(at)
            self._tool, self._arguments = at, []
        arguments = function.get("arguments")
        if not arguments:
            return opened
        self._arguments.append(arguments)
        return opened + self._delta(type="input_json_delta", partial_json=arguments)

    def _open(self, kind: str, block: Body) -> bytes:
        return b"" if self._kind == kind else self._close() + self._start(kind, block)

    def _start(self, kind: str, block: Body) -> bytes:
        self._kind = kind
        return encode_event("content_block_start", content_block=block, index=self._index)

    def _delta(self, **delta: str) -> bytes:
        return encode_event("content_block_delta", delta=delta, index=self._index)

    def _close(self) -> bytes:
        """Close the open block, and send the text that was buffered during a tool call in blocks of its own."""
        events = [self._stop()]
        buffered, self._buffered = self._buffered, []
        for kind, piece in buffered:
            events.append(self._text(piece) if kind == "text" else self._thinking(piece))
        return b"".join([*events, self._stop()])

    def _stop(self) -> bytes:
        if self._kind is None:
            return b""
        text = "".join(self._pieces)
        signed = (
            self._delta(type="signature_delta", signature=thinking_signature(text)) if self._kind == "thinking" else b""
        )
        if self._kind == "text":
            self._texts.append(text)
        stopped = encode_event("content_block_stop", index=self._index)
        self._kind = self._tool = None
        self._pieces = []
        self._index += 1
        return signed + stopped
