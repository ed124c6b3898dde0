"""The store opens with the right schema, migrated by one process at a time, or not at all."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import json
import os
import sqlite3
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, create_engine, text

from recorder.errors import SchemaMismatch, StoreError
from recorder.settings import RecorderSettings
from recorder.store import bootstrap
from recorder.store.schema import metadata, projects
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow

SETTINGS = RecorderSettings()


def alembics() -> Config:
    config = Config()
    config.set_main_option("script_location", str(Path(bootstrap.__file__).parent / "migrations"))
    return config


def make_old(path: Path, revision: str) -> None:
    """A store as an earlier Hone made it, without a row."""
    engine = create_engine(f"sqlite:///{path}")
    config = alembics()
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, revision)
    engine.dispose()


@pytest.fixture(scope="module")
def migrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store of the first revision that was opened by today's program."""
    folder = tmp_path_factory.mktemp("migrated")
    make_old(folder / "hone.db", bootstrap.REVISIONS[0])

    async def upgrade() -> None:
        await (await bootstrap.open_store(folder, SETTINGS, migrate=True)).close()

    asyncio.run(upgrade())
    return folder / "hone.db"


def objects(path: Path) -> set[tuple[str, str, str, frozenset[str]]]:
    """Every table, index and trigger of a SQLite file: kind, name, table, and its SQL without white space and quotes,
    constraints in any order. Indexes that SQLite makes for constraints have no SQL."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        found = db.execute("select type, name, tbl_name, coalesce(sql, '') from sqlite_master").fetchall()
    return {(kind, name, table, _said(sql)) for kind, name, table, sql in found}


def _said(sql: str) -> frozenset[str]:
    return frozenset("".join(sql.replace('"', "").split()).removesuffix(")").split(",CONSTRAINT"))


# columns in their order, foreign keys, indexes with what they hold
PRAGMAS = (
    "select * from pragma_table_xinfo(:table)",
    "select * from pragma_foreign_key_list(:table)",
    'select i.name, i."unique", i.origin, i.partial, x.* '
    "from pragma_index_list(:table) i, pragma_index_xinfo(i.name) x",
)


def pragmas(path: Path) -> dict[str, list[list[tuple[object, ...]]]]:
    """What SQLite itself understands of every table: columns in their order with types and defaults, keys, indexes."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {name: [sorted(_read(db, name, of)) for of in PRAGMAS] for name in _tables(db)}


def _read(db: sqlite3.Connection, table: str, query: str) -> list[tuple[object, ...]]:
    # a foreign key's number is the order in which it was declared: nothing depends on it
    drop = 2 if "foreign_key" in query else 0
    return [tuple(map(str, row[drop:])) for row in db.execute(query, {"table": table})]


def _tables(db: sqlite3.Connection) -> list[str]:
    return [name for (name,) in db.execute("select name from sqlite_master where type = 'table' order by name")]


def contents(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """The rows of every table, but for the project's: its key and its hour are its own."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        return {name: db.execute(f"select * from {name}").fetchall() for name in _tables(db) if name != "projects"}


def indexes(path: Path) -> dict[str, list[str]]:
    """Every table's indexes in the order of their making: which of equally good ones SQLite takes hangs on it."""
    with contextlib.closing(sqlite3.connect(path)) as db:
        query = "select name from sqlite_master where type = 'index' and tbl_name = ? order by rowid"
        return {table: [name for (name,) in db.execute(query, (table,))] for table in _tables(db)}


def has_tables(path: Path) -> bool:
    return bool(objects(path))


def test_a_store_that_was_migrated_and_a_new_one_are_the_same(migrated: Path, empty_database: Path) -> None:
    assert objects(migrated) == objects(empty_database)
    assert pragmas(migrated) == pragmas(empty_database)
    assert indexes(migrated) == indexes(empty_database)
    assert contents(migrated) == contents(empty_database)
    assert contents(migrated)["alembic_version"] == [(bootstrap.HEAD,)]


def _is_alembics(name: str | None, kind: str, _parents: object) -> bool:
    """Not the index over what was said: SQLAlchemy has no words for it, and SQLite keeps it in tables of its own."""
    return not (kind == "table" and name is not None and name.startswith("said_words"))


def test_alembic_finds_nothing_to_change(migrated: Path) -> None:
    engine = create_engine(f"sqlite:///{migrated}")
    with engine.connect() as conn:
        context = MigrationContext.configure(conn, opts={"compare_type": True, "include_name": _is_alembics})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


async def test_a_database_with_tables_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "hone.db")) as db:
        db.execute("create table nodes (mine text)")
    before = objects(tmp_path / "hone.db")
    with pytest.raises(StoreError, match="table nodes already exists"):
        await bootstrap.open_store(tmp_path, SETTINGS, migrate=True)
    assert objects(tmp_path / "hone.db") == before


def test_media_of_a_store_from_before_deletion_are_noted(tmp_path: Path) -> None:
    config = alembics()
    blob = b"0123456789abcdef"
    part = {"type": "image_url", "image_url": {"url": "hone-blob:" + blob.hex()}}
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0001")
        conn.execute(text("insert into projects values ('default', x'00', 0)"))
        for id_, content in ((b"a", [part]), (b"b", "it looks like hone-blob:00 and is none")):
            row = {"id": id_, "message": json.dumps({"role": "user", "content": content})}
            columns = "(id, project_id, depth, role, message)"
            conn.execute(text(f"insert into nodes {columns} values (:id, 'default', 0, 'user', :message)"), row)
        command.upgrade(config, "head")
        assert [tuple(row) for row in conn.execute(text("select * from node_blobs"))] == [(b"a", blob)]
        assert conn.execute(text("select deletions from projects")).scalar_one() == 0
    engine.dispose()


def test_what_was_there_before_keys_owned_runs_is_nobodys(tmp_path: Path) -> None:
    config = alembics()
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0004")
        conn.execute(text("insert into projects values ('default', x'00', 0, 0)"))
        key = "(id, project_id, name, hash, hint, scopes, created_at)"
        conn.execute(text(f"insert into keys {key} values ('key_1', 'default', 'ci', 'h', 'hone_', '[]', 0)"))
        group = "(id, project_id, state, opened_at, joined_at, last_call_at)"
        conn.execute(text(f"insert into groups {group} values ('group_1', 'default', 'open', 0, 0, 0)"))
        command.upgrade(config, "head")
        assert [tuple(row) for row in conn.execute(text("select family, replaces from keys"))] == [("key_1", None)]
        assert conn.execute(text("select made_by from groups")).scalar_one() == ""
    engine.dispose()


def test_an_older_ledger_is_held_to_the_line_of_the_live_version(tmp_path: Path) -> None:
    config = alembics()
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0006")
        _versions_of_old(conn)
        command.upgrade(config, "head")
        found = conn.execute(text("select id, state || coalesce(' ' || reason, '') as state from groups"))
        assert {row.id: row.state for row in found} == {
            "g1": "trained",
            "g2": "left_out version_rejected",
            "g3": "tried",
        }
        untrained = conn.execute(text("select object_id from ledger where code = 'untrained'"))
        assert sorted(untrained.scalars()) == ["t2", "t3"]
        runs = conn.execute(text("select step_id, trajectory_id from step_trajectories"))
        assert sorted(map(tuple, runs)) == [("s1", "t1"), ("s2", "t2"), ("s3", "t3")]
    engine.dispose()


def _versions_of_old(conn: Connection) -> None:
    """Version 1 is live, 2 was rejected, 3 is not decided; each was trained on one group, and the ledger says so."""
    conn.execute(text("insert into projects values ('default', x'00', 0, 0)"))
    conn.execute(
        text("insert into aliases (id, project_id, name, base_model, live_version_id, recipe, updated_at) "
             "values ('a', 'default', 'helpdesk', 'base', 'v1', '{}', 0)")
    )  # fmt: skip
    for number, (parent, state) in enumerate(
        [(None, "retired"), ("v0", "live"), ("v0", "rejected"), ("v1", "written")]
    ):
        row = {"id": f"v{number}", "number": number, "parent": parent, "state": state}
        conn.execute(
            text("insert into versions (id, project_id, alias_id, number, parent_id, state, engine_name, metrics, "
                 "created_at, state_at) values (:id, 'default', 'a', :number, :parent, :state, 'x', '{}', 0, 0)"),
            row,
        )  # fmt: skip
    for number in (1, 2, 3):
        ids = {"n": number, "s": f"s{number}", "g": f"g{number}", "t": f"t{number}", "v": f"v{number}"}
        detail = json.dumps({"version": f"helpdesk@{number}"})
        for statement in (
            "insert into steps (id, project_id, alias_id, number, parent_version_id, version_id, state, metrics,"
            " started_at) values (:s, 'default', 'a', :n, 'v0', :v, 'done', '{}', 0)",
            "insert into groups (id, project_id, alias_id, state, opened_at, joined_at, last_call_at)"
            " values (:g, 'default', 'a', 'trained', 0, 0, 0)",
            "insert into step_groups values (:s, :g, 'score')",
            "insert into trajectories (id, project_id, group_id, state, purpose, origin, tags, started_at,"
            " last_call_at, sequence) values (:t, 'default', :g, 'completed', 'train', 'live', '{}', 0, 0, :n)",
        ):
            conn.execute(text(statement), ids)
        entry = "(project_id, object_kind, object_id, code, detail, at)"
        said = "values ('default', 'trajectory', :t, 'trained', :d, 0)"
        conn.execute(text(f"insert into ledger {entry} {said}"), {"t": ids["t"], "d": detail})


def test_groups_that_only_measured_are_measured_and_no_longer_excluded(tmp_path: Path) -> None:
    config = alembics()
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0030")
        _groups_of_old(conn)
        command.upgrade(config, "head")
        found = conn.execute(text("select id, state || coalesce(' ' || reason, '') as state from groups"))
        assert {row.id: row.state for row in found} == {
            "by-function": "measured measured",
            "alone": "measured ruler_needs_two",
            "judged": "measured",
            "empty": "measured measured",
            "waits": "ready",
            "for-training": "left_out too_few",
            "scored": "scored",
            "mixed": "left_out too_old",
        }
        codes = conn.execute(text("select object_id || ' ' || code from ledger order by id")).scalars()
        assert list(codes) == [
            "by-function measured",
            "t-by-function measured",
            "alone measured",
            "t-alone measured",
            "t-alone errored",
            "empty measured",
            "for-training too_few",
            "t-for-training too_few",
            "mixed too_old",
            "t-mixed too_old",
        ]
    engine.dispose()


def _groups_of_old(conn: Connection) -> None:
    """Groups by name, each with its state, its reason, the purposes of its members and codes of the first of them."""
    conn.execute(text("insert into projects values ('default', x'00', 0, 0)"))
    for name, state, reason, purposes, codes in (
        ("by-function", "left_out", "measured", ["eval"], ["measured"]),
        ("alone", "left_out", "ruler_needs_two", ["val"], ["ruler_needs_two", "errored"]),
        ("judged", "scored", None, ["val", "val"], []),
        ("empty", "left_out", "measured", [], []),
        ("waits", "ready", None, ["val"], []),
        ("for-training", "left_out", "too_few", ["train"], ["too_few"]),
        ("scored", "scored", None, ["train", "train"], []),
        ("mixed", "left_out", "too_old", ["train", "val"], ["too_old"]),
    ):
        conn.execute(
            text("insert into groups (id, project_id, state, reason, opened_at, joined_at, last_call_at, sequence)"
                 " values (:id, 'default', :state, :reason, 0, 0, 0, 0)"),
            {"id": name, "state": state, "reason": reason},
        )  # fmt: skip
        for number, purpose in enumerate(purposes):
            conn.execute(
                text("insert into trajectories (id, project_id, group_id, state, purpose, origin, tags, started_at,"
                     " last_call_at, sequence) values (:id, 'default', :group, 'completed', :purpose, 'live', '{}', 0,"
                     " 0, 0)"),
                {"id": f"t-{name}" if number == 0 else f"t{number}-{name}", "group": name, "purpose": purpose},
            )  # fmt: skip
        rows = [("group", name, reason)] if state == "left_out" else []
        rows += [("trajectory", f"t-{name}", code) for code in codes]
        for kind, object_id, code in rows:
            conn.execute(
                text("insert into ledger (project_id, object_kind, object_id, code, at)"
                     " values ('default', :kind, :id, :code, 0)"),
                {"kind": kind, "id": object_id, "code": code},
            )  # fmt: skip


def test_what_is_recorded_already_waits_to_be_indexed(tmp_path: Path) -> None:
    config = alembics()
    engine = create_engine(f"sqlite:///{tmp_path / 'old.db'}")
    with engine.begin() as conn:
        config.attributes["connection"] = conn
        command.upgrade(config, "0015")
        conn.execute(text("insert into projects values ('default', x'00', 0, 0)"))
        conn.execute(
            text("insert into trajectories (id, project_id, state, purpose, origin, tags, started_at, last_call_at) "
                 "values ('t', 'default', 'open', 'train', 'live', '{}', 0, 0)")
        )  # fmt: skip
        for id_, state in (("c1", "complete"), ("c2", "errored"), ("c3", "open")):
            conn.execute(
                text("insert into calls (id, project_id, trajectory_id, model, dialect, endpoint, stream, state, "
                     "turn_kind, attribution_source, attribution_confidence, sampling, started_at) values "
                     "(:id, 'default', 't', 'm', 'chat', '/v1', 0, :state, 'main', 'path', 'stated', '{}', 0)"),
                {"id": id_, "state": state},
            )  # fmt: skip
        command.upgrade(config, "head")
        waiting = conn.execute(text("select project_id, call_id from unindexed order by call_id"))
        assert list(map(tuple, waiting)) == [("default", "c1"), ("default", "c2")]  # what is open waits when it ended
        uncounted = conn.execute(text("select call_id, counted_at from counted_calls order by call_id"))
        assert list(map(tuple, uncounted)) == [("c1", None), ("c2", None)]
    engine.dispose()


async def test_the_known_revisions_are_those_of_the_files() -> None:
    script = ScriptDirectory(str(Path(bootstrap.__file__).parent / "migrations"))
    assert tuple(r.revision for r in script.walk_revisions())[::-1] == bootstrap.REVISIONS
    assert script.get_current_head() == bootstrap.HEAD


async def test_the_data_folder_is_its_owners_alone(tmp_path: Path) -> None:
    store = await bootstrap.open_store(tmp_path / "deep" / "data", SETTINGS, migrate=True)
    await store.close()
    assert stat.S_IMODE((tmp_path / "deep" / "data").stat().st_mode) == 0o700
    assert stat.S_IMODE((tmp_path / "deep" / "data" / "hone.db.migrate-lock").stat().st_mode) == 0o600


async def test_opening_again_keeps_the_projects_key(tmp_path: Path) -> None:
    keys = []
    for migrating in (True, False):
        store = await bootstrap.open_store(tmp_path, SETTINGS, migrate=migrating)
        keys.append((await Rows(store).get(projects, "default"))["node_key"])
        await store.close()
    assert keys[0] == keys[1]
    assert len(keys[0]) == 32


async def test_a_reader_refuses_a_folder_without_a_store_and_makes_none(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store in .*`hone db upgrade --data"):
        await bootstrap.open_store(tmp_path / "empty", SETTINGS, migrate=False)
    assert not (tmp_path / "empty").exists()


async def test_a_reader_refuses_an_older_schema_and_says_what_to_do(tmp_path: Path) -> None:
    sqlite3.connect(tmp_path / "hone.db").close()
    (tmp_path / "hone.db").touch()
    with pytest.raises(SchemaMismatch, match=r"has schema none.*run `hone db upgrade`"):
        await bootstrap.open_store(tmp_path, SETTINGS, migrate=False)


@pytest.mark.parametrize("migrating", [True, False])
async def test_nobody_touches_a_newer_schema(tmp_path: Path, empty_database: Path, migrating: bool) -> None:
    (tmp_path / "hone.db").write_bytes(empty_database.read_bytes())
    store = await bootstrap.open_store(tmp_path, SETTINGS, migrate=False)
    async with store.write() as conn:
        await conn.execute(text("update alembic_version set version_num = '9999'"))
    await store.close()
    with pytest.raises(SchemaMismatch, match="a newer Hone wrote it"):
        await bootstrap.open_store(tmp_path, SETTINGS, migrate=migrating)


async def test_a_migration_waits_for_the_one_that_runs(tmp_path: Path) -> None:
    handle = os.open(tmp_path / "hone.db.migrate-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    opening = asyncio.create_task(bootstrap.open_store(tmp_path, SETTINGS, migrate=True))
    done, _ = await asyncio.wait([opening], timeout=0.3)
    assert not done
    assert not has_tables(tmp_path / "hone.db")
    os.close(handle)
    store = await opening
    await store.close()
    assert has_tables(tmp_path / "hone.db")


async def test_a_migration_gives_up_on_one_that_never_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bootstrap, "LOCK_TIMEOUT_S", 0.0)
    handle = os.open(tmp_path / "hone.db.migrate-lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(handle, fcntl.LOCK_EX)
    try:
        with pytest.raises(StoreError, match=r"another process has been migrating .* Wait for it"):
            await bootstrap.open_store(tmp_path, SETTINGS, migrate=True)
    finally:
        os.close(handle)


OPEN = """
import asyncio, sys
from pathlib import Path
from recorder.store import bootstrap
from recorder.settings import RecorderSettings
async def main():
    store = await bootstrap.open_store(Path(sys.argv[1]), RecorderSettings(), migrate=True)
    await store.close()
asyncio.run(main())
"""


def test_processes_that_start_at_once_on_a_new_folder_all_open_it(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", OPEN, str(tmp_path / "data")]
    starting = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(4)]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in starting]
    assert ends == [("", 0)] * 4


async def test_a_folder_that_cannot_be_made_is_an_error_that_says_so(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(StoreError, match="Choose another with --data"):
        await bootstrap.open_store(tmp_path / "file" / "data", SETTINGS, migrate=True)


def test_making_and_opening_a_store_do_not_import_alembic(tmp_path: Path) -> None:
    again = OPEN.replace("migrate=True", "migrate=False")
    subprocess.run(
        [sys.executable, "-c", f"{OPEN}{again}assert 'alembic' not in sys.modules", str(tmp_path)], check=True
    )


# --- a store that cannot be opened


@pytest.mark.parametrize("damage", ["garbage", "truncated", "folder"])
async def test_a_damaged_store_is_one_line(tmp_path: Path, empty_database: Path, damage: str) -> None:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    file = data / "hone.db"
    if damage == "folder":
        file.mkdir()
    else:
        whole = empty_database.read_bytes()
        file.write_bytes(b"no database at all " * 1000 if damage == "garbage" else whole[: len(whole) // 2])
    for migrates in (True, False):
        with pytest.raises(StoreError, match=r"hone\.db cannot be opened: .*") as caught:
            await bootstrap.open_store(data, SETTINGS, migrate=migrates)
        assert "\n" not in str(caught.value)
        assert "choose another" in str(caught.value) or damage == "folder"


FULL = """
import resource, signal, sys
sys.dont_write_bytecode = True  # a cached module would be cut off as well, and stay so
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192))
sys.argv = ["hone", "db", "upgrade", "--data", sys.argv[1]]
from proxy.cli import main
main()
"""


def test_a_disk_without_room_is_one_line(tmp_path: Path) -> None:
    """A limit on the size of files is met as a full disk is: in the middle of a write."""
    ran = subprocess.run([sys.executable, "-c", FULL, str(tmp_path / "data")], capture_output=True, text=True)
    assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (1, "", 1), ran.stderr
    assert ran.stderr.startswith("hone: the store ")


async def test_a_folder_that_can_only_be_read_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> None:  # root, as tests may run, writes everywhere
        raise OSError(30, "Read-only file system", str(path))

    monkeypatch.setattr("recorder.store.bootstrap.file_modes.open_log", refuse)
    with pytest.raises(StoreError, match=r"cannot be opened: .*Read-only file system.* choose another with --data"):
        await bootstrap.open_store(tmp_path / "data", SETTINGS, migrate=True)
