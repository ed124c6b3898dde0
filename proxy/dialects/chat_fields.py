"""A request in the fields of chat completions: checked, and made ready for the engine.

Owns: what every dialect shares whose engine is asked for chat completions. Refuses: other formats' fields (their
dialects turn them into these first), and answers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Any

from proxy.dialects import engine_fields
from proxy.dialects.base import Rules
from proxy.errors import BadRequest
from recorder.content.turns import Request

Body = dict[str, Any]

BLOBS = frozenset({"messages", "tools", "response_format"})  # recorded apart from the rest of the body


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
        sampling=engine_fields.sampling(fields, rules, forced(fields, rules)),
        retry_count=int(retries[:4]) if retries.isdigit() else 0,
    )


def for_engine(fields: Body, engine_model: str, rules: Rules, prompt_ids: Sequence[int] | None = None) -> Body:
    """What the engine is asked: the fields, neutral sampling values, and what Hone wants to know.

    `prompt_ids` are the prompt in place of what the template makes of the messages; tools and answers are parsed the
    same.
    """
    body = dict(fields)
    engine_fields.add_neutral(body, rules)
    body["model"] = engine_model
    body["return_token_ids"] = True
    body["top_logprobs"] = body.get("top_logprobs") or 0
    body["logprobs"] = True
    body["include_reasoning"] = True  # without it the engine hides ids and logprobs; the answer hides it instead
    if body.get("stream"):
        body["stream_options"] = {**(body.get("stream_options") or {}), "include_usage": True}
    if rules.strict_tools == "plain" and body.get("tools"):
        body["tools"] = [_unforced(tool) for tool in body["tools"]]
    if prompt_ids is not None:
        body["kv_transfer_params"] = {"prompt_token_ids": prompt_ids}
    return body


def check(fields: Body, rules: Rules) -> None:
    """Raise BadRequest, naming the field, for a request that must not reach the engine. May raise RecursionError."""
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


def forced(fields: Body, rules: Rules) -> tuple[str, ...]:
    """What of tools and formats lets the engine's grammar pick tokens, where plain sampling would not."""
    bends = []
    choice = fields.get("tool_choice")
    if isinstance(choice, dict) or choice == "required":
        bends.append("tool_choice")
    elif choice != "none" and rules.strict_tools == "engine" and any(map(_is_strict, fields.get("tools") or ())):
        bends.append("strict_tools")
    form = fields.get("response_format")
    if form and form.get("type") != "text":
        bends.append("response_format")
    return tuple(bends)


def _is_strict(tool: Body) -> bool:
    function = tool.get("function")
    return isinstance(function, dict) and function.get("strict") is True


def _unforced(tool: Body) -> Body:
    if not _is_strict(tool):
        return tool
    return {**tool, "function": {k: v for k, v in tool["function"].items() if k != "strict"}}
