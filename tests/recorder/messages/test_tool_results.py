"""A result is recognised in every form in which a framework shows it, and never in another result."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.tool_results import (
    MOST_CHARS,
    ResultMatch,
    WaitingResult,
    forms_of_result,
    is_shown,
    match_results,
    same_result,
    shown_results,
)

KEY = b"k" * 32
Result = dict[str, Any]


def mcp(*texts: str, **more: Any) -> Result:
    return {"content": [{"type": "text", "text": text} for text in texts], **more}


def matched(content: object, *results: Result | str) -> list[int]:
    """The indexes of the results that a content may show."""
    pairs: list[tuple[Result | None, str | None]] = [(None, r) if isinstance(r, str) else (r, None) for r in results]
    waiting = [
        WaitingResult(str(at), forms_of_result(*pair), same_result(*pair), at, at) for at, pair in enumerate(pairs)
    ]

    def shown_in(candidates: Any, shown: object) -> dict[str, int]:
        return {one.id: is_shown(*pairs[int(one.id)], shown) for one in candidates}

    [found] = match_results([content], [waiting], 1e9, shown_in)
    return [] if found is None else [int(found.call.id), *(int(tie.id) for tie in found.ties)]


ONE = mcp("order 17: on its way")
TWO = mcp("first part", "second part")
OBJECT = mcp('{"left": 3, "name": "Stühle"}', structuredContent={"left": 3, "name": "Stühle"})
LIST = mcp("[1, 2]", structuredContent={"result": [1, 2]})
FAILED = mcp("no such order", isError=True)

FORMS: list[tuple[str, object, Result | str]] = [
    ("plain text", "order 17: on its way", ONE),
    ("stripped", " order 17: on its way\n", ONE),
    ("parts of text", [{"type": "text", "text": "order 17: on its way", "id": "lc_1"}], ONE),
    ("one part as JSON", '{"type":"text","text":"order 17: on its way","annotations":null,"meta":null}', ONE),
    ("parts as JSON", json.dumps([{"type": "text", "text": "order 17: on its way"}]), ONE),
    ("the result as JSON", json.dumps({"content": ONE["content"], "isError": False}), ONE),
    ("under a key", json.dumps({"result": "order 17: on its way"}), ONE),
    ("JSON in JSON", json.dumps({"output": json.dumps(ONE)}), ONE),
    ("a quoted text", '"order 17: on its way"', ONE),
    ("with a label", "Observation:\norder 17: on its way", ONE),
    ("in a tag", "<result>order 17: on its way</result>", ONE),
    ("as Python prints it", "content=[TextContent(type='text', text='order 17: on its way')] isError=False", ONE),
    ("lines", "first part\nsecond part", TWO),
    ("paragraphs", "first part\n\nsecond part", TWO),
    ("run together", "first partsecond part", TWO),
    ("with spaces", "first part second part", TWO),
    ("a list of texts", json.dumps(["first part", "second part"]), TWO),
    ("the object", '{"name": "Stühle", "left": 3}', OBJECT),
    ("the object, escaped", json.dumps({"left": 3, "name": "Stühle"}), OBJECT),
    ("the object, indented", json.dumps({"left": 3, "name": "Stühle"}, indent=2), OBJECT),
    ("a wrapped value", "[1,2]", LIST),
    ("the wrapped value's object", '{"result": [1, 2]}', LIST),
    ("structured content alone", '{"a": [1]}', {"content": [], "structuredContent": {"a": [1]}}),
    ("an error", "no such order", FAILED),
    ("an error with a label", "Error: no such order", FAILED),
    ("an exception", "Error: ToolException('no such order')\n Please fix your mistakes.", FAILED),
    ("a refusal", "MCP error -32602: `a` must be even", "-32602: `a` must be even"),
    ("an absent server", "The MCP server 'orders' is not reachable.", "The MCP server 'orders' is not reachable."),
    ("cut off", "long " * 100 + "… [truncated]", mcp("long " * 5000 + "end")),
    ("an empty result", "", mcp()),
    ("half an emoji", "bad \ud83d end", mcp("bad \ud83d end")),
]


@pytest.mark.parametrize(("content", "result"), [form[1:] for form in FORMS], ids=[form[0] for form in FORMS])
def test_a_result_is_recognised(content: object, result: Result | str) -> None:
    others = [mcp("order 1"), mcp("7"), mcp("order 17: on its way."), mcp("second part"), mcp("3"), mcp("such order!")]
    assert matched(content, *others, result) == [len(others)]


@pytest.mark.parametrize(
    ("content", "result"),
    [
        ("11 items", mcp("1")),
        ("Result: 11", mcp("1")),
        ("order 170: on its way", mcp("order 17")),
        ("The user refused.", mcp("refused")),
        ("", mcp("something")),
        ("something", mcp()),
        ('{"left": 3}', mcp("3")),
        ("[1, 2]", mcp("1, 2, 3")),
        ("Error", "the caller did not wait for the result"),
        ('{"left": 4}', mcp('{"left": 3}', structuredContent={"left": 3})),
    ],
)
def test_another_result_is_not(content: object, result: Result | str) -> None:
    assert matched(content, result) == []


def test_results_that_a_model_can_tell_apart_are_not_chosen_by_order() -> None:
    assert matched("ab", mcp("a b"), mcp("a  b")) == []  # equal but for white space, and neither is this text
    assert matched("a b", mcp("a  b"), mcp("a b")) == [1]
    assert matched("a b", mcp("a b", _meta={"n": 1}), mcp("a b", _meta={"n": 2})) == [0, 1]
    image = {"content": [{"type": "image", "data": "AA==", "mimeType": "image/png"}]}
    other = {"content": [{"type": "image", "data": "BB==", "mimeType": "image/png"}]}
    assert matched([{"type": "image_url", "image_url": {"url": "data:"}}], image, other) == []


@given(st.text(min_size=1), st.text(min_size=1))
def test_one_text_is_another_only_where_they_are_equal(one: str, other: str) -> None:
    found = matched(one, mcp(one), mcp(other))
    same = one.strip() == other.strip()
    assert found in ([[0], [0, 1]] if one == other else [[]] if same else [[0]]) or json_equal(one, other)


def json_equal(one: str, other: str) -> bool:
    try:
        return bool(json.loads(one) == json.loads(other))
    except ValueError:
        return False


def test_results_are_those_behind_the_last_tool_calls() -> None:
    def asked(*ids: str) -> dict[str, Any]:
        calls = [{"id": i, "type": "function", "function": {"name": "f", "arguments": "{}"}} for i in ids]
        return {"role": "assistant", "tool_calls": calls}

    def told(id_: str, text: str) -> dict[str, Any]:
        return {"role": "tool", "tool_call_id": id_, "content": text}

    user = {"role": "user", "content": "?"}
    found = shown_results(
        KEY, [user, asked("a"), told("a", "1"), asked("b", "c"), told("c", "3"), told("b", "2"), user]
    )
    assert found is not None
    assert [(one.tool_call_id, one.place and one.place[0], one.content) for one in found.read()] == [
        ("c", 1, "3"),
        ("b", 0, "2"),
    ]
    twice = shown_results(KEY, [user, asked("0", "0"), told("0", "1"), told("0", "2")])
    assert twice is not None
    assert [one.place and one.place[0] for one in twice.read()] == [0, 1]
    for none in ([user], [user, asked("a")], [user, {"role": "assistant", "content": "hi"}, user], []):
        assert shown_results(KEY, none) is None
    retold = {
        "role": "assistant",
        "content": "Calling tools:\n[{'id': 'chatcmpl-tool-0123456789abcdef0123456789abcdef'}]",
    }
    text = shown_results(KEY, [user, retold, {"role": "user", "content": "Observation:\n7"}])
    assert text is not None
    assert [(one.tool_call_id, one.content) for one in text.read()] == [(None, "Observation:\n7")]


@pytest.mark.parametrize(
    "content",
    [
        "x " * 4_000_000,
        '{"a":' * 200_000,
        "[" * 2_000_000,
        '"' * 3_000_000,
        json.dumps({"text": ["y" * 99] * 50_000}),
        *("[" * deep + "]" * deep for deep in (300, 900, 5000)),
        *('{"text":' * deep + "1" + "}" * deep for deep in (300, 900, 5000)),
    ],
)
def test_hostile_results_are_compared_in_bounded_work(content: str, monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[int] = []
    real = json.loads

    def loads(text: str) -> object:
        parsed.append(len(text))
        return real(text)

    monkeypatch.setattr(json, "loads", loads)
    assert matched(content, mcp("x"), mcp(content[:-1] + "z")) in ([], [1])
    assert all(size <= MOST_CHARS for size in parsed)


def test_equal_results_of_one_answer_are_given_in_order() -> None:
    result = mcp("same")
    waiting = [
        WaitingResult(id_, forms_of_result(result, None), same_result(result, None), 0.0, at)
        for id_, at in (("late", 2.0), ("early", 1.0))
    ]
    found = match_results(["same", "same"], [waiting, waiting], time.time(), lambda *_: {})
    assert [isinstance(one, ResultMatch) and (one.call.id, one.source) for one in found] == [
        ("early", "order"),
        ("late", "order"),
    ]


@pytest.mark.parametrize(
    ("finished_at", "tied", "found"), [(9.0, False, True), (20.0, False, False), (20.0, True, True)]
)
def test_a_call_that_ended_after_the_request_is_not_what_it_brings_back(
    finished_at: float, tied: bool, found: bool
) -> None:
    result = mcp("same")
    one = WaitingResult("x", forms_of_result(result, None), same_result(result, None), 8.0, finished_at, tied=tied)
    [match] = match_results(["same"], [[one]], 10.0, lambda *_: {})
    assert (match is not None) is found
