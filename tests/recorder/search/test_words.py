"""A text as words: the same for both databases, whatever the text is."""

from __future__ import annotations

import contextlib
import sqlite3
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.search.terms import LONGEST, compose_text, fts5_line, split_words, tsvector_text, word_keys


@pytest.mark.parametrize(
    ("text", "keys"),
    [
        ("Where is Order_77-b?", ["where", "is", "order", "77", "b"]),
        ("Straße GRÖSSE", ["strasse", "grösse"]),
        ("Cafe\u0301 café cafe", ["café", "café", "cafe"]),
        ("ＡＢＣ ﬁne", ["abc", "fine"]),
        ("東京都は x", ["東", "京", "都", "は", "x"]),
        ("한국 ไทย", ["한", "국", "ไ", "ท", "ย"]),
        ('{"city": "Ulm"}', ["city", "ulm"]),
        ("a" * 200, ["a" * LONGEST]),
        (" …!? 🙂 _ ", []),
    ],
)
def test_a_text_has_these_words(text: str, keys: list[str]) -> None:
    assert word_keys(text) == keys


@given(st.text())
def test_a_words_place_is_where_it_stands(text: str) -> None:
    text = compose_text(text)
    places = [(word.start, word.end) for word in split_words(text)]
    assert all(word_keys(text[start:end]) for start, end in places)
    assert all(a[1] <= b[0] for a, b in pairwise(places))


@given(st.text(), st.text())
def test_sqlites_tokenizer_sees_the_words_and_no_others(text: str, other: str) -> None:
    """So that any phrase of a document finds it, and none that runs from one message into the next does."""
    texts = [keys for keys in map(word_keys, (text, other)) if keys]
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("create virtual table w using fts5(words, tokenize='ascii')")
        db.execute("create virtual table seen using fts5vocab(w, 'instance')")
        db.execute("insert into w values (?)", (fts5_line(texts),))
        found = [term for (term,) in db.execute("select term from seen order by offset")]
    assert found == fts5_line(texts).split(" ") if texts else found == []


def test_postgresql_is_given_words_with_their_places() -> None:
    assert tsvector_text([["a", "b", "a"], ["c"]]) == "'a':1,3 'b':2 'c':5"
