"""The recorded text of an answer occurs in its decoded ids, or the ids are another answer's."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.building import call, choice, trajectory
from trainer.batch.recorded_text import Parsers, TextCheck, agrees
from trainer.batch.rows import RowBasis, trajectory_rows


def decode(ids: Sequence[int]) -> list[str]:
    return ["".join(chr(one) for one in ids)]


def ids_of(text: str) -> list[int]:
    return [ord(one) for one in text]


def said(**fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, **fields}


def asked(arguments: object) -> dict[str, Any]:
    return said(tool_calls=[{"id": "1", "type": "function", "function": {"name": "find", "arguments": arguments}}])


HERMES = '<tool_call>\n{"name": "find", "arguments": {"city": "Z\\u00fcrich", "days": 3}}\n</tool_call><|im_end|>'
XML = "<function=find><parameter=city>Zürich</parameter><parameter=days>3</parameter></function>"


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(content="Hello, world"), "Hello,  world<|im_end|>"),
        (said(content=""), "<|im_end|>"),
        (said(content=[{"type": "text", "text": "Hello"}]), "Hello"),
        (said(content="Hello", reasoning_content="Let me see"), "<think>Let me see</think>\n\nHello"),
        (said(content="Hello"), "Hello STOP"),  # a stop string is cut from the text and not from the ids
        (asked('{"city": "Zürich", "days": 3}'), HERMES),
        (asked('{"city": "Zürich", "days": 3}'), XML),
        (asked({"city": "Zürich", "days": 3}), XML),
        (
            asked('{"path": "a\\\\b", "said": "\\"no\\"\\n"}'),
            '{"arguments": {"path": "a\\\\b", "said": "\\"no\\"\\n"}}',
        ),
        (asked('{"code": "a\\n\\tb"}'), '{"arguments": {"code": "a\\n\\tb"}}'),
        (asked('{"code": "a\\n\\tb"}'), "<parameter=code>\na\n\tb\n</parameter>"),
        (asked('{"code": "a\\n\\tb"}'), "find(code='a\\n\\tb')"),
        (asked({"who": 'it\'s "he"'}), """find(who='it\\'s "he"')"""),
        (asked({"path": "C:\\new\\\\table\\"}), '{"path": "C:\\\\new\\\\\\\\table\\\\"}'),
        (asked({"path": "C:\\new\\\\table\\"}), "<parameter=path>C:\\new\\\\table\\</parameter>"),
        (asked({"what": "🚚 é</b>"}), '{"what": "\\ud83d\\ude9a \\u00e9<\\/b>"}'),
        (asked({"body": '{"a": "b\\\\nc"}'}), '{"body": "{\\"a\\": \\"b\\\\\\\\nc\\"}"}'),
        (asked('{"broken": '), '<tool_call>{"name": "find", "arguments": {"broken": '),
        (asked('{"city": "Bern'), "find(city='Be', days=3)"),  # malformed: what a parser had of them
        (asked('{"share": 1.0, "all": true}'), "find(share=1, all=True)"),
        (asked('{"share": 987000, "days": 3}'), '{"share": 987e3, "days": 3}'),
        (asked('{"share": 1000}'), "find(share=1_000)"),
        (asked('{"city": "Bern"}') | {"content": "That was it."}, "find(city='Bern')\nThat was it."),
        (asked('{"city": "Bern"}') | {"content": "Look. That was it."}, "Look. find(city='Bern')\nThat was it."),
    ],
)
def test_what_an_engine_made_of_its_ids_agrees(message: dict[str, Any], text: str) -> None:
    assert agrees(message, ids_of(text), decode)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        (said(content="Hello, world"), "Hello, worl"),
        (said(content="Hello"), "Good bye"),
        (said(content="Hello"), ""),
        (
            said(content="Let me see", reasoning_content="Hello"),
            "<think>Let me see</think>Hello",
        ),  # the other way round
        (asked('{"city": "Zürich", "days": 3}'), HERMES.replace("3", "4")),
        (asked('{"city": "Zürich", "days": 3}'), XML.replace("Zürich", "Bern")),
        (asked({"path": "C:\\new"}), '{"path": "C:\\\\old"}'),
        (asked('{"city": "Bern"}') | {"content": "That was it."}, "find(city='Bern')\nThat is it."),
        (
            asked('{"city": "Bern"}') | {"content": "Look. That was it."},
            "Look. That find(city='Bern') was it now."[:-9],
        ),
        (said(content="Look. That was it."), "Look. find(city='Bern')\nThat was it."),
        (asked({"code": "a\nb"}), '{"code": "a\\nc"}'),
        (asked('{"first": "one", "second": "two"}'), '{"first": "two", "second": "one"}'),
    ],
)
def test_another_answer_s_ids_do_not(message: dict[str, Any], text: str) -> None:
    assert not agrees(message, ids_of(text), decode)


@given(
    st.text(st.characters(codec="utf-8"), max_size=30),
    st.text(st.sampled_from("abnu0 {}\"'\\\n\t\x08é🚚") | st.characters(codec="utf-8"), max_size=20),
    st.text(st.characters(codec="utf-8", exclude_characters="\\"), max_size=9),
    st.booleans(),
)
def test_any_text_agrees_with_itself_inside_anything(content: str, argument: str, rest: str, ascii_only: bool) -> None:
    arguments = json.dumps({"a": [argument, {"b": 7}]}, ensure_ascii=ascii_only)
    message = {**asked(arguments), "content": content, "reasoning_content": "hm"}
    text = f"{rest}hm{rest}{content}<tool_call>{arguments}{rest}"
    assert agrees(message, ids_of(text), decode)


def test_an_answer_whose_text_is_not_its_ids_is_excluded() -> None:
    wrong = choice(ids_of("Good bye"), message=said(content="Hello"))
    right = choice(ids_of("Hello"), message=said(content="Hello"))
    view = trajectory(call(1, [1], wrong), call(2, [2], right))
    rows, skipped = trajectory_rows(
        view, RowBasis("base", ["v3"], 4, 512, text=TextCheck(decode, "a parser of theirs"))
    )
    assert [row.calls for row in rows] == [(("call_2", 0),)]
    assert [(one.call_id, one.code) for one in skipped] == [("call_1", "ids_disagree")]


@pytest.mark.parametrize(
    ("message", "proven", "unproven"),
    [
        (asked('{"city": "Bern"}'), ("hermes", "some"), ("some", None)),
        (said(content="Hello", reasoning_content="hm"), ("some", None), ("hermes", "some")),
    ],
)
def test_what_a_parser_made_is_excluded_only_if_the_parser_was_compared(
    message: dict[str, Any], proven: Parsers, unproven: Parsers
) -> None:
    view = trajectory(call(1, [1], choice(ids_of("Good bye"), message=message)))
    strict, lenient = TextCheck(decode, *proven), TextCheck(decode, *unproven)
    assert [one.code for one in trajectory_rows(view, RowBasis("base", ["v3"], 4, 512, text=strict))[1]] == [
        "ids_disagree"
    ]
    rows, skipped = trajectory_rows(view, RowBasis("base", ["v3"], 4, 512, text=lenient))
    assert (len(rows), skipped) == (1, [])
    assert (strict.contradictions, lenient.contradictions) == ([], ["call_1"])
