"""OpenAI's completions, as vLLM serves them: `POST /v1/completions`, by text or by token ids.

Owns: this format's requests and answers, for one prompt per call (`proxy.serving.prompt_lists` splits lists of
prompts). A prompt is recorded as one user message: its text, or its ids as a JSON list. Refuses: attribution, versions,
storage.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

import orjson

from proxy.dialects import chat as chat_fields
from proxy.dialects import engine_fields
from proxy.dialects.base import DialectRules
from proxy.dialects.chat import FilteredAnswer, OpenAIErrors
from proxy.dialects.parsed_request import ParsedRequest
from proxy.errors import BadRequest
from recorder.messages.calls import Message, RecordedRequest

Body = dict[str, Any]
Prompt = str | list[int]

DEFAULT_MAX_TOKENS: Final = 16  # the default of OpenAI and of the engine
_BLOBS: Final = frozenset({"prompt", "response_format"})  # recorded apart from the rest of the body


class CompletionsDialect(OpenAIErrors):
    """Completions."""

    name: ClassVar[str] = "completions"
    path: ClassVar[str] = "/v1/completions"
    engine_path: ClassVar[str] = "/v1/completions"

    def read(self, body: bytes, headers: Mapping[bytes, bytes], rules: DialectRules) -> CompletionsReader:
        """Return a reader of the request. Raises BadRequest."""
        dropped: list[str] = []
        fields = engine_fields.load_body(body, rules, dropped)
        engine_fields.read_values(fields, integer=("logprobs",))
        _check(fields)
        prompt = _prompt(fields.get("prompt"))
        rest = {name: value for name, value in fields.items() if name not in _BLOBS}
        if fields.get("max_tokens") is None:
            fields["max_tokens"] = DEFAULT_MAX_TOKENS
        recorded = fields | {"messages": [prompt_message(prompt)]}
        request = chat_fields.recorded_request(
            recorded,
            rest,
            body,
            headers,
            rules,
            dialect=self.name,
            endpoint=self.path,
            dropped_items=tuple(dropped),
        )
        return CompletionsReader(request, fields, prompt, rules)


def prompt_message(prompt: Prompt) -> Message:
    """Return the message that records a prompt, or the rest of one."""
    return {"role": "user", "content": prompt if isinstance(prompt, str) else orjson.dumps(prompt).decode()}


def split_prompts(prompt: object) -> list[Any] | None:
    """Return the prompts of a request with several; None for a single or an invalid one. Raises BadRequest."""
    if not isinstance(prompt, list) or len(prompt) < 2 or isinstance(prompt[0], int):
        return None
    for one in prompt:  # check all before any of them is sampled
        _prompt(one)
    return prompt


def _check(fields: Body) -> None:
    engine_fields.check_fields(fields, own_types=("logprobs",))
    logprobs = fields.get("logprobs")
    most = engine_fields.MAX_TOP_LOGPROBS
    if logprobs is not None and not (_is_id(logprobs) and logprobs <= most):
        raise BadRequest(
            f"the field 'logprobs' is {logprobs!r:.60}: give a whole number from 0 to {most}.",
            param="logprobs",
            code="invalid_value",
        )


def _prompt(prompt: object) -> Prompt:
    """Return the single prompt of a request. Raises BadRequest."""
    if isinstance(prompt, list) and len(prompt) == 1 and not isinstance(prompt[0], int):
        prompt = prompt[0]
    if isinstance(prompt, str) and prompt:
        return prompt
    if isinstance(prompt, list) and prompt and all(_is_id(token) for token in prompt):
        return prompt
    raise BadRequest(
        "the field 'prompt' must be a text, a list of token ids, or a list of either, none of them empty.",
        param="prompt",
    )


def _is_id(token: object) -> bool:
    return isinstance(token, int) and not isinstance(token, bool) and 0 <= token < 2**31


class CompletionsReader(ParsedRequest):
    """One request of completions."""

    __slots__ = ("prompt",)

    def __init__(self, request: RecordedRequest, fields: Body, prompt: Prompt, rules: DialectRules) -> None:
        super().__init__(request, fields, rules)
        self.prompt = prompt

    @property
    def chat(self) -> None:
        """Return None: the engine gets a completion."""
        return

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """Return the body for the engine; `prompt_ids` is never given, since the caller sent its prompt."""
        body = {**self._request_fields, **self.replaced}
        engine_fields.add_neutral(body, self._rules)
        body |= {"model": engine_model, "return_token_ids": True, "logprobs": body.get("logprobs") or 0}
        engine_fields.request_usage(body)
        return engine_fields.dump_body(body, self.request.size_bytes)

    def answer(self) -> CompletionsAnswer:
        """Return an empty answer."""
        return CompletionsAnswer(self._request_fields, self.request)


class CompletionsAnswer(FilteredAnswer):
    """One call's answer while it arrives: what the client gets, and what is recorded."""

    __slots__ = ("_every_usage", "_want_logprobs")

    def __init__(self, fields: Body, request: RecordedRequest) -> None:
        super().__init__(fields, request)
        options = fields.get("stream_options") or {}
        self._want_logprobs = fields.get("logprobs") is not None
        self._every_usage = self._want_usage and bool(options.get("continuous_usage_stats"))

    def _keeps_choices(self, chunk: Body, choices: list[Body]) -> bool:
        if not self._every_usage:
            chunk.pop("usage", None)
        for given in choices:
            self._whole_choice(given)
        return True  # even an empty one: the engine sends it whether or not ids are requested

    def _whole_choice(self, given: Body) -> None:
        """Record one choice, or an event's part of it, and filter it for the client."""
        self.note_prompt(given.get("prompt_token_ids"))
        self.take(given, {"content": given["text"]})
        if not self._want_ids:
            given |= {name: None for name in ("token_ids", "prompt_token_ids") if name in given}
        if not self._want_logprobs:
            given["logprobs"] = None
