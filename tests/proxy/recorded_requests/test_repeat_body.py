"""What is sent when a recorded call is asked again: the recorded request with its changes, in a format that has `n`."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.dialects import DIALECTS
from proxy.dialects.base import DialectRules
from proxy.errors import BadRequest
from proxy.recorded_requests.repeat_body import MOST_ANSWERS, RequestChanges, repeat_body
from tests.proxy.recorded_requests.test_client_body import BODIES
from tests.proxy.recorded_requests.views import call_view, recorded_view

ASKED = "helpdesk@3"


def body_of(call: Any, changes: RequestChanges | None = None) -> dict[str, Any]:
    return repeat_body(call, call.messages, ASKED, changes or RequestChanges(), DialectRules())[1]


def recorded(path: str, **more: Any) -> Any:
    read = DIALECTS[path].read(json.dumps(BODIES[path] | more).encode(), {}, DialectRules())
    meta = {"response": {"instructions": True}} if path == "/v1/responses" else None
    return recorded_view(read.request, meta)


@pytest.mark.parametrize("path", BODIES)
def test_it_is_sampled_as_the_recorded_call_was(path: str) -> None:
    call = recorded(path)
    route, body = repeat_body(call, call.messages, ASKED, RequestChanges(answers=3), DialectRules())
    assert route == ("/v1/completions" if path == "/v1/completions" else "/v1/chat/completions")
    request = DIALECTS[route].read(json.dumps(body).encode(), {}, DialectRules()).request
    assert list(request.messages) == list(call.messages)
    assert (request.tools, request.response_format) == (call.tools, call.response_format)
    assert (request.model, request.sampling.n, request.stream) == (ASKED, 3, False)
    for name in ("temperature", "top_p", "top_k", "max_tokens", "stop"):
        assert getattr(request.sampling, name) == getattr(call.sampling, name), name


def test_what_names_a_conversation_or_repeats_an_answer_is_left_out() -> None:
    named = {"user": "u", "seed": 7, "store": True, "metadata": {"session_id": "s"}, "prompt_cache_key": "k"}
    body = body_of(recorded("/v1/chat/completions", **named, stream_options={"include_usage": True}))
    assert not body.keys() & {*named, "stream", "stream_options"}
    assert body["top_k"] == 20


def test_each_change_replaces_what_was_recorded() -> None:
    call = recorded("/v1/chat/completions")
    said = [{"role": "user", "content": "Only this"}]
    tools = [{"type": "function", "function": {"name": "pay", "parameters": {}}}]
    body = body_of(call, RequestChanges(messages=said, tools=tools, temperature=0.0, answers=2))
    assert (body["messages"], body["tools"], body["temperature"], body["n"]) == (said, tools, 0.0, 2)


def test_without_tools_nothing_is_said_about_them() -> None:
    call = recorded("/v1/chat/completions", tool_choice="auto", parallel_tool_calls=True)
    assert not body_of(call, RequestChanges(tools=[])).keys() & {"tools", "tool_choice", "parallel_tool_calls"}


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        (RequestChanges(answers=0), "1 to 8"),
        (RequestChanges(answers=MOST_ANSWERS + 1), "1 to 8"),
        (RequestChanges(tools=[{}]), "no tools"),
        (RequestChanges(messages=[]), "one message"),
    ],
)
def test_a_change_that_the_call_cannot_have_is_refused(changes: RequestChanges, why: str) -> None:
    with pytest.raises(BadRequest, match=why):
        body_of(recorded("/v1/completions"), changes)


def test_an_edited_prompt_of_a_completion_is_its_prompt() -> None:
    changes = RequestChanges(messages=[{"role": "user", "content": "Twice"}])
    assert body_of(recorded("/v1/completions"), changes)["prompt"] == "Twice"
    assert body_of(call_view(dialect="completions", messages=[{"role": "user", "content": "[1, 2]"}]))["prompt"] == [
        1,
        2,
    ]
