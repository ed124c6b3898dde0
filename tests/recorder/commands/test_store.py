"""Keys, the schema and the check of the store on the command line.

Copying and backing up on the command line: what is said afterwards, and what is never shown.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from recorder.maintenance.integrity.invariants import CHECKS
from recorder.settings import RecorderSettings
from recorder.store import bootstrap
from recorder.store.database import Store, sqlite_url
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows
from tests.stores import Stores


def test_a_key_is_printed_once_and_can_be_revoked(hone: Hone) -> None:
    made = hone("keys", "create", "ci", "--scope", "read", "--scope", "feedback-all", "--days", "30")
    secret = made.stdout.strip()
    assert secret.startswith("hone_")
    assert "\n" not in secret
    assert "not shown again" in made.stderr
    [listed] = hone.json("keys", "list")
    assert (listed["name"], listed["scopes"], listed["revoked_at"]) == ("ci", ["feedback-all", "read"], None)
    assert secret not in hone("keys", "list").stdout
    assert hone("keys", "revoke", "ci").stdout == f"Key {listed['id']} is revoked.\n"
    assert "revoked" in hone("keys", "list").stdout
    assert "no valid key 'ci'" in hone("keys", "revoke", "ci", fails=True).stderr
    assert hone.json("keys", "create", "web")["scopes"] == ["infer"]


def test_a_key_is_taken_from_a_file_and_not_printed(hone: Hone, tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("hone_" + "5e" * 16 + "\n")
    made = hone("keys", "create", "agents", "--secret-file", str(file))
    assert hone("keys", "create", "agents", "--secret-file", str(file)).stdout == made.stdout
    [listed] = hone.json("keys", "list")
    assert made.stdout == f"Key {listed['id']} (infer) exists.\n"
    file.write_text("hunter2")
    refused = hone("keys", "create", "agents", "--secret-file", str(file), fails=True)
    assert "at least 32 random characters" in refused.output
    assert "hunter2" not in refused.output


def test_a_key_is_rotated_and_the_new_one_printed_once(hone: Hone) -> None:
    first = hone.json("keys", "create", "ci", "--scope", "read")
    made = hone("keys", "rotate", "ci")
    assert made.stdout.startswith("hone_")
    assert f"replaces {first['id']}, which has ended" in made.stderr
    old, new = hone.json("keys", "list")
    assert (old["revoked_at"] is not None, new["replaces"], new["scopes"]) == (True, first["id"], ["read"])
    later = hone("keys", "rotate", new["id"], "--grace", "1.5")
    assert f"replaces {new['id']}, which stays valid for 1.5 h" in later.stderr
    assert hone.json("keys", "rotate", hone.json("keys", "list")[-1]["id"])["key"].startswith("hone_")
    hone("keys", "rotate", "nobody", fails=True)


def test_an_unknown_scope_is_met_with_the_known(hone: Hone) -> None:
    hone("keys", "create", "ci", "--scope", "root", fails=True)
    assert hone.json("keys", "list") == []


@pytest.mark.sqlite_only("the file of a new data folder")
def test_upgrading_makes_an_empty_store(tmp_path: Path) -> None:
    new = Hone(tmp_path / "new", RecorderSettings())
    assert "there is no store" in new("groups", fails=True).stderr
    assert new.json("db", "upgrade")["schema"] == bootstrap.HEAD
    assert f"has schema {bootstrap.HEAD}" in new("db", "upgrade").stdout
    assert new.json("groups") == []


def test_a_sound_store_passes_every_rule(hone: Hone) -> None:
    done = hone("db", "check")
    assert done.stdout.splitlines()[-1] == f"{len(CHECKS)} rules, no violations."
    assert [one["violations"] for one in hone.json("db", "check")] == [[]] * len(CHECKS)


def test_a_broken_rule_is_named_with_what_to_do_and_fails(hone: Hone) -> None:
    hone.do(lambda store: Rows(store).group(id="grp_x", state="judging"))
    shown = hone("db", "check", fails=True)
    assert shown.exit_code == 1
    assert "group grp_x: it is judging and has no holder. To do: start `hone serve`" in shown.stdout
    assert shown.stdout.splitlines()[-1] == f"{len(CHECKS)} rules, 1 violations"
    told = json.loads(hone("db", "check", "--json", fails=True).stdout)
    [broken] = [one for one in told if one["violations"]]
    assert (broken["name"], broken["violations"][0]["id"]) == ("claimed_groups_have_a_holder", "grp_x")


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
