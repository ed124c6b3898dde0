"""A recorded call as the client's body again: what it says is what was recorded, in every wire format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.dialects.responses.fields import META
from proxy.recorded_requests.client_body import client_body, client_path, recorded_prompt
from recorder.messages.content_hashes import canonical_message
from tests.proxy.recorded_requests.views import call_view, recorded_view

FIND = {"name": "find", "description": "Find an order.", "parameters": {"type": "object", "properties": {}}}
CALLED = {"id": "call_abcdefgh", "type": "function", "function": {"name": "find", "arguments": '{"id": 4821}'}}
CHAT: dict[str, Any] = {
    "model": "helpdesk",
    "messages": [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": [{"type": "text", "text": "Where is"}, {"type": "text", "text": "it?"}]},
        {"role": "assistant", "content": None, "tool_calls": [CALLED]},
        {"role": "tool", "tool_call_id": "call_abcdefgh", "content": "shipped"},
    ],
    "tools": [{"type": "function", "function": FIND}],
    "response_format": {"type": "json_object"},
    "temperature": 0.5,
    "top_k": 20,
    "stream": True,
}
RESPONSES: dict[str, Any] = {
    "model": "helpdesk",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where is it?"}]},
        {"type": "function_call", "call_id": "call_abcdefgh", "name": "find", "arguments": '{"id": 4821}'},
        {"type": "function_call_output", "call_id": "call_abcdefgh", "output": "shipped"},
        {"type": "message", "role": "developer", "content": "Now answer."},
    ],
    "tools": [{"type": "function", **FIND}],
    "text": {"format": {"type": "json_schema", "name": "place", "schema": {"type": "object"}}},
    "temperature": 0.5,
    "max_output_tokens": 20,
}
MESSAGES: dict[str, Any] = {
    "model": "helpdesk",
    "max_tokens": 20,
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Where is it?"},
        {"role": "assistant", "content": [{"type": "tool_use", "id": "toolu_1", "name": "find", "input": {"id": 1}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "shipped"}]},
    ],
    "tools": [{"name": "find", "input_schema": {"type": "object"}}],
    "output_config": {"format": {"type": "json_schema", "schema": {"type": "object"}}},
}
BODIES = {
    "/v1/chat/completions": CHAT,
    "/v1/responses": RESPONSES,
    "/v1/messages": MESSAGES,
    "/v1/completions": {"model": "helpdesk", "prompt": "Once upon", "max_tokens": 5},
}


def read(path: str, body: dict[str, Any]) -> Any:
    return DIALECTS[path].read(json.dumps(body).encode(), {}, DialectRules())


@pytest.mark.parametrize("path", BODIES)
def test_what_is_read_again_is_what_was_recorded(path: str) -> None:
    request = read(path, BODIES[path]).request
    meta = {META: {"instructions": True}} if path == "/v1/responses" else None
    view = recorded_view(request, meta)
    assert client_path(view) == path
    again = read(path, client_body(view)).request
    assert list(map(canonical_message, again.messages)) == list(map(canonical_message, request.messages))
    assert (again.tools, again.response_format, again.sampling) == (
        request.tools,
        request.response_format,
        request.sampling,
    )
    assert again.rest == request.rest


def test_chat_and_messages_are_the_same_body() -> None:
    for path in ("/v1/chat/completions", "/v1/messages"):
        assert client_body(recorded_view(read(path, BODIES[path]).request)) == BODIES[path]


def test_a_response_names_no_earlier_answer_and_no_item() -> None:
    view = call_view(dialect="responses", rest={"model": "helpdesk", "previous_response_id": "resp_1"})
    body = client_body(view)
    assert "previous_response_id" not in body
    assert body["input"] == [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Where?"}]}]


@pytest.mark.parametrize(
    ("text", "prompt"),
    [("Once", "Once"), ("[1, 2]", [1, 2]), ("[]", "[]"), ("[true]", "[true]"), ("[1", "[1"), ("[" * 5000, "[" * 5000)],
)
def test_a_prompt_of_ids_is_a_list_again(text: str, prompt: Any) -> None:
    assert recorded_prompt([{"role": "user", "content": text}]) == prompt
