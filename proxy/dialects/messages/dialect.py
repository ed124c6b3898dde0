"""Anthropic's Messages API: `POST /v1/messages`, whole and streamed.

Owns: this format's requests, answers and errors, in bytes. The engine gets a chat completion, since its own
`/v1/messages` returns neither token ids nor logprobs. The translation is in `fields.py`, `blocks.py` and
`stream_events.py`. Refuses: attribution, versions, storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

import orjson

from proxy.dialects import chat as chat_fields
from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules, RecordableAnswer
from proxy.dialects.chat import ParsedChatRequest
from proxy.dialects.chat_record import MALFORMED, ChatRecord, parse_answer
from proxy.dialects.messages.blocks import render_blocks, render_stop, render_usage
from proxy.dialects.messages.fields import to_chat
from proxy.dialects.messages.stream_events import MessageEvents
from proxy.dialects.tool_types.table import DroppedTool
from proxy.errors import CallerError
from proxy.http import sse
from recorder.messages.calls import SampledChoice

Body = dict[str, Any]

# Recorded in the chat form, not in the rest; addresses of MCP servers hold tokens, and are not used here.
_APART: Final = frozenset({"system", "messages", "tools", "mcp_servers"})
_ERRORS: Final[Mapping[int, str]] = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
}


class MessagesDialect:
    """Anthropic's messages."""

    name: ClassVar[str] = "messages"
    path: ClassVar[str] = "/v1/messages"
    engine_path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> MessagesReader:
        """Return a reader of the request. Raises BadRequest."""
        dropped = DroppedTool()
        fields = engine_fields.load_body(body, rules, dropped.items)
        engine_fields.read_values(fields)
        engine_fields.refuse_fields(fields)
        engine_fields.check_bounds(fields)
        try:
            _check_media(fields, rules)
            chat = to_chat(fields, dropped)
            chat_fields.check_request(chat, rules)
        except RecursionError as e:
            raise engine_fields.too_deep_error() from e
        rest = {name: value for name, value in fields.items() if name not in _APART}
        request = chat_fields.recorded_request(
            chat,
            rest,
            body,
            headers,
            rules,
            dialect=self.name,
            endpoint=self.path,
            dropped_tools=tuple(dropped.tools),
            dropped_items=tuple(dropped.items),
        )
        return MessagesReader(request, chat, rules)

    def error_body(self, error: CallerError) -> bytes:
        """Return an error as Anthropic's error object."""
        kind = _ERRORS.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
        fault = {"type": kind, "message": str(error)}
        return orjson.dumps({"type": "error", "error": fault, "request_id": None})

    def error_events(self, error: CallerError) -> bytes:
        """Return an error as the last event of a stream."""
        return b"event: error\ndata: " + self.error_body(error) + b"\n\n"


def _check_media(fields: Body, rules: DialectRules) -> None:
    """Check media before the translation, so that an error names the client's own field."""
    messages = fields.get("messages")
    for at, message in enumerate(messages if isinstance(messages, list) else ()):
        if isinstance(message, dict):
            engine_fields.check_media(_shown(message.get("content")), rules, f"messages[{at}].content")


def _shown(content: object) -> object:
    """A content with None in place of each document: nobody fetches those."""
    if not isinstance(content, list):
        return content
    return [
        None
        if isinstance(block, dict) and block.get("type") == "document"
        else block | {"content": _shown(block["content"])}
        if isinstance(block, dict) and block.get("type") == "tool_result" and "content" in block
        else block
        for block in content
    ]


class MessagesReader(ParsedChatRequest):
    """One request of the Messages API."""

    __slots__ = ()

    def answer(self) -> MessagesAnswer:
        """Return an empty answer."""
        return MessagesAnswer(self.request.model)


class MessagesAnswer(ChatRecord):
    """One call's answer while it arrives: what the client gets, and what is recorded."""

    __slots__ = ("_events", "_matched", "_model", "_reason")

    def __init__(self, model: str) -> None:
        super().__init__(1)
        self._model = model
        self._events = MessageEvents()
        self._reason: str | None = None
        self._matched: object = None

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """Return the client's form of a whole answer. Raises EngineFailed."""
        answer = parse_answer(data)
        try:
            self.note_head(answer)
            self.note_usage(answer.get("usage"))
            [given] = answer["choices"]
            self.take(given, given["message"])
            message = self._message(_id_of(answer), given)
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        self.require_finished()
        return orjson.dumps(message)

    def _message(self, message_id: str, given: Body) -> Body:
        chat = given["message"]
        tools = bool(chat.get("tool_calls"))
        reason, sequence = render_stop(given["finish_reason"], given.get("stop_reason"), tools, tools)
        message = {
            "id": message_id,
            "type": "message",
            "role": "assistant",
            "content": render_blocks(chat),
            "model": self._model,
            "stop_reason": reason,
            "stop_sequence": sequence,
            "usage": render_usage(self._usage),
        }
        return {name: value for name, value in message.items() if value is not None}

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """Return the client's bytes for one event of the engine, perhaps none. Raises EngineFailed."""
        if data == sse.DONE:
            self.over = True
            return b""
        chunk = parse_answer(data)
        try:
            return self._read_chunk(chunk)
        except MALFORMED as e:
            raise self.unreadable(data, e) from e

    def _read_chunk(self, chunk: Body) -> bytes:
        self.note_head(chunk)
        choices = chunk.get("choices")
        if not choices:
            if "error" in chunk:
                self.note_error(chunk["error"])
            self.note_usage(chunk.get("usage"))
            return b""
        begun = b"" if self._events.begun else self._events.begin(_id_of(chunk), self._model, chunk.get("usage"))
        [given] = choices
        delta = given["delta"]
        self.take(given, delta)
        if given.get("finish_reason") is not None:
            self._reason, self._matched = given["finish_reason"], given.get("stop_reason")
        return begun + self._events.add(delta)

    def tail(self) -> bytes:
        """Return the end of the last block, the event with the stop reason, and the end of the message."""
        return self._events.end(self._reason, self._matched, self._final_usage()) if self.finished else b""

    def _final_usage(self) -> Body | None:
        usage = super().sampled().usage
        return dict(usage) if usage is not None else None

    # --- both

    def sampled(self) -> RecordableAnswer:
        """Return the recordable parts. A text in several blocks is recorded in several parts, as clients send
        it back.
        """
        sampled = super().sampled()
        texts = self._events.texts()
        if len(texts) < 2:
            return sampled
        return replace(sampled, choices=[_in_parts(choice, texts) for choice in sampled.choices])


def _id_of(answer: Body) -> str:
    """Return the engine's id of an answer; always a string, since clients' types require one."""
    return str(answer.get("id") or "")


def _in_parts(choice: SampledChoice, texts: list[str]) -> SampledChoice:
    parts = [{"type": "text", "text": text} for text in texts]
    return replace(choice, message={**(choice.message or {}), "content": parts})
