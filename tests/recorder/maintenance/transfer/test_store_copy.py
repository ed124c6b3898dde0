"""Stores copied: SQLite to SQLite, to PostgreSQL and back; cut off at every point; what is refused.

A store's file backed up: whole while somebody writes, private, checked, and never over another file.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
import sqlite3
import stat
from collections.abc import AsyncIterator, Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import insert, select, update
from sqlalchemy.engine import make_url

from recorder.errors import Conflict, SchemaMismatch, StoreError, StoreUnavailable
from recorder.maintenance.integrity.invariants import check_store
from recorder.maintenance.transfer import store_copy, tables
from recorder.maintenance.transfer.store_copy import CopyProgress, back_up, backup_command, copy_store
from recorder.maintenance.transfer.tables import TABLES, Row, digest_table
from recorder.maintenance.transfer.target import open_target
from recorder.queue import leases
from recorder.store import bootstrap, ledger
from recorder.store import postgres as postgresql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import calls, groups, nodes, projects, trajectories, unindexed
from tests.postgres import Postgres
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow


class Cut(Exception):
    """A copy that is killed."""


def cut_after(events: int) -> Callable[[CopyProgress], None]:
    left = count(events, -1)

    def heard(_: CopyProgress) -> None:
        if next(left) == 0:
            raise Cut

    return heard


async def content(store: Store) -> dict[str, list[Row]]:
    """Every row of a store."""
    return {
        table.name: sorted([row async for page in tables.iterate_pages(store, table) for row in page], key=repr)
        for table in TABLES
    }


@pytest.fixture
async def there(postgres: Postgres) -> AsyncIterator[Store]:
    """An empty database of a PostgreSQL."""
    postgres.create("copied")
    opened = await open_target(postgres.url("copied"))
    yield opened
    await opened.close()
    postgres.drop("copied")


def test_every_table_has_a_key_to_be_walked_by_and_comes_after_those_it_refers_to() -> None:
    seen: set[str] = set()
    for table in TABLES:
        assert len(table.primary_key) > 0
        assert {key.column.table.name for key in table.foreign_keys} <= seen
        seen.add(table.name)


async def test_a_copy_holds_every_row_and_is_sound(sound: Sound, target: Store) -> None:
    done = await copy_store(sound.store, target)
    assert await content(target) == await content(sound.store)
    assert {table.name: table.rows for table in done.tables} == {
        name: len(rows) for name, rows in (await content(target)).items()
    }
    assert not done.resumed
    await bootstrap.check_schema(target)
    ended = {row["id"] for row in await Rows(sound.store).all(calls) if row["state"] != "open"}
    assert {row["call_id"] for row in await Rows(target).all(unindexed)} == ended != set()  # its index is made anew
    assert all(not one.violations for one in await check_store(target, sound.data))


async def test_a_copy_that_is_cut_off_anywhere_goes_on_and_ends_equal(
    sound: Sound, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PAGE_ROWS", 7)
    expected = await content(sound.store)
    url = f"sqlite+aiosqlite:///{tmp_path / 'cut' / 'hone.db'}"
    for events in (0, 1, 5, 9, 2, 14, 3):  # each go a little further, from where the last was cut
        target = await open_target(url)
        with pytest.raises(Cut):
            await copy_store(sound.store, target, cut_after(events))
        with pytest.raises(SchemaMismatch, match="unfinished copy"):
            await bootstrap.check_schema(target)
        await target.close()
    target = await open_target(url)
    done = await copy_store(sound.store, target)
    assert (done.resumed, done.anew) == (True, False)
    assert await content(target) == expected
    await target.close()


async def test_what_changed_between_two_goes_is_copied_anew(sound: Sound, target: Store) -> None:
    with pytest.raises(Cut):
        await copy_store(sound.store, target, cut_after(20))
    async with sound.store.write() as conn:
        await conn.execute(update(projects).values(deletions=77))
    done = await copy_store(sound.store, target)
    assert (done.resumed, done.anew) == (True, True)
    assert await content(target) == await content(sound.store)


@pytest.mark.sqlite_only("another program writes into the file")
async def test_a_source_that_changes_meanwhile_is_no_copy(sound: Sound, target: Store) -> None:
    def change(news: CopyProgress) -> None:
        if news.doing == "copy" and news.table == TABLES[-1].name:
            with contextlib.closing(sqlite3.connect(str(sound.store.file))) as another, another:
                another.execute("update groups set tries = tries + 1")

    with pytest.raises(StoreError, match="groups differs"):
        await copy_store(sound.store, target, change)
    with pytest.raises(SchemaMismatch, match="unfinished copy"):
        await bootstrap.check_schema(target)
    assert (await copy_store(sound.store, target)).anew


async def test_a_store_in_use_is_not_copied(sound: Sound, target: Store) -> None:
    lease = await leases.acquire_lease(Project(sound.store, PROJECT), "trainer:helpdesk", "elsewhere:1:ab", 60)
    assert lease is not None
    with pytest.raises(Conflict, match="trainer:helpdesk"):
        await copy_store(sound.store, target)
    await leases.release_lease(sound.store, lease)
    assert (await copy_store(sound.store, target)).rows


async def test_only_an_empty_database_is_copied_into(sound: Sound, target: Store, tmp_path: Path) -> None:
    await copy_store(sound.store, target)
    with pytest.raises(Conflict, match="is a store already"):
        await copy_store(sound.store, target)
    other = await open_target(f"sqlite+aiosqlite:///{tmp_path / 'other.db'}")
    async with other.write() as conn:
        await conn.exec_driver_sql("create table mine (id integer)")
    with pytest.raises(Conflict, match="has a table 'mine'"):
        await copy_store(sound.store, other)
    await other.close()


async def test_an_unfinished_copy_of_another_store_is_left_alone(sound: Sound, target: Store) -> None:
    with pytest.raises(Cut):
        await copy_store(sound.store, target, cut_after(3))
    async with sound.store.write() as conn:
        await conn.execute(update(projects).values(node_key=b"another store's"))
    with pytest.raises(Conflict, match="unfinished copy of another store"):
        await copy_store(sound.store, target)


@pytest.mark.parametrize(
    "url", ["mysql://me:secret@host/db", "postgresql://me:secret@host/db", "sqlite+aiosqlite://", "me:secret@host"]
)
async def test_other_urls_are_refused_and_no_password_is_told(url: str) -> None:
    with pytest.raises(StoreError) as refused:
        await open_target(url)
    assert "postgresql+asyncpg://USER@HOST/DATABASE" in str(refused.value)
    assert "secret" not in str(refused.value)


async def test_a_folder_that_cannot_be_made_for_a_copy_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match=r"cannot be copied to .*file/hone\.db: .*Not a directory|File exists"):
        await open_target(f"sqlite+aiosqlite:///{tmp_path / 'file' / 'hone.db'}")


async def test_pages_end_at_rows_and_at_bytes(sound: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    for table in TABLES:
        for name, bound in (("PAGE_ROWS", 3), ("PAGE_BYTES", 1)):
            with monkeypatch.context() as patch:
                patch.setattr(tables, name, bound)
                patch.setattr(tables, "_AT_ONCE", 2)
                cut = [page async for page in tables.iterate_pages(sound.store, table)]
            async with sound.store.read() as conn:
                keys = {tuple(row) for row in await conn.execute(select(*table.primary_key))}
            assert all(len(page) <= 3 for page in cut)
            assert sum(map(len, cut)) == len(keys)
            assert {tables.primary_key(table, row) for page in cut for row in page} == keys


async def test_a_store_goes_to_postgresql_and_comes_back(sound: Sound, target: Store, there: Store) -> None:
    async with sound.store.write() as conn:
        await conn.execute(
            update(trajectories).values(tags={"float": 1e-7, "ä": [True, None, 2**70, "\x00"], "whole": 1.0})
        )
        odd = {"id": b"\x00\xff", "project_id": PROJECT, "depth": 0, "role": "a\x00b", "message": {"content": "\x00"}}
        await conn.execute(insert(nodes), [odd])
    with pytest.raises(Cut):
        await copy_store(sound.store, there, cut_after(12))
    done = await copy_store(sound.store, there)
    assert done.resumed
    for table in TABLES:
        assert await digest_table(there, table) == await digest_table(sound.store, table)
    violations = [v for one in await check_store(there, sound.data) for v in one.violations]
    assert [v.id for v in violations] == [b"\x00\xff".hex()]  # the odd node is nobody's, in both
    newest = max(entry.id for entry in await ledger.latest_entries(Project(there, PROJECT)))
    async with there.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "call", "call_1", "test")])
    assert (await ledger.latest_entries(Project(there, PROJECT)))[0].id == newest + 1
    await copy_store(there, target)
    assert {k: v for k, v in (await content(target)).items() if k != "nodes"} == {
        k: v for k, v in (await content(there)).items() if k != "nodes"
    }
    for table in TABLES:
        assert await digest_table(target, table) == await digest_table(there, table)


@pytest.mark.sqlite_only("a store that keeps what PostgreSQL does not")
async def test_numbers_that_are_no_json_go_to_postgresql_too(sound: Sound, there: Store) -> None:
    async with sound.store.write() as conn:  # as an earlier Hone wrote them
        odd = '{"kl": Infinity, "least": [-Infinity], "said": "NaN\\\\", "mean": NaN}'
        await conn.exec_driver_sql("update trajectories set tags = ?", (odd,))
    await copy_store(sound.store, there)
    tags = {"kl": math.inf, "least": [-math.inf], "said": "NaN\\", "mean": None}
    assert {str(row["tags"]) for row in await Rows(there).all(trajectories)} == {str(tags)}


@pytest.mark.sqlite_only("a store that keeps what PostgreSQL does not")
@pytest.mark.parametrize("odd", ["tries = 99999999999", "external_id = hex(randomblob(9000))"])
async def test_a_row_that_postgresql_does_not_keep_is_named_by_its_table(sound: Sound, there: Store, odd: str) -> None:
    async with sound.store.write() as conn:
        before = (await conn.exec_driver_sql("select id, tries, external_id from groups")).first()
        assert before is not None
        await conn.exec_driver_sql(f"update groups set {odd} where id = ?", (before.id,))
    with pytest.raises(StoreError, match="PostgreSQL rejected a row of the table groups: ") as refused:
        await copy_store(sound.store, there)
    assert not isinstance(refused.value, StoreUnavailable)
    async with sound.store.write() as conn:
        mended = update(groups).values(tries=before.tries, external_id=before.external_id)
        await conn.execute(mended.where(groups.c.id == before.id))
    assert (await copy_store(sound.store, there)).resumed


async def test_a_copy_that_is_cut_off_in_the_middle_of_a_page_goes_on_when_started_again(
    sound: Sound, there: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "PAGE_ROWS", 7)
    copy_rows, written = postgresql.copy_rows, count(1)

    async def cut(*page: Any) -> None:
        if next(written) % 5 == 0:
            await asyncio.to_thread(postgres.cut, "copied")
        await copy_rows(*page)

    monkeypatch.setattr(postgresql, "copy_rows", cut)
    for _ in range(2):
        with pytest.raises(StoreUnavailable) as said:
            await copy_store(sound.store, there)
        assert "while connecting" not in str(said.value)
    monkeypatch.setattr(postgresql, "copy_rows", copy_rows)
    assert (await copy_store(sound.store, there)).resumed
    assert await content(there) == await content(sound.store)


async def test_what_changed_between_two_goes_is_copied_anew_into_postgresql(sound: Sound, there: Store) -> None:
    with pytest.raises(Cut):
        await copy_store(sound.store, there, cut_after(20))
    async with sound.store.write() as conn:
        await conn.execute(update(projects).values(deletions=77))
    done = await copy_store(sound.store, there)
    assert (done.resumed, done.anew) == (True, True)
    assert await content(there) == await content(sound.store)


def test_the_ledger_alone_numbers_its_rows() -> None:
    assert [table.name for table in TABLES if table.autoincrement_column is not None] == ["ledger"]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "hone.db"
    with contextlib.closing(sqlite3.connect(path)) as made, made:
        made.execute("PRAGMA journal_mode=WAL")
        made.execute("create table t (id integer primary key, said text)")
        made.executemany("insert into t (said) values (?)", [("x" * 3000,)] * 300)
    return path


def ids(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path)) as read:
        return [row[0] for row in read.execute("select id from t")]


def test_a_backup_is_the_store_at_one_moment_though_others_write(
    source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store_copy, "PAGES", 10)
    steps = 0
    with contextlib.closing(sqlite3.connect(source, isolation_level=None)) as writer:

        def write(done: int, pages: int) -> None:
            nonlocal steps
            steps += 1
            writer.execute("insert into t (said) values ('later')")
            writer.execute("update t set said = 'changed' where id = 1")

        done = back_up(source, tmp_path / "kept.db", write)
    assert steps > 10  # each of them a commit between two steps: none made the copy begin again
    assert ids(done.file) == list(range(1, 301))
    assert done.size_bytes == (tmp_path / "kept.db").stat().st_size
    assert len(ids(source)) == 300 + steps


def test_a_backup_is_its_owners_alone_and_leaves_nothing_else(source: Path, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    done = back_up(source, tmp_path / "out" / "kept.db")
    assert stat.S_IMODE(done.file.stat().st_mode) == 0o600
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["kept.db"]


def test_no_file_is_overwritten_also_one_that_comes_meanwhile(source: Path, tmp_path: Path) -> None:
    kept = tmp_path / "kept.db"
    kept.write_text("mine")
    with pytest.raises(StoreError, match="overwrites nothing"):
        back_up(source, kept)
    later = tmp_path / "later.db"

    def come(done: int, pages: int) -> None:
        later.write_text("theirs")

    with pytest.raises(StoreError, match="cannot be backed up"):
        back_up(source, later, come)
    assert (kept.read_text(), later.read_text()) == ("mine", "theirs")


def test_a_damaged_store_gives_no_backup(source: Path, tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(source)) as made:
        made.execute("create index said on t (said)")
        made.commit()
        made.execute("PRAGMA writable_schema=ON")
        made.execute("update sqlite_master set sql = 'create index said on t (id)' where name = 'said'")
        made.commit()
    with pytest.raises(StoreError, match="failed its integrity check"):
        back_up(source, tmp_path / "kept.db")
    assert not list(tmp_path.glob("*kept.db*"))


def test_where_there_is_no_folder_or_no_store_it_says_so(source: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="No such file or directory"):
        back_up(source, tmp_path / "absent" / "kept.db")
    with pytest.raises(StoreError, match="unable to open database file"):
        back_up(tmp_path / "absent.db", tmp_path / "kept.db")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("postgresql+asyncpg://me:secret@db.example:5433/hone", "postgresql://me@db.example:5433/hone"),
        ("postgresql+asyncpg://me:secret@/hone?host=/run/pg", "'postgresql://me@/hone?host=/run/pg'"),
        ("postgresql+asyncpg://me@db/hone?ssl=verify-full", "'postgresql://me@db/hone?sslmode=verify-full'"),
    ],
)
def test_postgresql_has_a_command_of_its_own_without_the_password(url: str, address: str) -> None:
    told = backup_command(make_url(url), Path("my backup"))
    assert told == f"pg_dump --format=custom --file='my backup' {address}"
