"""The JSON documents in a model's reply: found behind its thoughts and in its prose, and no key twice."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import ReplyUnreadable
from recorder.llm.json_reply import MAX_REPLY_CHARS, DuplicateKeys, find_documents


def test_documents_are_found_in_their_order_between_what_is_said_around_them() -> None:
    found = find_documents('Here:\n```json\n{"a": 1}\n```\nand [2]. Done.')
    assert found.documents == [{"a": 1}, [2]]
    assert found.around == ["Here:\n```json\n", "\n```\nand ", ". Done."]
    assert not found.unfinished


def test_thoughts_are_passed_over() -> None:
    assert find_documents('<think>{"a": 1}?</think>{"a": 2}').documents == [{"a": 2}]


def test_a_document_that_was_cut_off_leaves_its_bracket() -> None:
    found = find_documents('{"a": 1} {"b": [')
    assert found.documents == [{"a": 1}]
    assert found.unfinished


def test_a_key_that_stands_twice_is_told() -> None:
    [document] = find_documents('{"a": 1, "a": 2}').documents
    assert isinstance(document, DuplicateKeys)


@pytest.mark.parametrize("reply", ["", " \n", "<think>{}", "{" * 3000, "x" * (MAX_REPLY_CHARS + 1)])
def test_what_is_no_reply_is_refused(reply: str) -> None:
    with pytest.raises(ReplyUnreadable):
        find_documents(reply)


@given(st.dictionaries(st.text(max_size=8), st.integers() | st.text(max_size=8), max_size=4))
def test_a_document_is_found_as_it_was_written(value: dict[str, int | str]) -> None:
    assert find_documents(f"So: {json.dumps(value)}!").documents == [value]
