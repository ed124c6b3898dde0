"""OpenAI's completions, as vLLM speaks them: `POST /v1/completions`, by text or by token ids.

Owns: this format's requests and answers, for one prompt a call (`proxy.serving.several_prompts` takes a list of them
apart). The recorder's form of a prompt is one user message: its text, or its ids as a JSON list. Refuses: attribution,
versions, storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from proxy.dialects import chat_fields, engine_fields
from proxy.dialects.base import Rules
from proxy.dialects.openai_errors import OpenAIErrors
from proxy.dialects.record import MALFORMED, ChatRecord, parse
from proxy.errors import BadRequest
from proxy.http import sse
from recorder.content.turns import Message, Request

Body = dict[str, Any]
Prompt = str | list[int]

DEFAULT_MAX_TOKENS: Final = 16  # OpenAI's, and the engine's
_BLOBS: Final = frozenset({"prompt", "response_format"})  # recorded apart from the rest of the body


class CompletionsDialect(OpenAIErrors):
    """Completions."""

    name: ClassVar[str] = "completions"
    path: ClassVar[str] = "/v1/completions"
    engine_path: ClassVar[str] = "/v1/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: Rules) -> CompletionsReading:
        """Read a request. Raises BadRequest."""
        fields = engine_fields.load(body)
        _check(fields)
        prompt = _prompt(fields.get("prompt"))
        rest = {name: value for name, value in fields.items() if name not in _BLOBS}
        if fields.get("max_tokens") is None:
            fields["max_tokens"] = DEFAULT_MAX_TOKENS
        told = fields | {"messages": [message_of(prompt)]}
        request = chat_fields.request_of(told, rest, body, headers, rules, dialect=self.name, endpoint=self.path)
        return CompletionsReading(request, fields, prompt, rules)


def message_of(prompt: Prompt) -> Message:
    """A prompt, or the rest of one, as the recorder keeps it."""
    return {"role": "user", "content": prompt if isinstance(prompt, str) else orjson.dumps(prompt).decode()}


def prompts_of(prompt: object) -> list[Any] | None:
    """The prompts of a request that has several; None where it has one, or what is none. Raises BadRequest."""
    if not isinstance(prompt, list) or len(prompt) < 2 or isinstance(prompt[0], int):
        return None
    for one in prompt:  # before any of them is sampled from
        _prompt(one)
    return prompt


def _check(fields: Body) -> None:
    if not isinstance(fields.get("model"), str):
        raise BadRequest("the field 'model' is missing or no string: `GET /v1/models` lists the names.", param="model")
    engine_fields.refuse(fields)
    engine_fields.check_types({name: value for name, value in fields.items() if name != "logprobs"})
    engine_fields.check_bounds(fields)
    logprobs = fields.get("logprobs")
    most = engine_fields.MAX_TOP_LOGPROBS
    if logprobs is not None and not (_is_id(logprobs) and logprobs <= most):
        raise BadRequest(
            f"the field 'logprobs' is {logprobs!r:.60}: give a whole number from 0 to {most}.",
            param="logprobs",
            code="invalid_value",
        )


def _prompt(prompt: object) -> Prompt:
    """The one prompt of a request. Raises BadRequest."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(_is_id(token) for token in prompt):
        return prompt
    raise BadRequest(
        "the field 'prompt' must be a text, a list of token ids, or a list of either, and none of them empty.",
        param="prompt",
    )


def _is_id(token: object) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 2**31


class CompletionsReading:
    """One request as it was read."""

    __slots__ = ("_fields", "_rules", "prompt", "request")

    def __init__(self, request: Request, fields: Body, prompt: Prompt, rules: Rules) -> None:
        self.request = request
        self.prompt = prompt
        self._fields = fields
        self._rules = rules

    @property
    def chat(self) -> None:
        """None: the engine is asked for a completion."""
        return

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """The body for the engine; `prompt_ids` are never given, since the caller gave its prompt."""
        body = dict(self._fields)
        engine_fields.add_neutral(body, self._rules)
        body |= {"model": engine_model, "return_token_ids": True, "logprobs": body.get("logprobs") or 0}
        if body.get("stream"):
            body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
        return engine_fields.dump(body)

    def answer(self) -> CompletionsAnswer:
        """An empty answer."""
        return CompletionsAnswer(self._fields, self.request)


class CompletionsAnswer(ChatRecord):
    """One call's answer as it comes: what the client gets of it, and what is recorded."""

    __slots__ = ("_every_usage", "_kept_back", "_model", "_want_ids", "_want_logprobs", "_want_usage")

    def __init__(self, fields: Body, request: Request) -> None:
        super().__init__(request.sampling.n)
        options = fields.get("stream_options") or {}
        self._model = request.model
        self._want_ids = bool(fields.get("return_token_ids"))
        self._want_logprobs = fields.get("logprobs") is not None
        self._want_usage = bool(options.get("include_usage"))
        self._every_usage = self._want_usage and bool(options.get("continuous_usage_stats"))
        self._kept_back: list[Body] = []

    # --- without streaming

    def body(self, data: bytes) -> bytes:
        """A whole answer: what the client gets. Raises EngineBroke."""
        answer = parse(data)
        try:
            self._head(answer)
            self.note_usage(answer.get("usage"))
            for given in answer["choices"]:
                self._choice(given)
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
            kept = self._keeps(chunk)
        except MALFORMED as e:
            raise self.unreadable(data, e) from e
        if kept and self.finished:
            self._kept_back.append(chunk)
        return sse.event(orjson.dumps(chunk)) if kept and not self.finished else b""

    def tail(self) -> bytes:
        """The event with the last finish and what followed it."""
        events = [sse.event(orjson.dumps(chunk)) for chunk in self._kept_back]
        if self.finished or self.over:
            events.append(sse.event(sse.DONE))
        return b"".join(events)

    def _keeps(self, chunk: Body) -> bool:
        """Take from a chunk what is recorded and what the client did not ask for; whether anything is left for it."""
        self._head(chunk)
        if not chunk.get("choices"):
            if "error" in chunk:
                self.note_error(chunk["error"])
                return False
            self.note_usage(chunk.get("usage"))
            self._stamp(chunk.get("system_fingerprint"))
            return self._want_usage
        if not self._every_usage:
            chunk.pop("usage", None)
        for given in chunk["choices"]:
            self._choice(given)
        return True  # also one that shows nothing: the engine sends as many whether or not ids are asked for

    def _stamp(self, fingerprint: str | None) -> None:
        """Without a usage event the engine's mark rides on the last event of a choice: here on that of the last one."""
        if fingerprint and not self._want_usage and self._kept_back:
            self._kept_back[-1]["system_fingerprint"] = fingerprint

    # --- both

    def _head(self, answer: Body) -> None:
        self.note_head(answer)
        if "model" in answer:
            answer["model"] = self._model

    def _choice(self, given: Body) -> None:
        """Record one choice's part of the answer, and strip it for the client."""
        self.note_prompt(given.get("prompt_token_ids"))
        self.take(given, {"content": given["text"]})
        if not self._want_ids:
            given |= {name: None for name in ("token_ids", "prompt_token_ids") if name in given}
        if not self._want_logprobs:
            given["logprobs"] = None
