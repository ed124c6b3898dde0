"""OpenAI's chat completions, as vLLM speaks them: `POST /v1/chat/completions`.

Owns: this format's requests and answers. The engine is asked for token ids and logprobs whether or not the
client wants them; the client gets what it asked for. Refuses: attribution, versions, storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import orjson

from proxy.dialects import chat_fields, engine_fields
from proxy.dialects.base import Rules
from proxy.dialects.openai_errors import OpenAIErrors
from proxy.dialects.record import MALFORMED, ChatRecord, parse
from proxy.http import sse
from recorder.content.turns import Request

Body = dict[str, Any]


class ChatDialect(OpenAIErrors):
    """Chat completions."""

    name: ClassVar[str] = "chat"
    path: ClassVar[str] = "/v1/chat/completions"
    engine_path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: Rules) -> ChatReading:
        """Read a request. Raises BadRequest."""
        fields = engine_fields.load(body)
        try:
            chat_fields.check(fields, rules)
        except RecursionError as e:
            raise engine_fields.too_deep() from e
        rest = {name: value for name, value in fields.items() if name not in chat_fields.BLOBS}
        request = chat_fields.request_of(fields, rest, body, headers, rules, dialect=self.name, endpoint=self.path)
        return ChatReading(request, fields, rules)


class ChatReading:
    """One request as it was read."""

    __slots__ = ("_rules", "chat", "request")

    def __init__(self, request: Request, fields: Body, rules: Rules) -> None:
        self.request = request
        self.chat = fields
        self._rules = rules

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """The body for the engine."""
        return engine_fields.dump(chat_fields.for_engine(self.chat, engine_model, self._rules, prompt_ids))

    def answer(self) -> ChatAnswer:
        """An empty answer."""
        return ChatAnswer(self.chat, self.request)


class ChatAnswer(ChatRecord):
    """One call's answer as it comes: what the client gets of it, and what is recorded."""

    __slots__ = ("_hide_reasoning", "_kept_back", "_model", "_want_ids", "_want_logprobs", "_want_usage")

    def __init__(self, fields: Body, request: Request) -> None:
        super().__init__(request.sampling.n)
        options = fields.get("stream_options") or {}
        self._model = request.model
        self._hide_reasoning = fields.get("include_reasoning") is False
        # As the engine does: logprobs would show the hidden reasoning.
        self._want_logprobs = bool(fields.get("logprobs")) and not self._hide_reasoning
        self._want_ids = bool(fields.get("return_token_ids")) and not self._hide_reasoning
        self._want_usage = not request.stream or bool(options.get("include_usage"))
        self._kept_back: list[Body] = []

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """A whole answer: what the client gets. Raises EngineBroke."""
        answer = parse(data)
        try:
            self._strip_head(answer)
            self.note_usage(answer.get("usage"))
            for given in answer["choices"]:
                self._keeps_choice(given, given["message"])
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        self.require_finished()
        return orjson.dumps(answer)

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """One event: the bytes that the client gets for it now, perhaps none. Raises EngineBroke."""
        if data == sse.DONE:
            self.over = True
            return b""
        chunk = parse(data)
        try:
            if self._keeps(chunk):
                if self.finished:
                    self._kept_back.append(chunk)
                    return b""
                return b"data: " + orjson.dumps(chunk) + b"\n\n"
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        return b""

    def tail(self) -> bytes:
        """The event with the last finish and what followed it."""
        events = [sse.event(orjson.dumps(chunk)) for chunk in self._kept_back]
        if self.finished or self.over:
            events.append(sse.event(sse.DONE))
        return b"".join(events)

    def _keeps(self, chunk: Body) -> bool:
        """Take from a chunk what is recorded and what the client did not ask for; whether anything is left for it."""
        self._strip_head(chunk)
        choices = chunk.get("choices")
        if not choices:
            return self._keeps_without_choices(chunk)
        if not self._want_usage:
            chunk.pop("usage", None)
        kept = [given for given in choices if self._keeps_choice(given, given["delta"])]
        if len(kept) < len(choices):
            chunk["choices"] = kept
        return bool(kept)

    def _keeps_without_choices(self, chunk: Body) -> bool:
        """The usage chunk, or an error in the middle of the stream."""
        if "error" in chunk:
            self.note_error(chunk["error"])
            return False
        self.note_usage(chunk.get("usage"))
        if self._want_usage:
            return True
        fingerprint = chunk.get("system_fingerprint")
        if fingerprint and self._kept_back:  # it rides on the last event, which this one would have been
            self._kept_back[-1]["system_fingerprint"] = fingerprint
        return False

    # --- both

    def _strip_head(self, chunk: Body) -> None:
        self.note_head(chunk)
        if not self._want_ids:
            chunk.pop("prompt_token_ids", None)
        if chunk.get("prompt_text", "") is None:
            del chunk["prompt_text"]
        if "model" in chunk:
            chunk["model"] = self._model

    def _keeps_choice(self, given: Body, said: Body) -> bool:
        """Record one choice's part of the answer and strip it for the client; whether the client gets it."""
        self.take(given, said)
        if not self._want_ids:
            given.pop("token_ids", None)
        if not self._want_logprobs and given.get("logprobs"):
            given["logprobs"] = None
        if self._hide_reasoning:
            said.pop("reasoning", None)
            said.pop("reasoning_content", None)
        return given.get("finish_reason") is not None or self._want_ids or self._want_logprobs or any(said.values())
