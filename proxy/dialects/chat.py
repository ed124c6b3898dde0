"""OpenAI's chat completions, as vLLM speaks them: `POST /v1/chat/completions`.

Owns: this format's requests, answers and errors. The engine is asked for token ids and logprobs whether or not the
client wants them; the client gets what it asked for. Refuses: attribution, versions, storage.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, ClassVar

import orjson

from proxy import sse
from proxy.dialects import engine_fields
from proxy.dialects.base import Choice, Rules, Sampled
from proxy.errors import BadRequest, CallerError, EngineBroke
from recorder.turns import Message, Request, SampledChoice

Body = dict[str, Any]

_BLOBS = frozenset({"messages", "tools", "response_format"})
_MALFORMED = (KeyError, TypeError, AttributeError, ValueError)


class ChatDialect:
    """Chat completions."""

    name: ClassVar[str] = "chat"
    path: ClassVar[str] = "/v1/chat/completions"
    engine_path: ClassVar[str] = "/v1/chat/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: Rules) -> ChatReading:
        """Read a request. Raises BadRequest."""
        fields = engine_fields.load(body)
        try:
            _check(fields, rules)
        except RecursionError as e:
            raise engine_fields.too_deep() from e
        retries = headers.get(b"x-stainless-retry-count", b"0")
        request = Request(
            dialect=self.name,
            endpoint=self.path,
            model=fields["model"],
            stream=bool(fields.get("stream")),
            messages=fields["messages"],
            tools=fields.get("tools"),
            response_format=fields.get("response_format"),
            rest={name: value for name, value in fields.items() if name not in _BLOBS},
            body_hash=blake2b(body, digest_size=16).digest(),
            sampling=engine_fields.sampling(fields, rules, _forced(fields)),
            retry_count=int(retries[:4]) if retries.isdigit() else 0,
        )
        return ChatReading(request, fields, rules)

    def error_body(self, error: CallerError) -> bytes:
        """An error as OpenAI's error object."""
        shown = {"message": str(error), "type": error.kind, "param": error.param, "code": error.code}
        return orjson.dumps({"error": shown})

    def error_events(self, error: CallerError) -> bytes:
        """An error as the last event of a stream, and the end of it."""
        return sse.event(self.error_body(error)) + sse.event(sse.DONE)


def _check(fields: Body, rules: Rules) -> None:
    if not isinstance(fields.get("model"), str):
        raise BadRequest("the field 'model' is missing or no string: `GET /v1/models` lists the names.", param="model")
    engine_fields.refuse(fields)
    engine_fields.check_types(fields)
    engine_fields.check_bounds(fields)
    if fields.get("top_logprobs") and not fields.get("logprobs"):
        raise BadRequest("the field 'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("the field 'messages' must be a list with at least one message.", param="messages")
    for at, message in enumerate(messages):
        _check_message(message, f"messages[{at}]", rules)
    for at, tool in enumerate(fields.get("tools") or ()):
        if not isinstance(tool, dict):
            raise BadRequest(f"tools[{at}] is {tool!r:.60}: give an object.", param=f"tools[{at}]")


def _check_message(message: object, where: str, rules: Rules) -> None:
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


def _are_tool_calls(calls: object) -> bool:
    return isinstance(calls, list) and all(
        isinstance(call, dict) and isinstance(call.get("function", {}), dict) for call in calls
    )


def _forced(fields: Body) -> tuple[str, ...]:
    """What of tools and formats lets the engine's grammar pick tokens, where plain sampling would not."""
    bends = []
    choice = fields.get("tool_choice")
    if isinstance(choice, dict) or choice == "required":
        bends.append("tool_choice")
    elif choice != "none" and any(_is_strict(tool) for tool in fields.get("tools") or ()):
        bends.append("strict_tools")
    form = fields.get("response_format")
    if form and form.get("type") != "text":
        bends.append("response_format")
    return tuple(bends)


def _is_strict(tool: Body) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and function.get("strict") is True


class ChatReading:
    """One request as it was read."""

    __slots__ = ("_fields", "_rules", "request")

    def __init__(self, request: Request, fields: Body, rules: Rules) -> None:
        self.request = request
        self._fields = fields
        self._rules = rules

    def engine_body(self, engine_model: str) -> bytes:
        """The body for the engine: the client's fields, neutral sampling values, and what Hone wants to know."""
        body = dict(self._fields)
        engine_fields.add_neutral(body, self._rules)
        body["model"] = engine_model
        body["return_token_ids"] = True
        body["top_logprobs"] = body.get("top_logprobs") or 0
        body["logprobs"] = True
        body["include_reasoning"] = True  # without it the engine hides ids and logprobs; the answer hides it instead
        if self.request.stream:
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return engine_fields.dump(body)

    def answer(self) -> ChatAnswer:
        """An empty answer."""
        return ChatAnswer(self._fields, self.request)


class ChatAnswer:
    """One call's answer as it comes: what the client gets of it, and what is recorded."""

    __slots__ = (
        "_choices",
        "_hide_reasoning",
        "_kept_back",
        "_meta",
        "_model",
        "_prompt_ids",
        "_unfinished",
        "_usage",
        "_want_ids",
        "_want_logprobs",
        "_want_usage",
        "begun",
        "error",
        "finished",
        "over",
    )

    def __init__(self, fields: Body, request: Request) -> None:
        options = fields.get("stream_options") or {}
        self._model = request.model
        self._hide_reasoning = fields.get("include_reasoning") is False
        # As the engine does: logprobs would show the hidden reasoning.
        self._want_logprobs = bool(fields.get("logprobs")) and not self._hide_reasoning
        self._want_ids = bool(fields.get("return_token_ids")) and not self._hide_reasoning
        self._want_usage = not request.stream or bool(options.get("include_usage"))
        self._choices: dict[int, Choice] = {}
        self._unfinished = request.sampling.n
        self._prompt_ids: list[int] | None = None
        self._usage: Body | None = None
        self._meta: Body = {}
        self._kept_back: list[Body] = []
        self.finished = False
        self.over = False
        self.begun = False
        self.error: str | None = None

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """A whole answer: what the client gets. Raises EngineBroke."""
        answer = _parse(data)
        try:
            self._note_head(answer)
            self._usage = answer.get("usage")
            for given in answer["choices"]:
                self._take(given, given["message"])
        except _MALFORMED as e:
            raise _unreadable(data, e) from e
        if not self.finished:
            raise EngineBroke(
                f"the engine's answer has {len(self._choices)} finished choices, fewer than were asked for"
            )
        self.over = True
        return orjson.dumps(answer)

    # --- streaming

    def event(self, data: bytes) -> bytes:
        """One event: the bytes that the client gets for it now, perhaps none. Raises EngineBroke."""
        if data == sse.DONE:
            self.over = True
            return b""
        chunk = _parse(data)
        try:
            if self._keeps(chunk):
                if self.finished:
                    self._kept_back.append(chunk)
                    return b""
                return b"data: " + orjson.dumps(chunk) + b"\n\n"
        except _MALFORMED as e:
            raise _unreadable(data, e) from e
        return b""

    def tail(self) -> bytes:
        """The event with the last finish and what followed it."""
        events = [sse.event(orjson.dumps(chunk)) for chunk in self._kept_back]
        if self.finished or self.over:
            events.append(sse.event(sse.DONE))
        return b"".join(events)

    def _keeps(self, chunk: Body) -> bool:
        """Take from a chunk what is recorded and what the client did not ask for; whether anything is left for it."""
        self._note_head(chunk)
        choices = chunk.get("choices")
        if not choices:
            return self._keeps_without_choices(chunk)
        if not self._want_usage:
            chunk.pop("usage", None)
        kept = [given for given in choices if self._take(given, given["delta"])]
        if len(kept) < len(choices):
            chunk["choices"] = kept
        return bool(kept)

    def _keeps_without_choices(self, chunk: Body) -> bool:
        """The usage chunk, or an error in the middle of the stream."""
        if "error" in chunk:
            fault = chunk["error"]
            self.error = str(fault.get("message") if isinstance(fault, dict) else fault)
            return False
        self._usage = chunk.get("usage") or self._usage
        if self._want_usage:
            return True
        fingerprint = chunk.get("system_fingerprint")
        if fingerprint and self._kept_back:  # it rides on the last event, which this one would have been
            self._kept_back[-1]["system_fingerprint"] = fingerprint
        return False

    # --- both

    def _note_head(self, chunk: Body) -> None:
        ids = chunk.get("prompt_token_ids")
        if ids is not None and self._prompt_ids is None:
            self._prompt_ids = ids
        if not self._want_ids:
            chunk.pop("prompt_token_ids", None)
        if chunk.get("prompt_text", "") is None:
            del chunk["prompt_text"]
        if "model" in chunk:
            chunk["model"] = self._model
        if not self._meta or "system_fingerprint" in chunk:
            self._meta |= {k: chunk[k] for k in ("id", "created", "system_fingerprint") if chunk.get(k) is not None}

    def _take(self, given: Body, said: Body) -> bool:
        """Record one choice's part of the answer and strip it for the client; whether the client gets it."""
        index = given["index"]
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = Choice(index)
        ids = given.get("token_ids")
        if ids:
            choice.token_ids += ids
            self.begun = True
        if not self._want_ids:
            given.pop("token_ids", None)
        logprobs = given.get("logprobs")
        if logprobs:
            choice.logprobs += [entry["logprob"] for entry in logprobs.get("content") or ()]
            if not self._want_logprobs:
                given["logprobs"] = None
        self._hear(choice, said)
        finish = given.get("finish_reason")
        if finish is not None:
            self._finish(choice, finish, given)
            return True
        return self._want_ids or self._want_logprobs or any(said.values())

    def _hear(self, choice: Choice, said: Body) -> None:
        for name, value in said.items():
            if not value:
                continue
            if name == "content":
                choice.content.append(_text(value))
            elif name == "tool_calls":
                for at, part in enumerate(value):
                    _merge_tool_call(choice.tool_calls, part, at)
            elif name in ("reasoning", "reasoning_content"):
                choice.reasoning.append(_text(value))
            elif name != "role":
                choice.extras[name] = value
        if self._hide_reasoning:
            said.pop("reasoning", None)
            said.pop("reasoning_content", None)

    def _finish(self, choice: Choice, reason: str, given: Body) -> None:
        if choice.finish_reason is None:
            self._unfinished -= 1
            self.finished = self._unfinished <= 0
        choice.finish_reason = reason
        choice.stop_reason = given.get("stop_reason")

    def sampled(self) -> Sampled:
        """The parts of the turn, also of an answer that broke off."""
        choices = [self._choices[index] for index in sorted(self._choices)]
        stops = {str(c.index): c.stop_reason for c in choices if c.stop_reason is not None}
        return Sampled(
            prompt_token_ids=self._prompt_ids,
            choices=[_sampled(choice) for choice in choices],
            usage=self._usage or self._counted(choices),
            response_meta=(self._meta | {"stop_reasons": stops} if stops else self._meta) or None,
            issued_ids=[
                (call["id"], "tool_call", choice.index)
                for choice in choices
                for call in choice.tool_calls.values()
                if _is_unique(call.get("id"))
            ],
        )

    def _counted(self, choices: list[Choice]) -> Body | None:
        """The usage of an answer that broke off before the engine told it."""
        if self._prompt_ids is None:
            return None
        prompt, sampled = len(self._prompt_ids), sum(len(choice.token_ids) for choice in choices)
        return {"prompt_tokens": prompt, "completion_tokens": sampled, "total_tokens": prompt + sampled}


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r:.60} is no text")
    return value


def _parse(data: bytes) -> Body:
    try:
        parsed = orjson.loads(data)
    except orjson.JSONDecodeError as e:
        raise _unreadable(data, e) from e
    if not isinstance(parsed, dict):
        raise _unreadable(data, TypeError("not an object"))
    return parsed


def _unreadable(data: bytes, why: Exception) -> EngineBroke:
    shown = data[:200].decode(errors="replace")
    return EngineBroke(f"the engine sent something that is no chat completion ({type(why).__name__}: {why}): {shown!r}")


def _merge_tool_call(calls: dict[int, Body], part: Body, at: int) -> None:
    """Add one part of a tool call: whole without streaming, piece by piece with it."""
    index = part.get("index", at)
    call = calls.get(index)
    if call is None:
        call = calls[index] = {"id": None, "type": "function", "function": {"name": "", "arguments": ""}}
    call["id"] = part.get("id") or call["id"]
    call["type"] = part.get("type") or call["type"]
    function = part.get("function") or {}
    call["function"]["name"] += function.get("name") or ""
    call["function"]["arguments"] += function.get("arguments") or ""


def _sampled(choice: Choice) -> SampledChoice:
    return SampledChoice(
        index=choice.index,
        message=_message(choice),
        token_ids=choice.token_ids or None,
        logprobs=[_number(p) for p in choice.logprobs] if None in choice.logprobs else choice.logprobs or None,
        finish_reason=choice.finish_reason,
    )


def _number(logprob: float | None) -> float:
    return math.nan if logprob is None else logprob


def _message(choice: Choice) -> Message | None:
    if not (choice.token_ids or choice.finish_reason or choice.content or choice.tool_calls):
        return None
    message: Body = {"role": "assistant", "content": "".join(choice.content) or None}
    if choice.reasoning:
        message["reasoning"] = "".join(choice.reasoning)
    if choice.tool_calls:
        message["tool_calls"] = [choice.tool_calls[index] for index in sorted(choice.tool_calls)]
    return message | choice.extras


def _is_unique(tool_call_id: str | None) -> bool:
    """Whether an id can only be ours: some models count (`functions.find:0`) where others draw at random."""
    return bool(tool_call_id) and len(str(tool_call_id)) >= 9 and not str(tool_call_id).startswith("functions.")
