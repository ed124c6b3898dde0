"""What a person types: anything is a question, and nothing a mistake."""

from __future__ import annotations

import contextlib
import sqlite3

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.search.terms import MOST_TERMS, Term, fts5_query, parse_query, tsquery_text


@pytest.mark.parametrize(
    ("said", "wanted", "unwanted"),
    [
        ("refund Order", [Term(("refund",)), Term(("order",))], []),
        ('"was not found" x', [Term(("was", "not", "found")), Term(("x",))], []),
        ('"never closed', [Term(("never", "closed"))], []),
        ("refun* a", [Term(("refun",), begins=True), Term(("a",))], []),
        ('"was no"*', [Term(("was", "no"))], []),
        ('"was not"*', [Term(("was", "not"), begins=True)], []),
        ('a -b -"c d"', [Term(("a",))], [Term(("b",)), Term(("c", "d"))]),
        ("well-known -x", [Term(("well", "known"))], [Term(("x",))]),
        ("東京", [Term(("東", "京"))], []),
        ("AND NOT NEAR(a words:c", [Term(("and",)), Term(("not",)), Term(("near", "a")), Term(("words", "c"))], []),
        ("' \" ) ( : ^ - * \\ \x00", [], []),
    ],
)  # fmt: skip
def test_what_is_typed_is_read(said: str, wanted: list[Term], unwanted: list[Term]) -> None:
    query = parse_query(said)
    assert (list(query.wanted), list(query.unwanted)) == (wanted, unwanted)


def test_what_comes_behind_many_words_is_not_asked() -> None:
    assert len(parse_query("word " * 1000).wanted) == MOST_TERMS


@given(st.text() | st.text("ab\"*-^:()' \x00"))
def test_any_text_is_a_question_that_sqlite_understands(said: str) -> None:
    query = parse_query(said)
    with contextlib.closing(sqlite3.connect(":memory:")) as db:
        db.execute("create virtual table w using fts5(words, tokenize='ascii')")
        if query.wanted:
            db.execute("select rowid from w where w match ?", (fts5_query(query),)).fetchall()


def test_postgresql_is_asked_in_its_words() -> None:
    assert tsquery_text(parse_query('a "b c" def* -e')) == "('a') & ('b' <-> 'c') & ('def':*) & !('e')"
