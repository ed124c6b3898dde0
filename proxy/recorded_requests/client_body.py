"""The body that a client sends to make a recorded call again, in the client's own wire format.

Owns: which format a call has, and the fields of each. Pure. Refuses: commands around the body (`code_samples.py`),
sending it (`repeater.py`), and the formats' own translations (`proxy.dialects`).

The body has the whole conversation: a Responses call that named an earlier answer names none here. Parts that were
dropped before the recording (`left_out_tools`, `left_out_items` of a call's `response_meta`) are absent.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

from proxy.dialects import DIALECTS
from proxy.dialects.chat import ChatDialect
from proxy.dialects.completions import CompletionsDialect
from proxy.dialects.messages.dialect import MessagesDialect
from proxy.dialects.messages.recorded_request import recorded_body
from proxy.dialects.responses.dialect import ResponsesDialect
from proxy.dialects.responses.fields import META, recorded_fields
from proxy.dialects.responses.items import input_items
from proxy.dialects.responses.tools import tool_origins
from recorder.messages.calls import Message
from recorder.messages.plain_text import message_text
from recorder.views.trajectories.shapes import CallView

Body = dict[str, Any]

_NO_ID: Final = "resp_"  # ids of items are removed again
_UNSENT: Final = frozenset({"id", "status", "phase"})  # of an item; the server sets them


def client_path(call: CallView) -> str:
    """Return the route of a call's format: `/v1/messages`."""
    return next((path for path, one in DIALECTS.items() if one.name == call.dialect), ChatDialect.path)


def client_body(call: CallView, messages: Sequence[Message] | None = None) -> Body:
    """Return the body. `messages`: the prompt if it is not the view's, for example with its reasoning."""
    prompt = call.messages if messages is None else messages
    body: Body = {"model": call.model}
    if call.dialect == MessagesDialect.name:
        return body | recorded_body(prompt, call.tools, call.rest)
    if call.dialect == ResponsesDialect.name:
        return body | _responses_body(call, prompt)
    if call.dialect == CompletionsDialect.name:
        return body | {"prompt": recorded_prompt(prompt)} | dict(call.rest)
    blobs: Body = {"messages": list(prompt), "tools": call.tools, "response_format": call.response_format}
    return body | {name: value for name, value in blobs.items() if value is not None} | dict(call.rest)


def recorded_prompt(messages: Sequence[Message]) -> str | list[int]:
    """Return the prompt of a call of completions: its text, or its token ids."""
    text = message_text(messages[0]) if messages else ""
    if not text.startswith("["):
        return text
    try:
        ids = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return ids if ids and all(type(one) is int for one in ids) else text


def _responses_body(call: CallView, messages: Sequence[Message]) -> Body:
    meta: Mapping[str, Any] = (call.response_meta or {}).get(META) or {}
    has_instructions = bool(meta.get("instructions")) and bool(messages)
    instructions = message_text(messages[0], separator="") if has_instructions else None
    outline = meta.get("tools")
    fields = recorded_fields(call.rest, call.tools, call.response_format, instructions, outline)
    fields.pop("previous_response_id", None)
    origins = tool_origins([*(outline or ()), *meta.get("loaded", ())])
    items = input_items(messages[has_instructions:], _NO_ID, origins)
    return {"input": [_sent(item) for item in items]} | fields


def _sent(item: Mapping[str, Any]) -> Body:
    """An item as a client sends it."""
    return {name: value for name, value in item.items() if name not in _UNSENT and value is not None}
