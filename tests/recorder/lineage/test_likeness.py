"""A turn as its client retells it: white space trimmed, stop strings and notes appended, and never another text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.lineage.likeness import about, grown, same_but_space
from tests.recorder.talk import assistant, tool_turn, user

texts = st.text("ab .\n<`", max_size=12)


@given(texts, texts)
def test_a_grown_turn_begins_with_all_that_was_said(said: str, told: str) -> None:
    length = grown(assistant(said), assistant(told))
    assert 0 <= length <= len(told)
    if length:
        assert said.strip()
        assert told[:length].strip() == said.strip()


@given(texts.filter(str.strip), texts)
def test_notes_on_a_new_line_and_closing_tags_may_be_appended(said: str, notes: str) -> None:
    for appended in ("\n" + notes, "</code>" + notes, "```\n" + notes):
        assert grown(assistant(said), assistant(said + appended)) >= len(said.strip())
        assert grown(assistant(said), assistant(said.strip() + appended)) >= len(said.strip())


@given(texts)
def test_white_space_at_the_ends_alone_makes_no_other_turn(said: str) -> None:
    for told in (said, said.strip(), said.rstrip(), said.lstrip()):
        assert same_but_space(assistant(said), assistant(told))
    assert not same_but_space(assistant(said), assistant(f" {said} x"))


def test_stop_strings_of_the_call_may_be_appended() -> None:
    assert grown(assistant("Look"), assistant("Look!")) == 0
    assert grown(assistant("Look"), assistant("LookEND"), ["END"]) == len("Look")
    assert grown(assistant("Look"), assistant("LookEND"), ["\nEND\n"]) == len("Look")
    assert grown(assistant("Look"), assistant("Look!"), [""]) == 0


def test_what_stands_beside_the_text_must_be_the_same() -> None:
    called = tool_turn("functions.find:0") | {"content": "Look\n"}
    assert same_but_space(called, called | {"content": "Look"})
    assert not same_but_space(called, assistant("Look"))
    assert grown(called, assistant("Look\n</code>")) == 0


@pytest.mark.parametrize(
    ("words", "text", "found"),
    [("Fix it", "A title for: Fix it", True), ("Fix it", "Fix items", False), ("", "x", False), ("a", "again", False)],
)
def test_an_errand_is_about_whole_words(words: str, text: str, found: bool) -> None:
    assert about(words, [user(text)]) is found
    assert about(words, [assistant(text)]) is False
