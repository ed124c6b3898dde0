"""Transcripts with deeply nested JSON: the judge reads them, cut at a depth, and nothing recurses without bound."""

from __future__ import annotations

import json
from typing import Any

import pytest

from judge.llm.group_text import MAX_DEPTH, PromptTrajectory
from judge.llm.prompt import build_prompt
from recorder.base.json_limits import OMITTED, is_deeper, limit_nesting
from recorder.llm.untrusted_text import fence_json
from recorder.messages.plain_text import content_parts, find_texts, message_text

LEVELS = 100_000


def nested(levels: int = LEVELS, kind: type = list) -> Any:
    """A value inside so many lists or objects."""
    value: Any = "x"
    for _ in range(levels):
        value = [value] if kind is list else {"text": value}
    return value


def deep_message(part: str, deep: Any) -> dict[str, Any]:
    """A message with a deep value in one part."""
    call = {"id": "1", "function": {"name": "f", "arguments": deep}}
    return {
        "content": {"role": "user", "content": deep},
        "part": {"role": "user", "content": [{"type": "text", "text": deep}, deep]},
        "arguments": {"role": "assistant", "content": None, "tool_calls": [call]},
        "calls": {"role": "assistant", "content": None, "tool_calls": deep},
        "call": {"role": "assistant", "content": None, "tool_calls": [deep]},
        "older call": {"role": "assistant", "content": None, "function_call": deep},
        "id": {"role": "tool", "content": "x", "tool_call_id": deep},
        "name": {"role": "user", "content": "x", "name": deep},
        "refusal": {"role": "assistant", "content": "x", "refusal": deep},
        "text": {"role": "assistant", "content": "[" * LEVELS},
    }[part]


PARTS = ["content", "part", "arguments", "calls", "call", "older call", "id", "name", "refusal", "text"]


@pytest.mark.parametrize("kind", [list, dict])
@pytest.mark.parametrize("part", PARTS)
def test_a_deep_transcript_has_a_prompt(part: str, kind: type) -> None:
    question, answer = {"role": "user", "content": "q"}, {"role": "assistant", "content": "y"}
    deep = deep_message(part, nested(kind=kind))
    runs = [
        PromptTrajectory("one", [question, deep, answer], tools=[{"function": nested(kind=kind)}]),
        PromptTrajectory("two", [question, answer]),
    ]
    prompt = build_prompt(runs, rubric="r", seed=1, max_chars=200_000, task_rubric=nested(kind=kind))
    text = prompt.messages[1]["content"]
    assert OMITTED in text
    for line in text.splitlines():
        if line.startswith("{"):
            assert not is_deeper(json.loads(line), MAX_DEPTH + 10)


def test_what_is_not_deep_is_shown_as_it_is() -> None:
    value = {"a": nested(MAX_DEPTH - 1), "b": [1, None, {}], "c": nested(MAX_DEPTH - 1, dict)}
    assert limit_nesting(value, MAX_DEPTH) is value
    assert limit_nesting([value], MAX_DEPTH) != [value]
    assert limit_nesting({"a": [[1], 2]}, 2) == {"a": [OMITTED, 2]}
    assert limit_nesting("x", 0) == "x"
    assert not is_deeper([], 1)
    assert is_deeper([], 0)


def test_a_wide_value_is_not_deep() -> None:
    assert not is_deeper([[{}] * 1000] * 1000, 3)


@pytest.mark.parametrize("kind", [list, dict])
def test_texts_of_a_deep_content_are_found(kind: type) -> None:
    deep = nested(kind=kind)
    assert list(find_texts(deep)) == ["x"]
    assert message_text({"content": deep}) == "x"
    assert len(content_parts(deep)) == 1
    assert "x" in fence_json(["x", deep])


def test_the_order_of_texts_is_that_of_the_content() -> None:
    content = ["a", {"text": ["b", {"text": "c"}]}, ["d", ["e"]], None, "f"]
    assert list(find_texts(content)) == ["a", "b", "c", "d", "e", "f"]
