"""An answer that the client gets in the engine's own objects, less what it did not ask for: chat's and completions'.

Owns: what the two share: how such an answer is taken apart and written again, the events that are kept back for its
end, and the usage that a client may not have asked for. Refuses: what is recorded (`proxy.dialects.chat_record`), and
what a choice looks like: each format says what of it is left for the client.

OpenAI's error object, for the formats that are OpenAI's.

Owns: an error as a body, and as the end of a stream. Refuses: deciding what is an error.
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
    """One call's answer as it comes: what the client gets of it, and what is recorded."""

    __slots__ = ("_kept_back", "_model", "_want_ids", "_want_usage")

    def __init__(self, fields: Body, request: RecordedRequest) -> None:
        super().__init__(request.sampling.n)
        options = fields.get("stream_options") or {}
        self._model = request.model
        self._want_ids = bool(fields.get("return_token_ids"))
        self._want_usage = bool(options.get("include_usage"))  # in a stream; a whole answer always tells it
        self._kept_back: list[Body] = []

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """A whole answer: what the client gets. Raises EngineBroke."""
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
        """Record one choice, and strip it for the client."""
        raise NotImplementedError

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """One event: the bytes that the client gets for it now, perhaps none. Raises EngineBroke."""
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
        """The event with the last finish and what followed it."""
        events = [sse.encode_event(orjson.dumps(chunk)) for chunk in self._kept_back]
        if self.finished or self.over:
            events.append(sse.encode_event(sse.DONE))
        return b"".join(events)

    def _keeps(self, chunk: Body) -> bool:
        """Take from a chunk what is recorded and what the client did not ask for; whether anything is left for it."""
        self._head(chunk)
        choices = chunk.get("choices")
        return self._keeps_choices(chunk, choices) if choices else self._keeps_without_choices(chunk)

    def _keeps_choices(self, chunk: Body, choices: list[Body]) -> bool:
        """The same, for a chunk with choices."""
        raise NotImplementedError

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

    def _head(self, answer: Body) -> None:
        """Record what stands beside the choices, and strip it for the client."""
        self.note_head(answer)
        if not self._want_ids:
            answer.pop("prompt_token_ids", None)
        if answer.get("prompt_text", "") is None:
            del answer["prompt_text"]
        if "model" in answer:
            answer["model"] = self._model


class OpenAIErrors:
    """What a dialect of OpenAI's says when something is wrong."""

    def error_body(self, error: CallerError) -> bytes:
        """An error as OpenAI's error object."""
        shown = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
        return orjson.dumps({"error": shown})

    def error_events(self, error: CallerError) -> bytes:
        """An error as the last event of a stream, and the end of it."""
        return sse.encode_event(self.error_body(error)) + sse.encode_event(sse.DONE)
