"""OpenAI's Responses API: `POST /v1/responses`.

Owns: this format's requests, answers and errors. The engine gets a chat completion: its own /v1/responses returns no
ids and logprobs of tool calls, and keeps conversations in one engine's memory. Refuses: attribution, versions, storage,
loading earlier answers (`proxy.responses_api.stored_responses`) and background calls (`proxy.responses_api.calls`).

Where the engine's own events would mislead OpenAI's clients, they get what OpenAI sends: a truncated answer ends with
response.incomplete (the engine sends response.completed), a failed one with response.failed.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Final

import orjson

from proxy.dialects import chat, engine_fields
from proxy.dialects.base import DialectRules, RecordableAnswer, require_call_start
from proxy.dialects.chat import ChatDialect, ParsedChatRequest
from proxy.dialects.chat_record import MALFORMED, ChatRecord, parse_answer
from proxy.dialects.responses import fields as responses_fields
from proxy.dialects.responses import items as responses_input
from proxy.dialects.responses import tools
from proxy.dialects.responses.fields import META, ResponseHead, Status, response_object, response_status
from proxy.dialects.responses.stream_events import Event, ResponseEvents
from proxy.errors import BadRequest, CallerError
from proxy.http.sse import DONE
from recorder.messages.calls import Message, RecordedRequest

Body = dict[str, Any]
_MESSAGE_BYTES: Final = 64  # of a message's JSON besides its text


@dataclass(frozen=True, slots=True)
class EarlierAnswer:
    """An earlier answer: the messages that the model read for it (without instructions), its items, and the tools that
    were found up to it.
    """

    messages: Sequence[Message]
    items: Sequence[Body]
    loaded: Sequence[Body] = ()

    @property
    def size_bytes(self) -> int:
        """The approximate size of its messages."""
        return sum(_MESSAGE_BYTES + len(message.get("content") or ()) for message in self.messages)


class ResponsesDialect:
    """Responses."""

    name: ClassVar[str] = "responses"
    path: ClassVar[str] = "/v1/responses"
    engine_path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> ResponsesReader:
        """Return a reader of the request; one that `refers_to` earlier answers still needs `resolve`. Raises
        BadRequest.
        """
        dropped: list[str] = []
        fields = engine_fields.load_body(body, rules, dropped)
        engine_fields.read_values(fields)
        responses_fields.check_request(fields)
        return ResponsesReader(fields, body, headers, rules, dropped)

    def error_body(self, error: CallerError) -> bytes:
        """Return an error as OpenAI's error object."""
        return ChatDialect().error_body(error)

    def error_events(self, error: CallerError) -> bytes:
        """Return an error as the end of a stream that has not begun."""
        event = {"type": "error", "code": error.code, "message": str(error), "param": error.param, "sequence_number": 0}
        return _bytes([event])


class ResponsesReader(ParsedChatRequest):
    """One request of the Responses API."""

    def __init__(
        self,
        fields: Body,
        body: bytes,
        headers: Mapping[bytes, bytes],
        rules: DialectRules,
        dropped: Sequence[str] = (),
    ) -> None:
        self._fields = fields
        self._dropped = dropped  # parts of the body that are gone already
        self._body = body
        self._headers = headers
        self._rules = rules
        self._request_fields: Body = {}
        self.replaced: Mapping[str, float] = {}
        self._tools = tools.Toolbox()
        self.request: RecordedRequest
        self.previous: str | None = fields.get("previous_response_id") or None
        named = [responses_input.parse_item_id(id_) for id_ in responses_input.referenced_ids(fields["input"])]
        self.refers_to = {known[0] for known in named if known} | ({self.previous} if self.previous else set())
        self.background = bool(fields.get("background"))
        self.stored = fields.get("store") is not False
        if not self.refers_to:
            self.resolve({})

    def resolve(self, earlier: Mapping[str, EarlierAnswer]) -> None:
        """Complete the request with the earlier answers that it refers to. Raises BadRequest, UnknownObject."""
        try:
            self._resolve(earlier)
        except RecursionError as e:
            raise engine_fields.too_deep_error() from e

    def _resolve(self, earlier: Mapping[str, EarlierAnswer]) -> None:
        fields = self._fields
        items = responses_input.resolve_references(fields["input"], {id_: e.items for id_, e in earlier.items()})
        before = earlier[self.previous] if self.previous else EarlierAnswer((), ())
        loaded: list[tuple[str, object]] = [(f"tools of {self.previous}", tool) for tool in before.loaded]
        extras = responses_input.ItemExtras(tools=loaded, dropped=list(self._dropped))
        extras.note_calls(list(before.items))
        messages = [
            *responses_fields.system_message(fields),
            *before.messages,
            *responses_input.parse_messages(items, self._rules, extras),
        ]
        if not messages:
            raise BadRequest(
                f"the field 'input' has only {', '.join(extras.dropped) or 'tools'}, which the model does not get: "
                "add a message.",
                param="input",
            )
        self._tools = tools.read_tools(fields.get("tools") or (), extras.tools)
        self._request_fields = responses_fields.chat_fields(fields, messages, self._tools)
        chat.check_request(self._request_fields, self._rules)
        rest = responses_fields.client_fields(fields)
        request = chat.recorded_request(
            self._request_fields,
            rest,
            self._body,
            self._headers,
            self._rules,
            dialect=ResponsesDialect.name,
            endpoint=ResponsesDialect.path,
        )
        self.request = replace(
            request,
            size_bytes=request.size_bytes + before.size_bytes,
            previous_response_id=self.previous,
            dropped_tools=tuple(self._tools.dropped),
            dropped_items=tuple(extras.dropped),
        )

    def answer(self) -> ResponsesAnswer:
        """Return an empty answer."""
        return ResponsesAnswer(self._fields, self.request, self._tools, stored=self.stored)


class ResponsesAnswer(ChatRecord):
    """One call's answer while it arrives: what the client gets, and what is recorded."""

    def __init__(self, fields: Body, request: RecordedRequest, box: tools.Toolbox, *, stored: bool) -> None:
        super().__init__(choices=1)
        self._tools = box
        # The conversation is recorded as messages: a response that stays in memory must not hold the input too.
        fields_without_input = {name: value for name, value in fields.items() if name != "input"}
        if fields_without_input.get("tools"):
            fields_without_input["tools"] = tools.declared_tools(box.outline, box.functions)
        self.head = ResponseHead("resp_" + secrets.token_hex(16), int(time.time()), request.model, fields_without_input)
        self.cancelled = False  # the client cancelled the response
        self.context_length: int | None = None  # of the engine, in tokens; None: unknown
        self._stored = stored
        self._show_reasoning = fields.get("include_reasoning") is not False
        self._show_logprobs = responses_fields.wants_logprobs(fields) and self._show_reasoning
        self._events = ResponseEvents(self.head.id, box.origins)
        self._begun_stream = False
        self._kept_back: list[Event] = []
        self._text_logprobs: list[Body] = []

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """Return the client's form of a whole answer. Raises EngineFailed."""
        answer = parse_answer(data)
        try:
            self.note_head(answer)
            self.note_usage(answer.get("usage"))
            for given in answer["choices"]:
                self.take(given, given["message"])
                for call in given["message"].get("tool_calls") or ():
                    require_call_start(call)
                if self._show_logprobs:
                    self._text_logprobs += (given.get("logprobs") or {}).get("content") or []
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        self.require_finished()
        return orjson.dumps(self._whole())

    def _whole(self) -> Body:
        sampled = super().sampled()
        choice = sampled.choices[0]
        message = self._shown(choice.message)
        logprobs = self._text_logprobs or None
        items = responses_input.output_items(message, self.head.id, logprobs, origins=self._tools.origins)
        return self._object(response_status(choice.finish_reason), items, sampled.usage)

    def _shown(self, message: Message | None) -> Message | None:
        if message is None or self._show_reasoning:
            return message
        return {name: value for name, value in message.items() if name != "reasoning"}

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """Return the client's bytes for one event, perhaps none. Raises EngineFailed."""
        if data == DONE:
            self.over = True
            return b""
        chunk = parse_answer(data)
        try:
            events = self._events_of(chunk)
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        if self.finished:
            self._kept_back += events
            return b""
        return _bytes(events)

    def _events_of(self, chunk: Body) -> list[Event]:
        self.note_head(chunk)
        choices = chunk.get("choices")
        if not choices:
            if "error" in chunk:
                self.note_error(chunk["error"])
            else:
                self.note_usage(chunk.get("usage"))
            return []
        events = self._begin()
        for given in choices:
            delta = given["delta"]
            self.take(given, delta)
            if not self._show_reasoning:
                delta = {name: value for name, value in delta.items() if not name.startswith("reasoning")}
            logprobs = (given.get("logprobs") or {}).get("content") or [] if self._show_logprobs else []
            events += self._events.delta(delta, logprobs)
            if delta.get("content"):
                self._text_logprobs += logprobs
        return [*events, *self._events.close()] if self.finished else events

    def _begin(self) -> list[Event]:
        if self._begun_stream:
            return []
        self._begun_stream = True
        return [
            *self._events.about("created", self._object("in_progress")),
            *self._events.about("in_progress", self._object("in_progress")),
        ]

    def tail(self) -> bytes:
        """Return the rest of the content, then the event with the final status."""
        if not self.finished:
            return b""
        sampled = super().sampled()
        status = response_status(sampled.choices[0].finish_reason)
        response = self._object(status, self._events.items, sampled.usage)
        return _bytes([*self._kept_back, *self._events.about(status, response)])

    def failed(self, error: CallerError) -> bytes:
        """Return the end of a stream that broke off."""
        usage = super().sampled().usage
        events = [*self._begin(), *self._kept_back]
        response = self._object("failed", self._events.items, usage, failed_answer_error(error))
        return _bytes([*events, *self._events.about("failed", response)])

    # --- both

    def _object(self, status: Status, *more: Any) -> Body:
        return response_object(replace(self.head, max_output_tokens=self._limit()), status, *more)

    def _limit(self) -> int | None:
        """The answer's limit in tokens: as requested, bounded by the engine's context minus the prompt."""
        requested: int | None = self.head.fields.get("max_output_tokens")
        if self.context_length is None or self._prompt_ids is None:
            return requested
        left = self.context_length - len(self._prompt_ids)
        if left < 1:  # the engine refuses such a prompt, and a limit below 1 is useless
            return requested
        return left if requested is None else min(requested, left)

    def sampled(self) -> RecordableAnswer:
        """Return the recordable parts, and the fields of the response object that are recorded nowhere else."""
        sampled = super().sampled()
        is_known = self.finished or self._begun_stream or bool(self.head.fields.get("background"))
        issued = [*sampled.issued_ids, *([(self.head.id, "response", 0)] if self._stored and is_known else [])]
        meta = {**(sampled.response_meta or {}), META: self._meta_of(sampled)}
        return replace(sampled, response_meta=meta, issued_ids=issued)

    def _meta_of(self, sampled: RecordableAnswer) -> Body:
        meta: Body = {"id": self.head.id, "created_at": self.head.created_at}
        if self.head.fields.get("instructions") is not None:
            meta["instructions"] = bool(self.head.fields["instructions"])
        if (limit := self._limit()) != self.head.fields.get("max_output_tokens"):
            meta["max_output_tokens"] = limit
        if self._tools.loaded or not tools.is_plain(self._tools.outline):
            meta["tools"] = self._tools.outline
        if self._tools.loaded:
            meta["loaded"] = self._tools.loaded
        if not self._show_reasoning:
            meta["reasoning_hidden"] = True
        if self._stored and self._text_logprobs:
            meta["logprobs"] = self._text_logprobs
        items = self._events.items
        if self._stored and items and not (self.finished and items == self._usual_items(sampled)):
            meta["items"] = items
        if self.cancelled:
            meta["cancelled"] = True
        return meta

    def _usual_items(self, sampled: RecordableAnswer) -> list[Body]:
        """A stream's items, as far as the recorded message determines them."""
        message = sampled.choices[0].message if sampled.choices else None
        logprobs = self._text_logprobs or None
        return responses_input.output_items(
            self._shown(message), self.head.id, logprobs, streamed=True, origins=self._tools.origins
        )


def failed_answer_error(error: CallerError) -> tuple[str, str]:
    """Return the code and the message of a failed answer."""
    return error.code or error.kind, str(error)


def _bytes(events: Sequence[Event]) -> bytes:
    """Events in a stream's form: with names, unlike chat's."""
    return b"".join(b"event: %b\ndata: %b\n\n" % (event["type"].encode(), orjson.dumps(event)) for event in events)
