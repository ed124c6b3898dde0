"""Answers in the engine's own objects, filtered to what the client asked for; and OpenAI's error object.

Owns: what chat and completions share: decoding and encoding such an answer, events that are held back until the commit,
usage that the client did not request, and errors as a body or as the end of a stream. Refuses: what is recorded
(`proxy.dialects.chat_record`), and what a choice looks like: each format filters it.
"""

from __future__ import annotations

from typing import Any

import orjson

from proxy.dialects.chat_record import MALFORMED, ChatRecord, parse_answer
from proxy.errors import CallerError
from proxy.http import sse
from recorder.messages.calls import RecordedRequest

Body = dict[str, Any]


class FilteredAnswer(ChatRecord):
    """One call's answer while it arrives: what the client gets, and what is recorded."""

    __slots__ = ("_kept_back", "_model", "_want_ids", "_want_usage")

    def __init__(self, fields: Body, request: RecordedRequest) -> None:
        super().__init__(request.sampling.n)
        options = fields.get("stream_options") or {}
        self._model = request.model
        self._want_ids = bool(fields.get("return_token_ids"))
        self._want_usage = bool(options.get("include_usage"))  # in a stream; a whole answer always has it
        self._kept_back: list[Body] = []

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """Return the client's form of a whole answer. Raises EngineFailed."""
        answer = parse_answer(data)
        try:
            self._head(answer)
            self.note_usage(answer.get("usage"))
            for given in answer["choices"]:
                self._whole_choice(given)
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        self.require_finished()
        return orjson.dumps(answer)

    def _whole_choice(self, given: Body) -> None:
        """Record one choice, and filter it for the client."""
        raise NotImplementedError

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """Return the client's bytes for one event, perhaps none. Raises EngineFailed."""
        if data == sse.DONE:
            self.over = True
            return b""
        chunk = parse_answer(data)
        try:
            if not self._keeps(chunk):
                return b""
            if not self.finished:
                return b"data: " + orjson.dumps(chunk) + b"\n\n"
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        self._kept_back.append(chunk)
        return b""

    def tail(self) -> bytes:
        """Return the event with the last finish and those after it."""
        events = [sse.encode_event(orjson.dumps(chunk)) for chunk in self._kept_back]
        if self.finished or self.over:
            events.append(sse.encode_event(sse.DONE))
        return b"".join(events)

    def _keeps(self, chunk: Body) -> bool:
        """Record a chunk and filter it. Return whether anything is left for the client."""
        self._head(chunk)
        choices = chunk.get("choices")
        return self._keeps_choices(chunk, choices) if choices else self._keeps_without_choices(chunk)

    def _keeps_choices(self, chunk: Body, choices: list[Body]) -> bool:
        """The same, for a chunk with choices."""
        raise NotImplementedError

    def _keeps_without_choices(self, chunk: Body) -> bool:
        """The same, for the usage chunk or an error in the middle of the stream."""
        if "error" in chunk:
            self.note_error(chunk["error"])
            return False
        self.note_usage(chunk.get("usage"))
        if self._want_usage:
            return True
        fingerprint = chunk.get("system_fingerprint")
        if fingerprint and self._kept_back:  # it belongs to the last event, which this one would have been
            self._kept_back[-1]["system_fingerprint"] = fingerprint
        return False

    # --- both

    def _head(self, answer: Body) -> None:
        """Record all fields but the choices, and filter them for the client."""
        self.note_head(answer)
        if not self._want_ids:
            answer.pop("prompt_token_ids", None)
        if answer.get("prompt_text", "") is None:
            del answer["prompt_text"]
        if "model" in answer:
            answer["model"] = self._model


class OpenAIErrors:
    """Errors in OpenAI's format, for OpenAI's dialects."""

    def error_body(self, error: CallerError) -> bytes:
        """Return an error as OpenAI's error object."""
        fault = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
        return orjson.dumps({"error": fault})

    def error_events(self, error: CallerError) -> bytes:
        """Return an error as the last event of a stream, and its end."""
        return sse.encode_event(self.error_body(error)) + sse.encode_event(sse.DONE)
