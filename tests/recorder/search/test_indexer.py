"""What is deleted is found no more, and its words are in no file."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from sqlalchemy import select

from recorder.maintenance.deletion import delete_trajectory, erase_deleted_words
from recorder.maintenance.sweep import sweep
from recorder.messages.calls import Address, RecordedCall
from recorder.search.indexer import IndexMerge
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from recorder.store.schema import groups, said, trajectories, unmerged
from recorder.store.sql import now
from recorder.store.wal_checkpoint import empty_log
from tests.recorder.rows import Rows
from tests.recorder.search.conftest import Index
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user

pytestmark = pytest.mark.slow


async def delete_run(store: Store, talk: Talk, turn: RecordedCall) -> None:
    id_ = turn.attribution.trajectory.id
    await talk.recorder.close(PROJECT, id_)
    await delete_trajectory(Project(store, PROJECT), id_)


def holding(store: Store, word: str) -> list[str]:
    """The files beside the store that hold a word."""
    folder = Path(str(store.file)).parent
    return [file.name for file in folder.iterdir() if word.encode() in file.read_bytes()]


async def test_a_deleted_run_is_found_no_more(store: Store, talk: Talk, index: Index) -> None:
    kept = await talk.call([user("an order")], "yes")
    gone = await talk.call([user("another order, zanzibar")], "yes")
    waits = await talk.call([user("an order that waits")], "yes")
    await index.fill()
    await delete_run(store, talk, gone)
    await delete_run(store, talk, waits)
    assert await index.saying("order") == [kept.attribution.trajectory.id]
    assert await index.saying("zanzibar") == []


@pytest.mark.sqlite_only("its files' bytes")
@pytest.mark.parametrize("seed", range(3))
async def test_its_words_are_in_no_file(store: Store, talk: Talk, index: Index, seed: int) -> None:
    """Wherever among the index's segments they are: they are made and merged as it is filled and emptied."""
    draw = random.Random(seed)
    turns = []
    for n in range(60):
        turns.append(await talk.call([user(f"order zanzibar{n}x")], f"kilimanjaro{n}x " * draw.randint(1, 30)))
        if draw.random() < 0.4:
            await index.fill()
    await index.fill()
    assert holding(store, "zanzibar7x")
    gone = draw.sample(range(60), 20)
    for n in gone[:10]:
        await delete_run(store, talk, turns[n])
    assert await erase_deleted_words(store)
    for n in gone[10:]:
        await delete_run(store, talk, turns[n])
    assert await erase_deleted_words(store)
    assert [n for n in gone if holding(store, f"zanzibar{n}x") or holding(store, f"kilimanjaro{n}x")] == []
    assert all(holding(store, f"zanzibar{n}x") for n in set(range(60)) - set(gone))
    assert len(await index.saying("order")) == 40
    async with store.write() as conn:
        await conn.exec_driver_sql("INSERT INTO said_words (said_words, rank) VALUES ('integrity-check', 1)")


@pytest.mark.sqlite_only("its files' bytes")
async def test_a_merge_without_time_goes_on_when_it_is_called_again(store: Store, talk: Talk, index: Index) -> None:
    turns = []
    for n in range(8):
        turns.append(await talk.call([user(f"order zanzibar{n}x")], "yes"))
        await index.fill()
    await delete_run(store, talk, turns[0])
    merge = IndexMerge(store)
    while not await merge.go_on(within_s=0.0):
        async with store.read() as conn:
            assert (await conn.execute(select(unmerged.c.mark))).all()  # nobody says that it is done
    assert await empty_log(store)
    assert holding(store, "zanzibar0x") == []
    async with store.read() as conn:
        assert (await conn.execute(select(unmerged.c.mark))).all() == []


async def test_retention_empties_the_index(store: Store, talk: Talk, rows: Rows, index: Index) -> None:
    made = await talk.call([user("zanzibar")], "yes", Address(trajectory="run", group="g"))
    await index.fill()
    run = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, run)
    await rows.set(groups, (await rows.get(trajectories, run))["group_id"], state="trained")
    await rows.set(trajectories, run, ended_at=now() - 90_000)
    assert (await sweep(Project(store, PROJECT), RecorderSettings(retention_days=1))).trajectories_deleted == 1
    assert await index.saying("zanzibar") == []
    assert await rows.all(said) == []


async def test_of_a_shared_call_what_the_deleted_run_was_answered_goes(
    store: Store, talk: Talk, rows: Rows, index: Index
) -> None:
    answers = [choice(assistant(f"it is {city}"), n) for n, city in enumerate(("ulm", "bonn", "riga"))]
    made = await talk.call([user("the capital?")], answers, Address(group="g", trajectory="run"))
    first = made.attribution.trajectory.id
    await talk.recorder.close(PROJECT, first)
    await index.fill()
    assert await index.saying("capital ulm") == [first]
    siblings = set(await index.saying("capital")) - {first}
    assert len(siblings) == 2
    await delete_trajectory(Project(store, PROJECT), first)
    assert set(await index.saying("capital")) == siblings
    assert await index.saying("ulm") == []
    await index.fill()
    assert set(await index.saying("capital")) == siblings
    assert len(await index.saying("capital bonn")) == 1  # the call is another run's now
    assert await index.saying("ulm") == []
