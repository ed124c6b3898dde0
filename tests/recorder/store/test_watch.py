"""Waiting for the store: who waits for a topic wakes on every change of it, whoever made it, and on nothing else."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from recorder.errors import StoreUnavailable
from recorder.store import changes
from recorder.store.changes import ChangeSignal, ChangeWatcher, Counts, SqliteChangePoller, Topic
from recorder.store.database import Store
from recorder.store.schema import groups
from tests.recorder.rows import Rows

FOR_EVER_S = 3600.0


async def caught_up(news: ChangeSignal, store: Store) -> None:
    """Wait until the watch has looked, so that only what comes now is news."""
    assert await news.wait()
    while store.watch._counts is None:
        await asyncio.sleep(0)
    await news.wait(0)


@pytest.fixture
async def twin(store: Store) -> AsyncIterator[Store]:
    """Another's connections to the same database."""
    opened = Store(store.url.render_as_string(hide_password=False))
    yield opened
    await opened.close()


@asynccontextmanager
async def writer(store: Store) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that changes the store when it is told to; killed at the end."""
    url = store.url.render_as_string(hide_password=False)
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.recorder.writing_child", url), stdin=-1, stdout=-1
    )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
        await process.wait()


async def tell(process: asyncio.subprocess.Process, line: str) -> str:
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(line.encode() + b"\n")
    return (await process.stdout.readline()).decode().strip()


async def test_the_first_wait_is_over_at_once(store: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        assert await news.wait()


async def test_a_wait_ends_at_its_deadline_without_news(store: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        assert not await news.wait(0)


async def test_what_this_process_commits_wakes_without_a_look(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "EVERY_S", FOR_EVER_S)
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await rows.group()
        assert await news.wait()


async def test_what_this_process_committed_is_no_news_twice(store: Store, rows: Rows) -> None:
    looked: list[Counts | None] = []
    sees = store.watch._look

    async def look() -> Counts | None:
        looked.append(await sees())
        return looked[-1]

    store.watch._look = look
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        looked.clear()
        await rows.group()
        assert await news.wait()
        while not any(looked):  # it sees that commit
            await asyncio.sleep(0.01)
        assert not await news.wait(0)


async def test_what_others_commit_on_other_connections_of_this_process_wakes(store: Store, twin: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await Rows(twin).group()
        assert await news.wait()


async def test_who_waits_for_another_topic_sleeps_on(store: Store, twin: Store) -> None:
    with store.watch.on(Topic.GROUPS) as here, store.watch.on(Topic.ENGINES) as there:
        await caught_up(here, store)
        await there.wait(0)
        await Rows(twin).group()
        assert await here.wait()
        assert not await there.wait(0)


async def test_everybody_who_waits_for_a_topic_wakes(store: Store, twin: Store) -> None:
    with store.watch.on(Topic.GROUPS) as one, store.watch.on(Topic.ENGINES, Topic.GROUPS) as two:
        await caught_up(one, store)
        await two.wait(0)
        await Rows(twin).group()
        assert await one.wait()
        assert await two.wait()


async def test_a_change_while_one_works_ends_the_next_wait(store: Store, rows: Rows) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await rows.group()
        assert await news.wait()
        await rows.group()  # while it works
        assert await news.wait()


async def test_nobody_looks_while_nobody_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "EVERY_S", 0.0)
    looks = 0

    async def look() -> Counts | None:
        nonlocal looks
        looks += 1
        return {}

    watching = ChangeWatcher(look)
    with watching.on(Topic.RUNS) as news:
        while looks < 3:
            await news.wait(0)
    await watching.close()
    seen = looks
    for _ in range(100):
        await asyncio.sleep(0)
    assert looks == seen


async def test_a_watch_goes_on_for_who_comes_as_the_last_one_leaves(store: Store, twin: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await Rows(twin).group()
        assert await news.wait()


async def test_another_database_is_asked_for_its_counts(store: Store, twin: Store) -> None:
    async def look() -> Counts:  # as `Store` does where the database is not SQLite
        async with store.read() as conn:
            return await changes.read_counts(conn)

    store.watch = ChangeWatcher(look)
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await Rows(twin).group()
        assert await news.wait()


# --- other processes


@pytest.mark.slow
async def test_what_another_process_commits_wakes(store: Store, rows: Rows) -> None:
    await rows.group(id="theirs")
    async with writer(store) as process:
        with store.watch.on(Topic.GROUPS) as news:
            await caught_up(news, store)
            assert await tell(process, "commit") == "done"
            assert await news.wait()
    assert (await rows.get(groups, "theirs"))["reason"] == "commit\n"


@pytest.mark.slow
async def test_a_writer_killed_before_its_commit_is_no_news_and_those_after_it_are(
    store: Store, twin: Store, rows: Rows
) -> None:
    await rows.group(id="theirs")
    async with writer(store) as process:
        with store.watch.on(Topic.GROUPS) as news:
            await caught_up(news, store)
            assert await tell(process, "hold") == "held"
            process.kill()
            await process.wait()
            async with twin.read() as conn:
                before = await changes.read_counts(conn)
            await Rows(twin).group()
            assert await news.wait()
            async with twin.read() as conn:
                after = await changes.read_counts(conn)
    assert after[Topic.GROUPS] == before[Topic.GROUPS] + 1
    assert (await rows.get(groups, "theirs"))["reason"] is None


# --- a database that is busy, gone, or another


async def test_a_store_that_somebody_writes_to_is_looked_at_all_the_same(store: Store, twin: Store) -> None:
    with store.watch.on(Topic.GROUPS) as news:
        await caught_up(news, store)
        await Rows(twin).group()
        async with twin.write():  # holds the write lock
            assert await news.wait()


async def test_a_store_that_does_not_answer_for_a_while_wakes_everybody_when_it_does(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(changes, "EVERY_S", 0.0)
    answers: list[Counts | None] = [{"groups": 1}, None]
    failed = asyncio.Event()

    async def look() -> Counts | None:
        if answers:
            return answers.pop(0)
        failed.set()
        raise StoreUnavailable("the database is locked")

    watching = ChangeWatcher(look)
    with watching.on(Topic.GROUPS) as news:
        await news.wait()
        await failed.wait()
        await news.wait(0)
        answers.append({"groups": 1})
        assert await news.wait()
    await watching.close()
    assert "the database is locked" in caplog.text


async def test_a_look_at_a_locked_file_says_so(tmp_path: Path) -> None:
    path = tmp_path / "hone.db"
    with sqlite3.connect(path) as other:  # no write-ahead log: a writer keeps readers out
        other.execute("create table changes (topic, count)")
        look = SqliteChangePoller(str(path))
        assert await look() == {}
        other.execute("begin exclusive")
        with pytest.raises(StoreUnavailable, match="locked"):
            await look()
        other.rollback()
        assert await look() == {}
    other.close()
    look.close()


@pytest.mark.sqlite_only("its file")
async def test_a_database_that_took_the_place_of_another_is_news(store: Store, tmp_path: Path) -> None:
    look = SqliteChangePoller(str(store.file))
    assert await look() is not None
    assert await look() is None
    async with store.write() as conn:
        await conn.exec_driver_sql("PRAGMA user_version=1")
    shutil.copy(tmp_path / "hone.db", tmp_path / "copy.db")
    (tmp_path / "copy.db").replace(tmp_path / "hone.db")
    assert [counts for _ in range(changes.SAME_FILE_LOOKS) if (counts := await look()) is not None]
    look.close()


async def test_a_database_that_was_put_back_from_a_copy_is_news_though_it_counted_less(store: Store) -> None:
    counts: list[Counts] = [{"groups": 7}, {"groups": 5}, {}]

    async def look() -> Counts | None:
        return counts.pop(0) if counts else None

    watching = ChangeWatcher(look)
    with watching.on(Topic.GROUPS) as news:
        await news.wait()
        while counts:
            assert await news.wait()
    await watching.close()


async def test_a_folder_that_is_gone_is_no_store_and_none_is_made(tmp_path: Path) -> None:
    look = SqliteChangePoller(str(tmp_path / "gone" / "hone.db"))
    with pytest.raises(StoreUnavailable, match=r"hone\.db cannot be read"):
        await look()
    (tmp_path / "gone").mkdir()
    with pytest.raises(StoreUnavailable):
        await look()
    assert list((tmp_path / "gone").iterdir()) == []
