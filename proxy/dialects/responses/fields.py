"""The fields of the Responses API: a request in chat's fields, and the response object.

Owns: which fields there are, their names in chat, which are refused and why; and the response object, built here both
for a new answer and for one that is read from the record, so that they are equal. Refuses: items (`items.py`), the
events of a stream (`stream_events.py`), reading the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.dialects import engine_fields
from proxy.dialects.responses.items import continues_last
from proxy.dialects.responses.tools import Toolbox, chat_tool_choice, declared_tools
from proxy.errors import BadRequest
from recorder.messages.calls import Message

Body = dict[str, Any]

LOGPROBS: Final = "message.output_text.logprobs"
_INCLUDES: Final = frozenset(
    {
        LOGPROBS,
        "code_interpreter_call.outputs",
        "computer_call_output.output.image_url",
        "file_search_call.results",
        "message.input_image.image_url",
        "reasoning.encrypted_content",
        "web_search_call.action.sources",
        "web_search_call.results",
    }
)
# Field → why it is refused if it is set.
REFUSED: Final[Mapping[str, str]] = {
    "conversation": "Hone keeps no conversation objects: send `previous_response_id`, or the whole conversation",
    "prompt": "Hone keeps no prompt templates: send their text in 'instructions' and 'input'",
    "previous_input_messages": "send the earlier conversation in 'input', or `previous_response_id`",
    "enable_response_messages": "`return_token_ids` of /v1/chat/completions shows the tokens, and `hone export` all",
    "request_id": "Hone assigns the ids of answers",
    "context_management": "Hone does not shorten conversations",
}
_TYPES: Final[Mapping[str, type]] = {
    "background": bool,
    "include": list,
    "instructions": str,
    "metadata": dict,
    "parallel_tool_calls": bool,
    "previous_response_id": str,
    "reasoning": dict,
    "store": bool,
    "stream": bool,
    "text": dict,
    "tools": list,
    "truncation": str,
    "user": str,
    "service_tier": str,
    "include_reasoning": bool,
}
_TYPE_NAMES: Final = {str: "a text", bool: "true or false", dict: "an object", list: "a list"}
# Fields with the same name in chat completions, which the engine's own /v1/responses reads too.
_SAME: Final = (
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "presence_penalty",
    "frequency_penalty",
    "repetition_penalty",
    "seed",
    "stop",
    "stop_token_ids",
    "ignore_eos",
    "logit_bias",
    "skip_special_tokens",
    "include_stop_str_in_output",
    "structured_outputs",
    "chat_template_kwargs",
    "media_io_kwargs",
    "mm_processor_kwargs",
    "parallel_tool_calls",
    "include_reasoning",
    "watermarking",
    "user",
)
_APART: Final = frozenset({"input", "instructions", "tools"})  # recorded as messages and tools
_TOOL_NULLS: Final = dict.fromkeys(
    ("parameters", "strict", "allowed_callers", "defer_loading", "description", "output_schema")
)


def check_request(fields: Body) -> None:
    """Raise BadRequest, naming the field, for what cannot be served. Media and items are checked elsewhere."""
    if not isinstance(fields.get("model"), str):
        raise BadRequest(
            "the field 'model' is missing or not a string: `GET /v1/models` lists the names.", param="model"
        )
    if "input" not in fields:
        raise BadRequest("the field 'input' is missing: send a text or a list of items.", param="input")
    engine_fields.refuse_fields(fields)
    for name, why in REFUSED.items():
        if fields.get(name):
            raise _unsupported(name, f"the field {name!r} is not served: {why}.")
    for name, expected in _TYPES.items():
        value = fields.get(name)
        if value is not None and not isinstance(value, expected):
            raise BadRequest(
                f"the field {name!r} is {value!r:.60}: give {_TYPE_NAMES[expected]}.", param=name, code="invalid_type"
            )
    _check_values(fields)


def _check_values(fields: Body) -> None:
    limit = fields.get("max_output_tokens")
    if limit is not None and (not isinstance(limit, int) or isinstance(limit, bool) or limit < 1):
        raise BadRequest(
            f"the field 'max_output_tokens' is {limit!r:.60}: give a whole number from 1.",
            param="max_output_tokens",
            code="invalid_value",
        )
    if fields.get("truncation") not in (None, "disabled"):
        raise _unsupported(
            "truncation", "the field 'truncation' must be 'disabled': Hone does not truncate the model's input."
        )
    for name in fields.get("include") or ():
        if not isinstance(name, str) or name not in _INCLUDES:
            raise BadRequest(f"include has {name!r:.60}, which is unknown.", param="include", code="invalid_value")
    if not all(isinstance(value, str) for value in (fields.get("metadata") or {}).values()):
        raise BadRequest("the field 'metadata' must have texts as its values.", param="metadata", code="invalid_type")
    if fields.get("background") and fields.get("store") is False:
        raise BadRequest("background can only be used when `store` is true.", param="background")
    if fields.get("background") and fields.get("stream"):
        raise _unsupported("stream", "a background response is not streamed: poll it with GET until it is done.")
    if wants_format(fields) and fields.get("structured_outputs"):
        raise BadRequest("Cannot specify both structured_outputs and text.format", param="structured_outputs")


def wants_format(fields: Body) -> Body | None:
    """Return `text.format`, if the client sent one. Raises BadRequest."""
    form = (fields.get("text") or {}).get("format")
    if form is not None and (not isinstance(form, dict) or not isinstance(form.get("type"), str)):
        raise BadRequest("text.format must be an object with a 'type'.", param="text.format", code="invalid_type")
    return form


def chat_fields(fields: Body, messages: Sequence[Message], box: Toolbox) -> Body:
    """Return the request in chat's fields. `messages`: the model's whole input, `box`: its tools. Raises BadRequest."""
    chat: Body = {"model": fields["model"], "messages": list(messages), "stream": bool(fields.get("stream"))}
    chat |= {name: fields[name] for name in _SAME if fields.get(name) is not None}
    if fields.get("max_output_tokens") is not None:
        chat["max_completion_tokens"] = fields["max_output_tokens"]
    if wants_logprobs(fields):
        chat |= {"logprobs": True, "top_logprobs": fields.get("top_logprobs") or 0}
    effort = (fields.get("reasoning") or {}).get("effort")
    if effort is not None:
        chat["reasoning_effort"] = effort
    form = wants_format(fields)
    if form is not None:
        chat["response_format"] = _chat_format(form)
    choice = chat_tool_choice(fields.get("tool_choice"), box)
    if box.functions:
        chat |= {"tools": box.functions, "tool_choice": choice}
    if continues_last(fields.get("input")):
        chat |= {"add_generation_prompt": False, "continue_final_message": True}
    return chat


def wants_logprobs(fields: Body) -> bool:
    """Whether the client requested the logprobs of the text."""
    return LOGPROBS in (fields.get("include") or ())


def system_message(fields: Body) -> list[Message]:
    """Return the instructions as the first message of the conversation, if there are any."""
    return [{"role": "system", "content": fields["instructions"]}] if fields.get("instructions") else []


def _chat_format(form: Body) -> Body:
    if form["type"] != "json_schema":
        return {"type": form["type"]}
    return {"type": "json_schema", "json_schema": {name: value for name, value in form.items() if name != "type"}}


def _unsupported(param: str, message: str) -> BadRequest:
    return BadRequest(message, param=param, code="unsupported_parameter")


# --- recorded fields, and fields that an answer repeats


def client_fields(fields: Body) -> Body:
    """Return the client's body without the parts that are recorded as messages, tools and format."""
    rest = {name: value for name, value in fields.items() if name not in _APART}
    if isinstance(rest.get("text"), dict):
        rest["text"] = {name: value for name, value in rest["text"].items() if name != "format"}
    return rest


def recorded_fields(
    rest: Mapping[str, Any],
    tools: Sequence[Mapping[str, Any]] | None,
    response_format: Mapping[str, Any] | None,
    instructions: str | None,
    outline: Sequence[Body] | None = None,
) -> Body:
    """Return the fields of a recorded request without its input: `client_fields` and the separately recorded parts.

    `outline`: of tools that are not all plain functions.
    """
    fields = dict(rest)
    if instructions is not None:
        fields["instructions"] = instructions
    if outline is not None:
        fields["tools"] = declared_tools(outline, tools or ())
    elif tools:
        fields["tools"] = [{"type": "function", **tool["function"]} for tool in tools]
    if response_format is not None:
        form = {"type": response_format["type"], **response_format.get("json_schema", {})}
        fields["text"] = {**fields.get("text", {}), "format": form}
    return fields


def echoed_fields(fields: Body) -> Body:
    """Return the request's fields that an answer repeats, as the engine does: every field is present."""
    tools = fields.get("tools") or []
    return {
        "instructions": fields.get("instructions"),
        "metadata": fields.get("metadata"),
        "parallel_tool_calls": fields.get("parallel_tool_calls") is not False,
        "temperature": _number(fields.get("temperature"), 1.0),
        "tool_choice": (fields.get("tool_choice") or "auto") if tools else "none",
        "tools": [_repeated_tool(tool) for tool in tools],
        "top_p": _number(fields.get("top_p"), 1.0),
        "background": bool(fields.get("background")),
        "max_output_tokens": fields.get("max_output_tokens"),
        "max_tool_calls": fields.get("max_tool_calls"),
        "previous_response_id": fields.get("previous_response_id"),
        "prompt": None,
        "reasoning": _reasoning(fields.get("reasoning")),
        "service_tier": fields.get("service_tier") or "auto",
        "text": _text(fields.get("text")),
        "top_logprobs": (fields.get("top_logprobs") or 0) if wants_logprobs(fields) else None,
        "truncation": "disabled",
        "user": fields.get("user"),
        "presence_penalty": _number(fields.get("presence_penalty"), 0.0),
        "frequency_penalty": _number(fields.get("frequency_penalty"), 0.0),
    }


def _repeated_tool(tool: Body) -> Body:
    if tool["type"] == "namespace":
        return {**tool, "tools": [_repeated_tool(one) for one in tool["tools"]]}
    return _TOOL_NULLS | tool if tool["type"] == "function" else tool


def _number(value: float | None, otherwise: float) -> float:
    return otherwise if value is None else float(value)


def _reasoning(sent: Body | None) -> Body | None:
    return None if sent is None else dict.fromkeys(("context", "effort", "generate_summary", "mode", "summary")) | sent


def _text(sent: Body | None) -> Body | None:
    if sent is None:
        return None
    form = sent.get("format")
    if form is not None and form.get("type") == "json_schema":
        form = {"description": None, "strict": None} | form
    return {"format": None, "verbosity": None} | sent | {"format": form}


Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

META: Final = "response"  # in response_meta: parts of a response object that are recorded nowhere else
_OPENAI_ERRORS: Final = frozenset({"server_error", "rate_limit_exceeded", "invalid_prompt"})


@dataclass(frozen=True, slots=True)
class ResponseHead:
    """The parts of a response object that are known from its first event on."""

    id: str
    created_at: int
    model: str
    fields: Body  # the client's request without its input
    max_output_tokens: int | None = None  # the effective limit, if known


def response_object(
    head: ResponseHead,
    status: Status,
    output: Sequence[Body] = (),
    usage: Mapping[str, Any] | None = None,
    error: tuple[str, str] | None = None,
) -> Body:
    """Return the object. `usage` is chat's; `error` is the code and the message of a failed answer."""
    response = {
        "id": head.id,
        "created_at": head.created_at,
        "incomplete_details": {"reason": "max_output_tokens"} if status == "incomplete" else None,
        "model": head.model,
        "object": "response",
        "output": list(output),
        "status": status,
        "usage": response_usage(usage) if usage is not None else None,
        "kv_transfer_params": None,
        "ec_transfer_params": None,
        "input_messages": None,
        "output_messages": None,
    }
    response = echoed_fields(head.fields) | response
    if head.max_output_tokens is not None:
        response["max_output_tokens"] = head.max_output_tokens
    if error is not None:
        code = error[0] if error[0] in _OPENAI_ERRORS else "server_error"
        response["error"] = {"code": code, "message": error[1]}
    return response


def response_status(finish_reason: str | None) -> Status:
    """Return the status of an answer that the engine finished."""
    return "incomplete" if finish_reason == "length" else "completed"


def response_usage(usage: Mapping[str, Any]) -> Body:
    """Return chat's usage in the form of the Responses API.

    The engine adds lists of counts by turn, always empty; clients that expect numbers in the details refuse the answer.
    """
    read, written = usage.get("prompt_tokens_details") or {}, usage.get("completion_tokens_details") or {}
    return {
        "input_tokens": usage.get("prompt_tokens") or 0,
        "input_tokens_details": {
            "cached_tokens": read.get("cached_tokens") or 0,
            "cache_write_tokens": read.get("created_cache_tokens") or 0,
        },
        "output_tokens": usage.get("completion_tokens") or 0,
        "output_tokens_details": {
            "reasoning_tokens": written.get("reasoning_tokens") or 0,
            "tool_output_tokens": 0,
        },
        "total_tokens": usage.get("total_tokens") or 0,
    }
