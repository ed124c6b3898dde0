"""A turn as its client retells it: white space trimmed, stop strings and notes appended, and never another text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.partial_match import equals_but_space, is_about, matched_length
from tests.recorder.talk import assistant, tool_turn, user

texts = st.text("ab .\n<`", max_size=12)


@given(texts, texts)
def test_a_grown_turn_begins_with_all_that_was_said(said: str, told: str) -> None:
    length = matched_length(assistant(said), assistant(told))
    assert 0 <= length <= len(told)
    if length:
        assert said.strip()
        assert told[:length].strip() == said.strip()


@given(texts.filter(str.strip), texts)
def test_notes_on_a_new_line_and_closing_tags_may_be_appended(said: str, notes: str) -> None:
    for appended in ("\n" + notes, "</code>" + notes, "```\n" + notes):
        assert matched_length(assistant(said), assistant(said + appended)) >= len(said.strip())
        assert matched_length(assistant(said), assistant(said.strip() + appended)) >= len(said.strip())


@given(texts)
def test_white_space_at_the_ends_alone_makes_no_other_turn(said: str) -> None:
    for told in (said, said.strip(), said.rstrip(), said.lstrip()):
        assert equals_but_space(assistant(said), assistant(told))
    assert not equals_but_space(assistant(said), assistant(f" {said} x"))


def test_stop_strings_of_the_call_may_be_appended() -> None:
    assert matched_length(assistant("Look"), assistant("Look!")) == 0
    assert matched_length(assistant("Look"), assistant("LookEND"), ["END"]) == len("Look")
    assert matched_length(assistant("Look"), assistant("LookEND"), ["\nEND\n"]) == len("Look")
    assert matched_length(assistant("Look"), assistant("Look!"), [""]) == 0


def test_what_stands_beside_the_text_must_be_the_same() -> None:
    called = tool_turn("functions.find:0") | {"content": "Look\n"}
    assert equals_but_space(called, called | {"content": "Look"})
    assert not equals_but_space(called, assistant("Look"))
    assert matched_length(called, assistant("Look\n</code>")) == 0


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [("Fix it", "A title for: Fix it", True), ("Fix it", "Fix items", False), ("", "x", False), ("a", "again", False)],
)
def test_an_errand_is_about_whole_words(words: str, text: str, found: bool) -> None:
    assert is_about(words, [user(text)]) is found
    assert is_about(words, [assistant(text)]) is False
