"""A line around what was found, with the places of the marks as numbers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.search.documents import Document
from recorder.search.matches import BEFORE, SHOWN, find_snippet, load_snippets
from recorder.search.terms import parse_query, word_keys
from recorder.store.database import Project, Store
from tests.recorder.search.conftest import Index
from tests.recorder.talk import PROJECT, Talk, assistant, user


def marked(text: str, said: str) -> list[str]:
    snippet = find_snippet(Document("call", "traj", [text]), parse_query(said))
    return [] if snippet is None else [snippet.text[start:end] for start, end in snippet.marks]


def test_what_was_asked_for_is_marked() -> None:
    text = "The Order was lost: order 77, ORDERLY."
    assert marked(text, "order -lost") == ["Order", "order"]
    assert marked(text, "order*") == ["Order", "order", "ORDERLY"]
    assert marked(text, '"was lost" 77') == ["was lost", "77"]
    assert marked(text, "zanzibar") == []
    assert marked("東京都に", "京都") == ["京都"]
    assert marked("Cafe\u0301!", "CAFÉ") == ["Café"]


def test_a_long_text_is_cut_around_the_first_mark() -> None:
    snippet = find_snippet(Document("call", "traj", ["a " * 500 + "zanzibar " + "b " * 500]), parse_query("zanzibar"))
    assert snippet is not None
    (mark,) = snippet.marks
    assert snippet.text[slice(*mark)] == "zanzibar"
    assert mark[0] <= BEFORE
    assert len(snippet.text) <= SHOWN
    assert snippet.cut_before
    assert snippet.cut_after


@given(st.lists(st.text(), max_size=4), st.text())
def test_marks_lie_in_the_text_and_in_order(texts: list[str], said: str) -> None:
    asked = parse_query(said)
    snippet = find_snippet(Document("call", "traj", texts), asked) if asked.wanted else None
    places = [place for mark in snippet.marks for place in mark] if snippet is not None else []
    assert places == sorted(places)
    assert snippet is None or (places and places[-1] <= len(snippet.text))


@given(st.text(min_size=1))
def test_every_word_of_a_text_has_its_snippet(text: str) -> None:
    for key in word_keys(text):
        assert marked(text, f'"{key}"') != []


async def test_each_run_shows_the_first_turn_that_says_it(store: Store, talk: Talk, index: Index) -> None:
    one = await talk.call([user("my order is late")], "which order?")
    await talk.call([user("my order is late"), assistant("which order?"), user("order 77")], "ah")
    other = await talk.call([user("hello")], "hi")
    await index.fill()
    runs = [turn.attribution.trajectory.id for turn in (one, other)]
    found = await load_snippets(Project(store, PROJECT), "order", runs)
    assert {run: (s.call_id, s.text, list(s.marks)) for run, s in found.items()} == {
        runs[0]: (one.call_id, "which order?", [(6, 11)])
    }
    assert await load_snippets(Project(store, PROJECT), "", runs) == {}
