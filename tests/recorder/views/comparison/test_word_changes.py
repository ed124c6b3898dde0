"""An answer beside its correction: all of both texts is there, in order."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.views.comparison.word_changes import TextPart, compare_small_change, compare_words

TEXTS = st.lists(st.sampled_from(["in", "Bonn", "Köln", " ", "\n", ".", "1"]), max_size=30).map("".join)


@given(TEXTS, TEXTS)
def test_the_parts_are_both_texts(old: str, new: str) -> None:
    parts = compare_words(old, new)
    assert "".join(one.text for one in parts if one.kind != "added") == old
    assert "".join(one.text for one in parts if one.kind != "removed") == new
    assert all(one.text for one in parts)


def test_what_both_have_stays() -> None:
    assert compare_words("It is in Bonn.", "It is in Köln.") == (
        TextPart("same", "It is in "),
        TextPart("removed", "Bonn"),
        TextPart("added", "Köln"),
        TextPart("same", "."),
    )


def test_long_texts_are_not_compared_by_words() -> None:
    long = "a " * 1500
    assert compare_words(long, long + "b") == (TextPart("removed", long), TextPart("added", long + "b"))


@given(TEXTS, TEXTS)
def test_a_small_change_is_both_texts_or_nothing(old: str, new: str) -> None:
    parts = compare_small_change(old, new)
    if parts:
        assert "".join(one.text for one in parts if one.kind != "added") == old
        assert "".join(one.text for one in parts if one.kind != "removed") == new
        assert any(one.kind == "same" for one in parts)


def test_a_change_in_a_long_sentence_is_small_and_another_text_is_not() -> None:
    long = "word " * 150
    assert [one.kind for one in compare_small_change(f"{long}Bonn {long}", f"{long}Köln {long}")] == [
        "same", "removed", "added", "same",
    ]  # fmt: skip
    assert compare_small_change("Yes", "No") == ()
    assert compare_small_change("Please call us.", "It will come on Tuesday.") == ()
    assert compare_small_change(f"Bonn {long}Bonn", f"Köln {long}Köln") == ()
    assert compare_small_change(None, "No") == compare_small_change("No", "No") == ()
