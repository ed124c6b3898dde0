"""OpenAI's chat completions, as vLLM serves them (`POST /v1/chat/completions`), and what other dialects reuse of it.

Owns: this format's requests and answers. For every dialect that sends chat completions to the engine: the steps from
checked fields to the engine's body. For chat and completions: answers in the engine's own objects, filtered to what the
client asked for, with events held back until the commit; and OpenAI's error object. The engine always returns token ids
and logprobs; the client gets only what it asked for. Refuses: fields of other formats (their dialects translate them
first), what is recorded (`proxy.dialects.chat_record`), attribution, versions, storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any, ClassVar

import orjson

from proxy.dialects import engine_fields, parsed_request
from proxy.dialects.base import DialectRules
from proxy.dialects.chat_record import MALFORMED, ChatRecord, parse_answer
from proxy.dialects.parsed_request import ParsedRequest
from proxy.dialects.tool_types import custom as in_chat
from proxy.errors import BadRequest, CallerError
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
        if (
            fingerprint and self._kept_back
        ):  # the client gets no usage event, so it belongs to the last event that it gets
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


SEALED = "redacted_thinking"  # another vendor's reasoning
_NOT_SHOWN = (SEALED, "file", "input_file")
BLOBS = frozenset({"messages", "tools", "response_format"})  # recorded apart from the rest of the body


class ParsedChatRequest(ParsedRequest):
    """A request for which the engine gets chat's fields. Its answer is each dialect's own."""

    __slots__ = ()

    @property
    def chat(self) -> Body:
        """The request in the fields of chat completions."""
        return self._request_fields

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """Return the body for the engine."""
        fields = {**self._request_fields, **self.replaced}
        body = build_engine_body(fields, engine_model, self._rules, prompt_ids)
        return engine_fields.dump_body(body, self.request.size_bytes)


def recorded_request(
    fields: Body,
    rest: Body,
    body: bytes,
    headers: Mapping[bytes, bytes],
    rules: DialectRules,
    *,
    dialect: str,
    endpoint: str,
    dropped_tools: tuple[str, ...] = (),
    dropped_items: tuple[str, ...] = (),
) -> RecordedRequest:
    """Return the recorder's request for checked fields. `rest`: the client's own body without the fields in `BLOBS`."""
    retries = headers.get(b"x-stainless-retry-count", b"0")
    return RecordedRequest(
        dialect=dialect,
        endpoint=endpoint,
        model=fields["model"],
        stream=bool(fields.get("stream")),
        messages=fields["messages"],
        size_bytes=len(body),
        tools=fields.get("tools"),
        response_format=fields.get("response_format"),
        rest=rest,
        body_hash=blake2b(body, digest_size=16).digest(),
        sampling=engine_fields.effective_sampling(fields, rules, parsed_request.forced_features(fields, rules)),
        retry_count=int(retries[:4]) if retries.isdigit() else 0,
        dropped_tools=dropped_tools,
        dropped_items=dropped_items,
    )


def build_engine_body(
    fields: Body, engine_model: str, rules: DialectRules, prompt_ids: Sequence[int] | None = None
) -> Body:
    """Return the engine's body: the fields, neutral sampling values, and the values that Hone records.

    `prompt_ids` replace the prompt that the template would render; tools and answers are parsed as before.
    """
    body = {**fields, **parsed_request.relax_request(fields, rules)}
    engine_fields.add_neutral(body, rules)
    body["model"] = engine_model
    body["return_token_ids"] = True
    body["top_logprobs"] = body.get("top_logprobs") or 0
    body["logprobs"] = True
    body["include_reasoning"] = True  # without it the engine hides ids and logprobs; the answer hides it instead
    engine_fields.request_usage(body)
    if prompt_ids is not None:
        body["kv_transfer_params"] = {"prompt_token_ids": prompt_ids}
    return body


def check_request(fields: Body, rules: DialectRules) -> None:
    """Raise BadRequest, naming the field, for a request that must not reach the engine. May raise RecursionError."""
    engine_fields.check_fields(fields)
    if fields.get("top_logprobs") and not fields.get("logprobs"):
        raise BadRequest("the field 'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("the field 'messages' must be a list with at least one message.", param="messages")
    engine_fields.require_few_messages(len(messages), "messages", rules)  # other formats have several in one of theirs
    for at, message in enumerate(messages):
        _check_message(message, f"messages[{at}]", rules)


def _check_message(message: object, where: str, rules: DialectRules) -> None:
    if not isinstance(message, dict) or not isinstance(message.get("role"), str):
        raise BadRequest(f"{where} is not an object with a 'role'.", param=where, code="invalid_type")
    content = message.get("content")
    if content is not None and not isinstance(content, str):
        if not isinstance(content, list):
            raise BadRequest(f"{where}.content must be a string, a list or null.", param=f"{where}.content")
        engine_fields.check_media(content, rules, f"{where}.content")
    calls = message.get("tool_calls")
    if calls is not None and not _are_tool_calls(calls):
        raise BadRequest(f"{where}.tool_calls must be a list of tool calls.", param=f"{where}.tool_calls")


def _without_files(message: Body, dropped: list[str]) -> Body:
    """A message with a text in place of each file, and without sealed reasoning: the engine refuses both."""
    content = message.get("content")
    if not isinstance(content, list) or not any(_kind_of(part) in _NOT_SHOWN for part in content):
        return message
    dropped += [SEALED for part in content if _kind_of(part) == SEALED]
    kept = [part for part in content if _kind_of(part) != SEALED]
    shown = [engine_fields.file_part(part, dropped) if _kind_of(part) in _NOT_SHOWN else part for part in kept]
    return message | {"content": shown}


def _kind_of(part: object) -> object:
    return part.get("type") if isinstance(part, dict) else None


def _are_tool_calls(calls: object) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("function", {}), dict) for call in calls
    )


class ChatDialect(OpenAIErrors):
    """Chat completions."""

    name: ClassVar[str] = "chat"
    path: ClassVar[str] = "/v1/chat/completions"
    engine_path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> ChatReader:
        """Return a reader of the request. Raises BadRequest."""
        dropped: list[str] = []
        fields = engine_fields.load_body(body, rules, dropped)
        engine_fields.read_values(fields)
        try:
            check_request(fields, rules)
            shown = [_without_files(message, dropped) for message in fields["messages"]]
            translated = in_chat.translate_request(fields | {"messages": shown})
        except RecursionError as e:
            raise engine_fields.too_deep_error() from e
        rest = {name: value for name, value in fields.items() if name not in BLOBS}
        chat = translated.fields
        request = recorded_request(
            chat,
            rest,
            body,
            headers,
            rules,
            dialect=self.name,
            endpoint=self.path,
            dropped_tools=translated.dropped,
            dropped_items=tuple(dropped),
        )
        return ChatReader(request, chat, rules, translated.custom)


class ChatReader(ParsedChatRequest):
    """One request of chat completions."""

    __slots__ = ("_custom",)

    def __init__(self, request: RecordedRequest, chat: Body, rules: DialectRules, custom: frozenset[str]) -> None:
        super().__init__(request, chat, rules)
        self._custom = custom

    def answer(self) -> ChatAnswer:
        """Return an empty answer."""
        return ChatAnswer(self.chat, self.request, self._custom)


class ChatAnswer(FilteredAnswer):
    """One call's answer while it arrives: what the client gets, and what is recorded."""

    __slots__ = ("_custom", "_hide_reasoning", "_want_logprobs")

    def __init__(self, fields: Body, request: RecordedRequest, custom: frozenset[str]) -> None:
        super().__init__(fields, request)
        self._custom = in_chat.ToolCallBuffer(custom)
        self._hide_reasoning = fields.get("include_reasoning") is False
        # As in the engine: ids and logprobs would reveal the hidden reasoning.
        self._want_ids = self._want_ids and not self._hide_reasoning
        self._want_logprobs = bool(fields.get("logprobs")) and not self._hide_reasoning

    def _whole_choice(self, given: Body) -> None:
        message = given["message"]
        self._keeps_choice(given, message)
        if message.get("tool_calls"):
            message["tool_calls"] = [self._custom.client_form(call) for call in message["tool_calls"]]

    def _keeps_choices(self, chunk: Body, choices: list[Body]) -> bool:
        if not self._want_usage:
            chunk.pop("usage", None)
        kept_choices = [given for given in choices if self._keeps_choice(given, given["delta"])]
        if len(kept_choices) < len(choices):
            chunk["choices"] = kept_choices
        return bool(kept_choices)

    def _keeps_choice(self, given: Body, message: Body) -> bool:
        """Record one choice's part of the answer and filter it. Return whether anything is left for the client."""
        self.take(given, message)
        if self._custom.names and "delta" in given:
            self._custom.pass_on(given["index"], message, given.get("finish_reason") is not None)
        if not self._want_ids:
            given.pop("token_ids", None)
        if not self._want_logprobs and given.get("logprobs"):
            given["logprobs"] = None
        if self._hide_reasoning:
            message.pop("reasoning", None)
            message.pop("reasoning_content", None)
        return given.get("finish_reason") is not None or self._want_ids or self._want_logprobs or any(message.values())
