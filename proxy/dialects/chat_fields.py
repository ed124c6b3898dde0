"""A request in the fields of chat completions: checked, and made ready for the engine.

Owns: what every dialect shares whose engine is asked for chat completions, from checked fields to the engine's body.
Refuses: other formats' fields (their dialects turn them into these first), and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from proxy.dialects import engine_fields, forcing
from proxy.dialects.asked import Asked
from proxy.dialects.base import Rules
from proxy.errors import BadRequest
from recorder.content.turns import Request

Body = dict[str, Any]

BLOBS = frozenset({"messages", "tools", "response_format"})  # recorded apart from the rest of the body


class AskedAsChat(Asked):
    """A request as it was read, for which the engine is asked in chat's fields. What it answers is each dialect's."""

    __slots__ = ()

    @property
    def chat(self) -> Body:
        """The request in the fields of chat completions."""
        return self._asked

    def engine_body(self, engine_model: str, prompt_ids: Sequence[int] | None = None) -> bytes:
        """The body for the engine."""
        fields = {**self._asked, **self.replaced}
        return engine_fields.dump(for_engine(fields, engine_model, self._rules, prompt_ids))


def request_of(
    fields: Body, rest: Body, body: bytes, headers: Mapping[bytes, bytes], rules: Rules, *, dialect: str, endpoint: str
) -> Request:
    """The recorder's request for checked fields. `rest` is the client's own body without what `BLOBS` holds of it."""
    retries = headers.get(b"x-stainless-retry-count", b"0")
    return Request(
        dialect=dialect,
        endpoint=endpoint,
        model=fields["model"],
        stream=bool(fields.get("stream")),
        messages=fields["messages"],
        tools=fields.get("tools"),
        response_format=fields.get("response_format"),
        rest=rest,
        body_hash=blake2b(body, digest_size=16).digest(),
        sampling=engine_fields.sampling(fields, rules, forcing.forced(fields, rules)),
        retry_count=int(retries[:4]) if retries.isdigit() else 0,
    )


def for_engine(fields: Body, engine_model: str, rules: Rules, prompt_ids: Sequence[int] | None = None) -> Body:
    """What the engine is asked: the fields, neutral sampling values, and what Hone wants to know.

    `prompt_ids` are the prompt in place of what the template makes of the messages; tools and answers are parsed the
    same.
    """
    body = {**fields, **forcing.plain(fields, rules)}
    engine_fields.add_neutral(body, rules)
    body["model"] = engine_model
    body["return_token_ids"] = True
    body["top_logprobs"] = body.get("top_logprobs") or 0
    body["logprobs"] = True
    body["include_reasoning"] = True  # without it the engine hides ids and logprobs; the answer hides it instead
    engine_fields.ask_usage(body)
    if prompt_ids is not None:
        body["kv_transfer_params"] = {"prompt_token_ids": prompt_ids}
    return body


def check(fields: Body, rules: Rules) -> None:
    """Raise BadRequest, naming the field, for a request that must not reach the engine. May raise RecursionError."""
    engine_fields.check(fields)
    if fields.get("top_logprobs") and not fields.get("logprobs"):
        raise BadRequest("the field 'top_logprobs' needs 'logprobs': true.", param="top_logprobs")
    messages = fields.get("messages")
    if not isinstance(messages, list) or not messages:
        raise BadRequest("the field 'messages' must be a list with at least one message.", param="messages")
    for at, message in enumerate(messages):
        _check_message(message, f"messages[{at}]", rules)


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
