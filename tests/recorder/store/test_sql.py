"""Text that both databases take."""

import json

from hypothesis import given
from hypothesis import strategies as st

from recorder.store.sql import storable_text

ANY = st.text(st.characters(exclude_categories=()))  # lone surrogates and NUL among them


@given(ANY)
def test_any_text_becomes_one_that_can_be_stored_and_what_can_be_stays_as_it_is(text: str) -> None:
    stored = storable_text(text)
    stored.encode()
    assert "\x00" not in stored
    assert storable_text(stored) == stored
    holds = all(character != "\x00" and not "\ud800" <= character <= "\udfff" for character in text)
    assert (stored == text) == holds


@given(ANY)
def test_json_says_the_same_when_it_is_escaped(text: str) -> None:
    said = text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")  # two halves are one character
    assert json.loads(storable_text(json.dumps(text, ensure_ascii=False))) == said
