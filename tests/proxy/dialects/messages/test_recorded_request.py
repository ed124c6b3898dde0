"""A recorded conversation as a body of the Messages API: read again, it is the recorded conversation."""

from __future__ import annotations

import json
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from proxy.dialects.base import DialectRules
from proxy.dialects.messages.dialect import MessagesDialect
from proxy.dialects.messages.recorded_request import recorded_body
from recorder.messages.content_hashes import canonical_message

texts = st.text(min_size=1, max_size=30)
parts = st.builds(lambda text: {"type": "text", "text": text}, texts)
pictures = st.sampled_from(["data:image/png;base64,aGk=", "data:image/jpeg;base64,aGk="]).map(
    lambda url: {"type": "image_url", "image_url": {"url": url}}
)
arguments = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts, max_size=3).map(json.dumps)
calls = st.builds(
    lambda id_, name, written: {"id": id_, "type": "function", "function": {"name": name, "arguments": written}},
    st.sampled_from(["toolu_1", "toolu_2"]),
    st.sampled_from(["find", "pay"]),
    arguments | st.just("not JSON") | st.just(""),
)
users = st.builds(
    lambda content: {"role": "user", "content": content}, texts | st.lists(parts | pictures, min_size=2, max_size=3)
)
systems = st.builds(lambda text: {"role": "system", "content": text}, texts)
results = st.builds(
    lambda content, wrong: (
        {"role": "tool", "tool_call_id": "toolu_1", "content": content} | ({"is_error": True} if wrong else {})
    ),
    st.text(max_size=20),
    st.booleans(),
)


@st.composite
def assistants(draw: st.DrawFn) -> dict[str, Any]:
    content = draw(texts | st.none())
    asked = draw(st.lists(calls, max_size=2))
    made: dict[str, Any] = {"role": "assistant"}
    made |= {"content": content} if content or not asked else {}
    made["content"] = made.get("content") or ("said" if not asked else None)
    made |= {"reasoning": draw(texts)} if draw(st.booleans()) else {}
    return made | ({"tool_calls": asked} if asked else {})


conversations = st.lists(users | systems | assistants() | results, min_size=1, max_size=8)


def as_written(message: Any) -> Any:
    """A message as the store knows it; what a model wrote as nothing at all is an empty object when it comes back."""
    asked = [
        {**one, "function": {**one["function"], "arguments": one["function"]["arguments"] or "{}"}}
        for one in message.get("tool_calls") or ()
    ]
    return canonical_message({**message, **({"tool_calls": asked} if asked else {})})


@given(conversations)
def test_what_is_read_again_is_what_was_recorded(messages: list[dict[str, Any]]) -> None:
    body = recorded_body(messages, None, {"model": "helpdesk", "max_tokens": 10})
    read = MessagesDialect().read(json.dumps(body).encode(), {}, DialectRules()).request.messages
    assert [as_written(one) for one in read] == [as_written(one) for one in messages]
    assert [one.get("reasoning") for one in read] == [one.get("reasoning") for one in messages]


def test_tools_and_the_other_fields_are_the_clients_own() -> None:
    schema = {"type": "object", "properties": {"id": {"type": "integer"}}}
    sent = {"name": "find", "description": "Find an order.", "input_schema": schema}
    rest = {"model": "helpdesk", "max_tokens": 10, "tool_choice": {"type": "any"}, "thinking": {"type": "disabled"}}
    given_ = {**rest, "system": "Be brief.", "messages": [{"role": "user", "content": "Where?"}], "tools": [sent]}
    request = MessagesDialect().read(json.dumps(given_).encode(), {}, DialectRules()).request
    assert recorded_body(request.messages, request.tools, request.rest) == given_


def test_results_that_follow_one_another_are_one_message() -> None:
    messages = [{"role": "tool", "tool_call_id": id_, "content": "found"} for id_ in ("toolu_1", "toolu_2")]
    [message] = recorded_body(messages, None, {})["messages"]
    assert [block["tool_use_id"] for block in message["content"]] == ["toolu_1", "toolu_2"]
