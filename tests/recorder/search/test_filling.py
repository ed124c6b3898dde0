"""What is recorded is indexed behind its commit: once, by however many fill, and never what was deleted meanwhile."""

from __future__ import annotations

import asyncio
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from recorder.maintenance.deletion import delete_trajectory
from recorder.messages.calls import Address
from recorder.search import documents, indexer
from recorder.search.documents import count_queued, queue_all_calls
from recorder.search.indexer import index_calls
from recorder.store.database import Project, Store
from recorder.store.schema import said
from recorder.store.write_backends import Executor, Row
from tests.recorder.search.conftest import Index
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user


async def indexed(store: Store) -> list[str]:
    """The calls that are in the index."""
    async with store.read() as conn:
        return list((await conn.execute(select(said.c.call_id).order_by(said.c.id))).scalars())


async def test_every_call_waits_from_its_commit_on_until_it_is_indexed(store: Store, talk: Talk, index: Index) -> None:
    made = [await talk.call([user(f"order {n}")], "yes") for n in range(5)]
    assert await count_queued(Project(store, PROJECT)) == 5
    assert await index.fill() == 5
    assert await count_queued(Project(store, PROJECT)) == 0
    assert sorted(await indexed(store)) == sorted(turn.call_id for turn in made)


async def test_two_that_fill_at_once_index_each_call_once(store: Store, talk: Talk, index: Index) -> None:
    for n in range(20):
        await talk.call([user(f"order {n}")], "yes")
    assert sum(await asyncio.gather(index.step(), index.step())) == 20
    assert len(await indexed(store)) == 20


async def test_the_newest_come_first(store: Store, talk: Talk, index: Index, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(indexer, "CALLS", 1)
    await talk.call([user("the old order")], "yes")
    await asyncio.sleep(0.002)  # ids sort by the millisecond
    await talk.call([user("the new order")], "yes")
    await index.step()
    assert len(await index.saying("new order")) == 1
    assert await index.saying("old order") == []


async def test_a_conversation_that_was_rewritten_adds_what_is_new_in_it(talk: Talk, index: Index) -> None:
    here = Address(trajectory="run")
    first = [user("where is it"), assistant("in Ulm"), user("are you sure")]
    await talk.call([user("where is it")], "in Ulm", here)
    await talk.call(first, "yes", here)
    made = await talk.call([user("summary: kilimanjaro"), user("go on")], "done", here)
    await index.fill()
    assert await index.saying("kilimanjaro done") == [made.attribution.trajectory.id]
    assert len(await index.saying("ulm sure")) == 0  # the answer was said in the turn before


async def test_of_a_long_text_the_beginning_is_searched_and_what_stands_beside_it(talk: Talk, index: Index) -> None:
    filler = "x " * documents.MOST_OF_ONE
    await talk.call([user(f"early {filler} late"), user("beside")], "answered")
    await index.fill()
    assert [len(await index.saying(said)) for said in ("early", "beside", "answered", "late")] == [1, 1, 1, 0]


async def test_a_call_without_words_waits_no_longer(store: Store, talk: Talk, index: Index) -> None:
    await talk.call([user("")], [choice(None)])
    assert await index.fill() == 1
    assert await indexed(store) == []


async def test_what_was_deleted_while_it_was_read_is_not_written(
    store: Store, talk: Talk, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = await talk.call([user("a secret")], "yes")
    run = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    read = indexer._read

    async def and_then(*args: Any) -> Any:
        found = await read(*args)
        await delete_trajectory(Project(store, PROJECT), run)
        return found

    monkeypatch.setattr(indexer, "_read", and_then)
    assert await index.step() == 0
    assert await indexed(store) == []
    assert await count_queued(Project(store, PROJECT)) == 0


async def test_what_was_indexed_is_indexed_anew_and_there_once(store: Store, talk: Talk, index: Index) -> None:
    """As an old store behind its migration, and a copied one."""
    made = [await talk.call([user(f"order {n}")], "yes") for n in range(3)]
    await index.fill()
    async with store.write() as conn:
        await queue_all_calls(conn)
    assert await index.fill() == 3
    assert sorted(await indexed(store)) == sorted(turn.call_id for turn in made)
    assert len(await index.saying("order")) == 3


FILL = """
import asyncio, sys
from pathlib import Path
from recorder.search.indexer import index_calls
from recorder.settings import RecorderSettings
from recorder.store.write_backends import choose_backend
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
async def main():
    store = await open_store(Path(sys.argv[1]), RecorderSettings(), migrate=False)
    print("filling", flush=True)
    backend = choose_backend(store, "process")
    await backend.start()
    while await index_calls(Project(store, "default"), backend):
        pass
asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.sqlite_only("a file that another process fills")
async def test_one_that_is_killed_in_the_midst_leaves_the_rest_to_the_next(
    store: Store, talk: Talk, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    for n in range(300):
        await talk.call([user(f"order {n}")], "yes " * 50)
    child = subprocess.Popen([sys.executable, "-c", FILL, str(Path(str(store.file)).parent)], stdout=subprocess.PIPE)
    assert child.stdout is not None
    await asyncio.to_thread(child.stdout.readline)
    while not await indexed(store):
        assert child.poll() is None, "the other process ended before it filled anything"
        await asyncio.sleep(0)
    child.kill()
    with child:  # and its pipe closed
        child.wait()
    await index.fill()
    calls = await indexed(store)
    assert len(calls) == len(set(calls)) == 300
    async with store.write() as conn:
        await conn.exec_driver_sql("INSERT INTO said_words (said_words, rank) VALUES ('integrity-check', 1)")
    assert await count_queued(Project(store, PROJECT)) == 0


async def test_numbers_that_another_took_meanwhile_are_chosen_anew(
    store: Store, talk: Talk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As they may on PostgreSQL, where others write at the same time."""
    made = await talk.call([user("order")], "yes")
    run = made.attribution.trajectory.id
    numbered = indexer._numbered

    def taken(ex: Executor, project_id: str, says: Sequence[Any]) -> Sequence[Row]:
        rows = numbered(ex, project_id, says)
        ex.many(indexer._SAY, [(rows[0][0], project_id, run, "call_other", "'x':1")])
        return rows

    with monkeypatch.context() as patched:
        patched.setattr(indexer, "_numbered", taken)
        assert await index_calls(Project(store, PROJECT)) == 0
    assert await count_queued(Project(store, PROJECT)) == 1
    assert await index_calls(Project(store, PROJECT)) == 1
