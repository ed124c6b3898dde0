"""Runs are found by what was said in them, the newest first, page by page."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import insert, text

from recorder.ids import first_id_at
from recorder.search.documents import first_number
from recorder.search.matches import find_trajectories
from recorder.search.terms import fts5_line, tsvector_text, word_keys
from recorder.store import bootstrap
from recorder.store.database import Project, Store
from recorder.store.schema import said
from tests.effort import scaled
from tests.recorder.search.conftest import Index
from tests.recorder.talk import PROJECT, Talk, assistant, tool_result, tool_turn, user


async def of_run(talk: Talk, *conversation: str) -> str:
    """A run of a question, then an answer, and so on."""
    messages = []
    for question, answer in zip(conversation[::2], conversation[1::2], strict=True):
        messages.append(user(question))
        made = await talk.call(messages, answer)
        messages.append(assistant(answer))
    return made.attribution.trajectory.id


async def test_a_run_is_found_by_what_was_said_in_it(talk: Talk, index: Index) -> None:
    asked = user("Where is my Zanzibar order?")
    first = await talk.call([asked], tool_turn("call_a"))
    found = tool_result("call_a", "lost near Kilimanjaro")
    await talk.call([asked, tool_turn("call_a"), found], "I am sorry about that")
    other = await of_run(talk, "Where is my parcel?", "In Zanzibar")
    await index.fill()
    run = first.attribution.trajectory.id
    assert await index.saying("zanzibar") == [other, run]
    assert await index.saying("zanzibar order") == [run]
    assert await index.saying("kilimanjaro sorry") == [run]  # the result and what was answered to it: one turn
    assert await index.saying("zanzibar kilimanjaro") == []  # said, but not in one turn
    assert await index.saying('"find" a b') == [run]  # a tool call's name and arguments
    assert await index.saying('"near kilimanjaro"') == [run]
    assert await index.saying('"kilimanjaro near"') == []
    assert await index.saying("kili*") == [run]
    assert await index.saying("zanzibar -order") == [other]
    assert await index.saying("-order") == []
    assert await index.saying("") == []


async def test_what_every_run_is_told_is_not_searched(talk: Talk, index: Index) -> None:
    tools = [{"type": "function", "function": {"name": "lookup", "description": "finds parcels"}}]
    system = [{"role": r, "content": "You are Hermione."} for r in ("system", "developer")]
    made = await talk.call([*system, user("hello")], "hi", tools=tools)
    await index.fill()
    assert await index.saying("hermione") == await index.saying("parcels") == []
    assert await index.saying("hello") == [made.attribution.trajectory.id]


@pytest.mark.parametrize("said", ["größe", "GRÖSSE", "Größe", "東京", "京都", "ключ", "مفتاح"])
async def test_any_script_is_found(talk: Talk, index: Index, said: str) -> None:
    run = await of_run(talk, "Die Größe? 東京都 Ключ مفتاح", "so GRÖSSE")
    await index.fill()
    assert await index.saying(said) == [run]
    assert await index.saying("都京") == []


async def test_a_phrase_does_not_run_from_one_message_into_the_next(talk: Talk, index: Index) -> None:
    await of_run(talk, "this ends with alpha", "beta begins that")
    await index.fill()
    assert await index.saying("alpha beta") != []
    assert await index.saying('"beta alpha"') == await index.saying('"that this"') == []


async def test_pages_are_all_runs_each_once_newest_first(talk: Talk, index: Index) -> None:
    runs = sorted([await of_run(talk, f"order {n}", "yes", "and the order?", "it is lost") for n in range(12)])
    await index.fill()
    found, before = [], None
    while page := await index.saying("order", before, limit=5):
        assert len(page) <= 5
        found += page
        before = page[-1]
    assert found == runs[::-1]


async def test_runs_of_one_millisecond_come_in_the_order_of_their_ids(store: Store, index: Index) -> None:
    """Their documents do not: these are numbered as they are indexed."""
    at = first_id_at("traj", 1_800_000_000.0)
    runs = [f"{at[:-2]}{a}{b}" for a in "zyx0" for b in "0zk"]
    rows = [
        {
            "id": first_number(run) + number,
            "project_id": PROJECT,
            "trajectory_id": run,
            "call_id": f"call_{number}",
            "words": (fts5_line if store.is_sqlite else tsvector_text)([["order"]]),
        }
        for number, run in enumerate(runs)
    ]
    async with store.write() as conn:
        await conn.execute(insert(said), rows)
    found, before = [], None
    while page := await index.saying("order", before, limit=5):
        found += page
        before = page[-1]
    assert found == sorted(runs, reverse=True)


async def test_another_projects_runs_are_not_found(store: Store, talk: Talk, index: Index) -> None:
    await of_run(talk, "zanzibar", "yes")
    await index.fill()
    await bootstrap.ensure_project(Project(store, "other"))
    assert await find_trajectories(Project(store, "other"), "zanzibar", before=None, limit=5) == []


HOSTILE = st.text(max_size=40) | st.text("ab\"'*-^:()&|!<>\\ \x00\ud800", max_size=20)


@given(said=HOSTILE)
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=scaled(50))
async def test_no_question_is_a_mistake(index: Index, said: str) -> None:
    assert await index.saying(said) == []


@pytest.mark.sqlite_only("how it walks")
async def test_sqlite_walks_from_the_newest_and_sorts_nothing(store: Store) -> None:
    query = (
        "explain query plan select said.id from said_words join said on said.id = said_words.rowid "
        "where said_words match 'a' and said_words.rowid < 9 order by said_words.rowid desc"
    )
    async with store.read() as conn:
        plan = [row[3] for row in await conn.execute(text(query))]
    assert not any("SORT" in step or "B-TREE" in step for step in plan), plan


async def test_all_words_of_a_text_find_it(talk: Talk, index: Index) -> None:
    said = "Order #77: 'lost' in <b>Ulm</b>; C:\\temp\\x.txt, foo_bar@example.com 3.14 -5 a/b"
    run = await of_run(talk, said, "ok")
    await index.fill()
    for key in word_keys(said):
        assert await index.saying(key) == [run], key
    assert await index.saying(f'"{said}"'.replace("'", " ")) == [run]
