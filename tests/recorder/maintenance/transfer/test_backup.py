"""A store's file backed up: whole while somebody writes, private, checked, and never over another file."""

from __future__ import annotations

import contextlib
import sqlite3
import stat
from pathlib import Path

import pytest
from sqlalchemy.engine import make_url

from recorder.errors import StoreError
from recorder.maintenance.transfer import backup
from recorder.maintenance.transfer.backup import back_up, backup_command


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
    monkeypatch.setattr(backup, "PAGES", 10)
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
