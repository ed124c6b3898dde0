"""What a stored message says, in each spelling that there is, and in those that there should not be."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.plain_text import (
    ToolCall,
    content_parts,
    kind_label,
    media_kind,
    message_text,
    text_parts,
    thinking_text,
    tool_calls,
)

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
NAMES = st.sampled_from(["content", "tool_calls", "function_call", "reasoning", "reasoning_content"])


@pytest.mark.parametrize(
    ("message", "asked"),
    [
        ({"tool_calls": [{"id": "c", "function": {"name": "find", "arguments": "{}"}}]}, ToolCall("c", "find", "{}")),
        ({"tool_calls": [{"custom": {"name": "sh", "input": "ls"}}]}, ToolCall(None, "sh", "ls")),
        ({"function_call": {"name": "find", "arguments": "{}"}}, ToolCall(None, "find", "{}")),
        ({"tool_calls": [{"id": 7}]}, ToolCall("7", "?", "")),
    ],
)
def test_a_tool_is_asked_for_in_several_spellings(message: dict[str, Any], asked: ToolCall) -> None:
    assert tool_calls(message) == [asked]


def test_parts_have_their_text_and_others_are_of_a_kind() -> None:
    found = content_parts(["a", {"type": "text", "text": "b"}, {"type": "image_url", "image_url": {}}, 5])
    assert [text for text, _ in found] == ["a", "b", None, None]
    assert [media_kind(part) for text, part in found if text is None] == ["image_url", "int"]


def test_thinking_is_the_first_that_says_something() -> None:
    assert thinking_text({"reasoning_content": "", "reasoning": "hm"}) == "hm"
    assert thinking_text({"reasoning_content": None}) == ""


PICTURE = {"type": "image_url", "image_url": {"url": "data:"}}


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (None, ""),
        ("", ""),
        ("a", "a"),
        ([], ""),
        (["a", {"type": "text", "text": "b"}], "a\nb"),
        ([{"type": "text", "text": ""}, {"type": "text", "text": "b"}], "\nb"),
        ([PICTURE, {"type": "input_text", "text": "b"}], "b"),
        ([{"type": "refusal", "refusal": "no"}], ""),
        ([5, None, {"text": None}], ""),
    ],
)
def test_the_text_of_a_message_is_that_of_its_parts(content: object, text: str) -> None:
    assert message_text({"role": "user", "content": content}) == text
    assert message_text({"content": content}, separator="") == text.replace("\n", "")


def test_a_caller_says_what_stands_for_a_part_that_is_no_text() -> None:
    message = {"content": [{"type": "text", "text": "look"}, PICTURE, 5]}
    assert message_text(message, label=kind_label) == "look\n[image_url]\n[int]"
    assert message_text({"content": {"odd": 1}}, label=kind_label) == '{"odd": 1}'


@given(st.none() | st.text() | st.lists(st.text() | st.builds(lambda text: {"type": "text", "text": text}, st.text())))
def test_text_alone_is_the_same_with_labels_and_without(content: object) -> None:
    message = {"content": content}
    assert message_text(message, label=kind_label) == message_text(message) == "\n".join(text_parts(message))


@given(st.dictionaries(NAMES, JSON))
def test_no_nonsense_in_a_message_is_an_error(message: dict[str, Any]) -> None:
    assert isinstance(thinking_text(message), str)
    assert all(isinstance(one.name, str) for one in tool_calls(message))
    assert all(text is None or isinstance(text, str) for text, _ in content_parts(message.get("content")))
    assert all(isinstance(text, str) for text in text_parts(message))
    assert isinstance(message_text(message, label=kind_label), str)
