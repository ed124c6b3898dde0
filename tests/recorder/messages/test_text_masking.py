"""Tasks that are alike: which words may differ, and which may not."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.content_hashes import implicit_group_key
from recorder.messages.text_masking import mask_message, mask_text
from tests.recorder.talk import user

plain = st.text(st.characters(whitelist_categories=["Ll", "Zs"], max_codepoint=0x17F), max_size=40)


@pytest.mark.parametrize(
    ("text", "masked"),
    [
        ("Where is order 4821?", "Where is order <number>?"),
        ("Refund 1,299.50 EUR, please.", "Refund <number> EUR, please."),
        ("Book it for 2026-11-22T10:30:00Z.", "Book it for <date>."),
        ("On 3 March 2026 or March 4th, at 10:30 pm", "On <date> or <date>, at <date>"),
        ("Between 22/11/2026 and 1.12.26.", "Between <date> and <date>."),
        ("Ticket ABC-123 of 7f9c2ba4-e88f-4f1a", "Ticket <id> of <id>"),
        ("Write to jo.b+x@example.co.uk from 10.0.0.1:80.", "Write to <address> from <address>."),
        ("See https://example.com/a?b=1#c, then go.", "See <url>, then go."),
        ("Say \"hello there\" and 'bye' or “so”.", "Say <quote> and <quote> or <quote>."),
        ("Don't touch the user's files, it's fine", "Don't touch the user's files, it's fine"),
        ("May I march in?", "May I march in?"),
    ],
)
def test_what_may_differ_is_masked_and_nothing_else(text: str, masked: str) -> None:
    assert mask_text(text) == masked


@pytest.mark.parametrize("end", ["\n", " "])
def test_a_long_text_is_masked_piece_by_piece(end: str) -> None:
    text = f"Order 4821 of 2026-11-22T10:30:00Z for jo@example.com.{end}"
    assert mask_text(text * 5_000) == mask_text(text) * 5_000
    assert mask_text("x" * 200_000) == "x" * 200_000


@given(st.text())
def test_masking_twice_is_masking_once(text: str) -> None:
    assert mask_text(mask_text(text)) == mask_text(text)


@given(plain)
def test_words_alone_stay_as_they_are(text: str) -> None:
    assert mask_text(text) == text


@given(plain, st.integers(0, 10**9), st.integers(0, 10**9))
def test_any_number_is_as_good_as_another(before: str, one: int, other: int) -> None:
    assert mask_text(f"{before} {one} left") == mask_text(f"{before} {other} left")


def test_parts_of_a_message_are_masked_and_pictures_are_not() -> None:
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/1.png"}}
    message = {"role": "user", "content": [{"type": "text", "text": "Order 1"}, picture]}
    masked = {"role": "user", "content": [{"type": "text", "text": "Order <number>"}, picture]}
    assert mask_message(message) == masked
    assert mask_message({"role": "user", "content": None}) == {"role": "user", "content": None}


def test_alike_tasks_share_a_group_where_that_is_set() -> None:
    def key(text: str, masked: bool) -> str:
        return implicit_group_key(b"k" * 32, "alias", [user(text)], None, masked=masked)

    assert key("Where is order 1?", True) == key("Where is order 2?", True)
    assert key("Where is order 1?", False) != key("Where is order 2?", False)
    assert key("Where is order 1?", True) != key("Cancel order 1.", True)
    assert key("Hello.", True) == key("Hello.", False)
