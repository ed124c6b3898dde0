"""A provider's request, and its answer in the engine's form: pure, on plain data.

Owns: which fields of a chat completion go to LiteLLM, and translating its chunks into the chat completions that every
dialect reads. Refuses: sending, keys, errors of providers.

LiteLLM takes its own options (`api_base`, `mock_response`, callbacks …) as arguments next to the request's fields, so a
field of a client's body is passed only if it is listed here.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, Final

from proxy.dialects.engine_fields import NEUTRAL
from proxy.errors import BadRequest
from recorder.messages.calls import RecordedRequest

Body = dict[str, Any]

# Fields of chat completions that LiteLLM translates for its providers.
PASSED: Final = frozenset(
    {
        "messages",
        "tools",
        "tool_choice",
        "parallel_tool_calls",
        "functions",
        "function_call",
        "response_format",
        "temperature",
        "top_p",
        "n",
        "stop",
        "max_tokens",
        "max_completion_tokens",
        "presence_penalty",
        "frequency_penalty",
        "logit_bias",
        "seed",
        "logprobs",
        "top_logprobs",
        "user",
        "reasoning_effort",
        "verbosity",
        "thinking",
        "modalities",
        "audio",
        "prediction",
        "web_search_options",
        "service_tier",
        "safety_identifier",
        "prompt_cache_key",
        "prompt_cache_retention",
        "store",
        # not OpenAI's, but several providers use these names
        "top_k",
        "min_p",
        "repetition_penalty",
    }
)
# Ids of tool calls: OpenAI takes 40 characters, Anthropic these ones, Mistral exactly nine letters and digits.
_IDS: Final = re.compile(r"[A-Za-z0-9_-]{1,40}")
_STRICT_IDS: Final = re.compile(r"[A-Za-z0-9]{9}")
_STRICT_PROVIDERS: Final = ("mistral/", "codestral/")
_THOUGHT: Final = "__thought__"
# Fields for Hone, and fields without effect on an answer of text. `metadata` is an argument of LiteLLM itself.
_NOT_SENT: Final = frozenset({"model", "stream", "stream_options", "metadata", "include_reasoning"})


def provider_arguments(body: Body, request: RecordedRequest, *, drop: bool, model: str = "") -> Body:
    """Return LiteLLM's arguments for a body that was made for the engine. `model`: LiteLLM's name of the model.

    Fields that Hone wrote into that body (neutral values, ids, logprobs) are not passed, only the client's. A field
    that no provider takes is refused, or dropped with `drop`. Raises BadRequest.
    """
    sent = request.rest
    if not drop:
        _check(body, request)
    if request.stream and request.sampling.n > 1:  # LiteLLM merges streamed choices into one
        raise BadRequest(f"{request.model!r} streams only one choice: remove `n` or `stream`.", param="n")
    arguments = {
        name: value
        for name, value in body.items()
        if name in PASSED and value is not None and not _is_ours(name, value, sent)
    }
    ids = _STRICT_IDS if model.startswith(_STRICT_PROVIDERS) else _IDS
    arguments["messages"] = [_message(message, ids) for message in arguments.get("messages", ())]
    if request.stream:
        arguments |= {"stream": True, "stream_options": {"include_usage": True}}
    return arguments


def _check(body: Body, request: RecordedRequest) -> None:
    """Raise BadRequest, naming the field, for a client's field that no provider takes."""
    for name, value in request.rest.items():
        if value is not None and value is not False and name in body and name not in PASSED | _NOT_SENT:
            raise BadRequest(
                f"the field {name!r} cannot be sent to {request.model!r}, another provider's model: remove it, or "
                "set `drop_params = true` in its [[proxy.models]].",
                param=name,
                code="unsupported_parameter",
            )


def _is_ours(name: str, value: object, sent: Mapping[str, Any]) -> bool:
    """Whether Hone wrote the field, not the client: engines get neutral values and a request for logprobs."""
    if name in ("logprobs", "top_logprobs"):
        return not _wants_logprobs(sent) or (name == "top_logprobs" and not value)
    return name in NEUTRAL and sent.get(name) is None


def _wants_logprobs(sent: Mapping[str, Any]) -> bool:
    """Whether the client requested logprobs: chat's field, or the `include` of responses."""
    return bool(sent.get("logprobs")) or any("logprobs" in str(part) for part in sent.get("include") or ())


def _message(message: Body, ids: re.Pattern[str]) -> Body:
    """A message without fields of engines' own answers, and with ids of tool calls, that other providers may refuse."""
    plain_fields = {name: value for name, value in message.items() if value is not None and name != "reasoning"}
    if "tool_call_id" in plain_fields:
        plain_fields["tool_call_id"] = _fitting_id(plain_fields["tool_call_id"], ids)
    if plain_fields.get("tool_calls"):
        plain_fields["tool_calls"] = [
            call | {"id": _fitting_id(call["id"], ids)} if call.get("id") else call
            for call in plain_fields["tool_calls"]
        ]
    return plain_fields if "content" in plain_fields else plain_fields | {"content": None}


def _fitting_id(given: object, ids: re.Pattern[str]) -> object:
    """An id that the provider takes, always the same for the same id: an engine's ids are too long for most.

    LiteLLM keeps a model's thought in some ids, and reads it there: those stay.
    """
    if not isinstance(given, str) or ids.fullmatch(given) or _THOUGHT in given:
        return given
    return blake2b(given.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()[:9]


# --- the answer


def to_completion(answer: Body) -> Body:
    """Return a whole answer of LiteLLM as a chat completion, without LiteLLM's own fields."""
    choices = [_choice(choice, choice["message"]) for choice in answer["choices"]]
    for choice in choices:
        choice["message"] = {"content": None} | choice["message"]
    return answer | {"choices": choices, "usage": _usage(answer.get("usage"))}


def to_chunk(event: Body) -> Body:
    """Return one chunk of LiteLLM's stream as OpenAI streams it: usage comes without choices."""
    choices = [_choice(choice, choice["delta"]) for choice in event["choices"]]
    usage = _usage(event.get("usage"))
    if usage is None:
        return event | {"choices": choices}
    says = [choice for choice in choices if choice["finish_reason"] or any(choice["delta"].values())]
    return event | {"choices": says, "usage": usage}


def _choice(choice: Body, content: Body) -> Body:
    name = "message" if "message" in choice else "delta"
    plain_fields = {key: value for key, value in choice.items() if key != "provider_specific_fields"}
    plain = {key: value for key, value in content.items() if key != "provider_specific_fields"}
    return {"finish_reason": None, "logprobs": None} | plain_fields | {name: plain}


def _usage(usage: Body | None) -> Body | None:
    return None if usage is None else {name: value for name, value in usage.items() if name != "cost"}
