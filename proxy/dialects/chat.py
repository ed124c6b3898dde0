"""OpenAI's chat completions, as vLLM speaks them: `POST /v1/chat/completions`.

Owns: this format's requests and answers. The engine is asked for token ids and logprobs whether or not the
client wants them; the client gets what it asked for. Refuses: attribution, versions, storage.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar

from proxy.dialects import chat_fields, engine_fields
from proxy.dialects.base import Rules
from proxy.dialects.chat_fields import AskedAsChat
from proxy.dialects.openai_errors import OpenAIErrors
from proxy.dialects.stripped import StrippedAnswer
from proxy.dialects.tool_types import in_chat
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
            asked = in_chat.translated(fields)
        except RecursionError as e:
            raise engine_fields.too_deep() from e
        rest = {name: value for name, value in fields.items() if name not in chat_fields.BLOBS}
        chat = asked.fields
        request = chat_fields.request_of(chat, rest, body, headers, rules, dialect=self.name, endpoint=self.path)
        return ChatReading(replace(request, left_out_tools=asked.left_out), chat, rules, asked.custom)


class ChatReading(AskedAsChat):
    """One request as it was read."""

    __slots__ = ("_custom",)

    def __init__(self, request: Request, chat: Body, rules: Rules, custom: frozenset[str]) -> None:
        super().__init__(request, chat, rules)
        self._custom = custom

    def answer(self) -> ChatAnswer:
        """An empty answer."""
        return ChatAnswer(self.chat, self.request, self._custom)


class ChatAnswer(StrippedAnswer):
    """One call's answer as it comes: what the client gets of it, and what is recorded."""

    __slots__ = ("_custom", "_hide_reasoning", "_want_logprobs")

    def __init__(self, fields: Body, request: Request, custom: frozenset[str]) -> None:
        super().__init__(fields, request)
        self._custom = in_chat.HeldBack(custom)
        self._hide_reasoning = fields.get("include_reasoning") is False
        # As the engine does: ids and logprobs would show the hidden reasoning.
        self._want_ids = self._want_ids and not self._hide_reasoning
        self._want_logprobs = bool(fields.get("logprobs")) and not self._hide_reasoning

    def _whole_choice(self, given: Body) -> None:
        said = given["message"]
        self._keeps_choice(given, said)
        if said.get("tool_calls"):
            said["tool_calls"] = [self._custom.shown(call) for call in said["tool_calls"]]

    def _keeps_choices(self, chunk: Body, choices: list[Body]) -> bool:
        if not self._want_usage:
            chunk.pop("usage", None)
        kept = [given for given in choices if self._keeps_choice(given, given["delta"])]
        if len(kept) < len(choices):
            chunk["choices"] = kept
        return bool(kept)

    def _keeps_choice(self, given: Body, said: Body) -> bool:
        """Record one choice's part of the answer and strip it for the client; whether the client gets it."""
        self.take(given, said)
        if self._custom.names and "delta" in given:
            self._custom.pass_on(given["index"], said, given.get("finish_reason") is not None)
        if not self._want_ids:
            given.pop("token_ids", None)
        if not self._want_logprobs and given.get("logprobs"):
            given["logprobs"] = None
        if self._hide_reasoning:
            said.pop("reasoning", None)
            said.pop("reasoning_content", None)
        return given.get("finish_reason") is not None or self._want_ids or self._want_logprobs or any(said.values())
