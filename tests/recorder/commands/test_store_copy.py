"""Copying and backing up on the command line: what is said afterwards, and what is never shown."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest

from recorder.store.database import Store, sqlite_url
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows
from tests.stores import Stores


def test_a_copy_is_used_by_what_it_says_to_write(hone: Hone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hone.do(lambda store: Rows(store).group(id="grp_x"))
    (hone.data / "adapters").mkdir()
    done = hone("db", "copy", "--to", f"sqlite+aiosqlite:///{tmp_path / 'new' / 'hone.db'}")
    assert "every table is equal in both stores" in done.stdout
    assert f"Not copied, because it is not part of the database: adapters in {hone.data}" in done.stdout
    told = done.stdout[done.stdout.index("[recorder]") : done.stdout.index("Not copied")]
    (tmp_path / "hone.toml").write_text(told)
    assert tomllib.loads(told)["recorder"]["url"].endswith("/new/hone.db")
    hone.do(lambda store: Rows(store).group(id="grp_later"))  # in the store that was copied
    monkeypatch.delenv("HONE_RECORDER__URL", raising=False)
    assert [group["id"] for group in hone.json("groups")] == ["grp_x"]


def test_a_copy_as_json(hone: Hone, tmp_path: Path) -> None:
    done = hone.json("db", "copy", "--to", f"sqlite+aiosqlite:///{tmp_path / 'copy.db'}")
    assert (done["resumed"], done["beside"]) == (False, [])
    assert {"name": "groups", "rows": 0, "digest": "0" * 32} in done["tables"]
    assert done["rows"] == sum(table["rows"] for table in done["tables"]) > 0


def test_a_copy_into_a_store_is_refused(hone: Hone, tmp_path: Path, stores: Stores) -> None:
    with stores.made(tmp_path / "other") as settings:
        url = settings.url or sqlite_url(tmp_path / "other")
        refused = hone("db", "copy", "--to", url, fails=True)
    assert "is a store already" in refused.stderr


def test_a_database_that_is_not_there_is_told_without_the_password(hone: Hone) -> None:
    refused = hone("db", "copy", "--to", "postgresql+asyncpg://me:secret@127.0.0.1:1/hone", fails=True)
    assert "postgresql+asyncpg://me:***@127.0.0.1:1/hone cannot be opened" in refused.stderr
    assert "Start PostgreSQL, or correct the URL." in refused.stderr
    assert "secret" not in refused.output


@pytest.mark.sqlite_only("for PostgreSQL it says what to run")
def test_a_backup_takes_the_stores_place(hone: Hone, tmp_path: Path) -> None:
    hone.do(lambda store: Rows(store).group(id="grp_x"))
    (hone.data / "checkpoints").mkdir()
    done = hone("db", "backup", str(tmp_path / "kept.db"))
    assert "and checked" in done.stdout
    assert "Not in the backup: checkpoints" in done.stdout
    assert "overwrites nothing" in hone("db", "backup", str(tmp_path / "kept.db"), fails=True).stderr
    for left in hone.data.glob("hone.db*"):
        left.unlink()
    (tmp_path / "kept.db").rename(hone.data / "hone.db")
    assert [group["id"] for group in hone.json("groups")] == ["grp_x"]


@pytest.mark.sqlite_only("for PostgreSQL it says what to run")
def test_a_store_of_any_schema_is_backed_up(hone: Hone, tmp_path: Path) -> None:
    async def age(store: Store) -> None:
        async with store.write() as conn:
            await conn.exec_driver_sql("update alembic_version set version_num = '9999'")

    hone.do(age)
    assert hone.json("db", "backup", str(tmp_path / "kept.db"))["size_bytes"] > 0


def test_for_postgresql_it_says_what_to_run(hone: Hone, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HONE_RECORDER__URL", "postgresql+asyncpg://me:secret@db/hone")
    refused = hone("db", "backup", str(tmp_path / "kept.db"), fails=True)
    assert "pg_dump --format=custom" in refused.stderr
    assert "secret" not in refused.output
    assert not (tmp_path / "kept.db").exists()
