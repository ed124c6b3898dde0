"""Keys, the schema and the check of the store on the command line."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from recorder.maintenance.integrity.invariants import CHECKS
from recorder.settings import RecorderSettings
from recorder.store import bootstrap
from tests.recorder.commands.hone import Hone
from tests.recorder.rows import Rows


def test_a_key_is_printed_once_and_can_be_revoked(hone: Hone) -> None:
    made = hone("keys", "create", "ci", "--scope", "read", "--scope", "feedback", "--days", "30")
    secret = made.stdout.strip()
    assert secret.startswith("hone_")
    assert "\n" not in secret
    assert "not shown again" in made.stderr
    [listed] = hone.json("keys", "list")
    assert (listed["name"], listed["scopes"], listed["revoked_at"]) == ("ci", ["feedback", "read"], None)
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
