"""The response object: one answer as the Responses API shows it, from what a call was asked and what became of it.

Owns: the object, for an answer as it comes and for one that is read back from the record: both are made here, so that
they are equal. Refuses: items (`items.py`), the events of a stream, reading the record.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from proxy.dialects.responses.fields import repeated

Body = dict[str, Any]
Status = Literal["queued", "in_progress", "completed", "incomplete", "failed", "cancelled"]

META: Final = "response"  # in response_meta: what of a response object is recorded nowhere else
_OPENAI_ERRORS: Final = frozenset({"server_error", "rate_limit_exceeded", "invalid_prompt"})


@dataclass(frozen=True, slots=True)
class Head:
    """What a response object says from its first event on."""

    id: str
    created_at: int
    model: str
    fields: Body  # the client's request, but for its input
    max_output_tokens: int | None = None  # in force, where that is known


def response_object(
    head: Head,
    status: Status,
    output: Sequence[Body] = (),
    usage: Mapping[str, Any] | None = None,
    error: tuple[str, str] | None = None,
) -> Body:
    """The object. `usage` is chat's; `error` is the code and the message of a failed answer."""
    said = {
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
    said = repeated(head.fields) | said
    if head.max_output_tokens is not None:
        said["max_output_tokens"] = head.max_output_tokens
    if error is not None:
        code = error[0] if error[0] in _OPENAI_ERRORS else "server_error"
        said["error"] = {"code": code, "message": error[1]}
    return said


def status_of(finish_reason: str | None) -> Status:
    """The status of an answer that the engine finished."""
    return "incomplete" if finish_reason == "length" else "completed"


def response_usage(usage: Mapping[str, Any]) -> Body:
    """Chat's usage as the Responses API tells it.

    The engine adds lists of counts by turn, always empty: clients that know details as numbers refuse the answer.
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
