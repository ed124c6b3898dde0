"""`hone status` says what runs, `hone config` where each setting comes from; neither shows what it must not."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recorder.registry.replicas import report_replica
from recorder.registry.versions import mark
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.migrate import open_store
from tests.proxy.commands.gated import make_versions
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")


def test_config_says_where_values_come_from(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "hone.toml").write_text("project = 'p'\n[engine]\napi_key = 'very-secret'\n")
    monkeypatch.setenv("HONE_PROXY__PORT", "9")
    code, out, _ = hone("config")
    assert code == 0
    assert "very-secret" not in out
    lines = {line.split()[0]: line for line in out.splitlines()}
    assert lines["project"].endswith("<- hone.toml")
    assert lines["proxy.port"].endswith("9  <- env HONE_PROXY__PORT")
    as_json = json.loads(hone("config", "--json")[1])
    assert as_json["file"] == "hone.toml"
    assert as_json["settings"]["proxy.port"] == {"value": 9, "from": "env HONE_PROXY__PORT"}
    assert as_json["settings"]["engine.api_key"]["value"] == "********"


def test_what_an_engine_said_is_shown_as_it_is_and_rules_no_terminal(tmp_path: Path) -> None:
    [version] = make_versions(tmp_path, 1)

    async def reject() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        await mark(store, version.id, VersionState.REJECTED, "load: no [/path] in [bold]x \x1b]0;owned\x07")
        await report_replica(store, "default", "http://e:1", state="down", loaded=[], detail="said [/INST] \x1b[2J")
        await store.close()

    asyncio.run(reject())
    told = hone("versions", "--data", str(tmp_path))[1] + hone("status", "--data", str(tmp_path))[1]
    assert "load: no [/path] in [bold]x ␛]0;owned␇" in told
    assert "said [/INST] ␛[2J" in told
    assert "\x1b" not in hone("promote", "\x1b[31m9", "--data", str(tmp_path))[2]


def test_status_says_what_is_in_service(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    found = json.loads(hone("status", "--json", "--data", str(tmp_path))[1])
    assert found["run"] is None
    assert found["aliases"][0]["live"] == "helpdesk@0"
    assert "does not run" in hone("status", "--data", str(tmp_path))[1]
