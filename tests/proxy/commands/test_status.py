"""`hone status` says what runs, `hone config` where each setting comes from; neither shows what it must not."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import update

from proxy.settings.descriptions import field_descriptions
from proxy.settings.sections import ProxySettings
from recorder.queue import leases
from recorder.queue.claims import claim_one_for_judging
from recorder.queue.judging.scores import NewPart, record_score
from recorder.queue.leases import holder_name
from recorder.registry.alias_moves import rollback, set_live
from recorder.registry.aliases import Holdback, ensure_alias, get_aliases
from recorder.registry.replicas import report_proxy, report_replica
from recorder.registry.versions import mark_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.store.schema import replicas
from tests.proxy.commands.gated import make_versions
from tests.proxy.hone_command import hone
from tests.recorder.rows import Rows

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
    what = field_descriptions(ProxySettings)["port"]
    assert as_json["settings"]["proxy.port"] == {"value": 9, "from": "env HONE_PROXY__PORT", "what": what}
    assert as_json["settings"]["engine.api_key"]["value"] == "********"


def test_config_changes_a_setting_at_run_time_and_undoes_it(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)  # there is a store
    file = tmp_path / "hone.toml"
    file.write_text("[learn]\nsteps_per_hour = 2\n[aliases.helpdesk]\n")
    written = file.read_text()
    data = ("--data", str(tmp_path))
    assert hone("config", "learn.steps_per_hour", "--set", "5", *data)[1].startswith(
        "learn.steps_per_hour  5  <- page\n"
    )
    hone("config", "aliases.helpdesk.promote", "--set", "manual", *data)
    shown = json.loads(hone("config", "--json", *data)[1])["settings"]
    assert (shown["learn.steps_per_hour"]["value"], shown["learn.steps_per_hour"]["from"]) == (5, "page")
    assert (shown["aliases.helpdesk.promote"]["value"], shown["aliases.helpdesk.promote"]["from"]) == ("manual", "page")
    assert hone("config", "learn.steps_per_hour", "--undo", *data)[1].startswith(
        "learn.steps_per_hour  2  <- hone.toml\n"
    )
    for arguments, why in (
        (("learn.steps_per_hour", "--set", "0"), "learn.steps_per_hour: Input should be greater than"),
        (("learn.steps_per_hour", "--undo"), "no change to undo"),
        (("proxy.port", "--set", "9"), "set it in hone.toml"),
        (("--set", "9"), "the KEY that it changes"),
    ):
        code, _, error = hone("config", *arguments, *data)
        assert code != 0
        assert why in error
    assert file.read_text() == written


def test_config_says_what_a_setting_is_in_the_words_of_its_model(tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text("[aliases.helpdesk]\n")
    code, out, _ = hone("config", "proxy.port")
    assert (code, out) == (0, f"proxy.port  8700\n    {field_descriptions(ProxySettings)['port']}\n")
    keys = [line.split()[0] for line in hone("config", "judge.feedback")[1].splitlines() if not line.startswith(" ")]
    assert keys == ["judge.feedback.wait_s"]
    assert "aliases.helpdesk.gate.kl_max" in hone("config", "aliases.helpdesk.gate")[1]


def test_what_an_engine_said_is_shown_as_it_is_and_rules_no_terminal(tmp_path: Path) -> None:
    [version] = make_versions(tmp_path, 1)

    async def reject() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        await mark_version(store, version.id, VersionState.REJECTED, "load: no [/path] in [bold]x \x1b]0;owned\x07")
        await report_replica(
            Project(store, "default"), "http://e:1", state="down", loaded=[], detail="said [/INST] \x1b[2J"
        )
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


def dead_worker() -> str:
    """The name of a holder whose process is gone."""
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    return f"{socket.gethostname()}:{ended.pid}:00"


def test_status_tells_the_dead_from_the_living(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)
    living, dead = holder_name(), dead_worker()

    async def fill() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        await leases.acquire_lease(Project(store, "default"), "judge:a", living, 60)
        await leases.acquire_lease(Project(store, "default"), "trainer:helpdesk", dead, 60)
        for url, owner in (("http://l", living), ("http://d", dead)):
            await report_proxy(Project(store, "default"), owner, url, generations={}, in_flight={})
        await report_replica(Project(store, "default"), "http://e", state="up", loaded=["x"])
        async with store.write() as conn:
            await conn.execute(update(replicas).values(seen_at=replicas.c.seen_at - 300.0))
        await store.close()

    asyncio.run(fill())
    found = json.loads(hone("status", "--json", "--data", str(tmp_path))[1])
    assert {one["name"]: one["alive"] for one in found["workers"]} == {"judge:a": True, "trainer:helpdesk": False}
    assert {one["url"]: one["alive"] for one in found["proxies"]} == {"http://l": True, "http://d": False}
    assert [one["state"] for one in found["engines"]] == ["unknown"]
    assert any("trainer:helpdesk is dead" in alarm for alarm in found["alarms"])
    assert [(one["version"], one["state"]) for one in found["gate"]] == [("helpdesk@1", "gated")]
    told = hone("status", "--data", str(tmp_path))[1]
    assert "no report for 05:0" in told
    assert "alarm" in told


def test_a_killed_hone_is_told_from_a_stopped_one(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    (tmp_path / "run.json").write_text(json.dumps({"pids": {"up": os.getpid()}, "written_at": 1.0, "proxy_url": "u"}))
    found = json.loads(hone("status", "--json", "--data", str(tmp_path))[1])
    assert found["run"] is None
    assert found["alarms"] == ["`hone up` was killed: run.json exists, but its process does not. Start it again."]
    assert "it was killed" in hone("status", "--data", str(tmp_path))[1]


def test_status_tells_what_is_held_back_and_what_was_taken_back_by_its_runs_until_the_next_move(tmp_path: Path) -> None:
    [version] = make_versions(tmp_path, 1)

    async def move(taken_back_by: str | None) -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        held = Holdback(0.1, 3600.0)
        await ensure_alias(Project(store, "default"), "helpdesk", "base", None, held=held)
        if taken_back_by is None:
            await set_live(store, version.alias_id, version.id, why="promote")
        else:
            await rollback(store, version.alias_id, who=taken_back_by, reason="the runs of helpdesk@1 are worse")
        await store.close()

    asyncio.run(move(None))
    assert "live helpdesk@1" in (told := hone("status", "--data", str(tmp_path))[1])
    assert "10% on helpdesk@0, compared for" in told
    assert "retired 10%" in hone("versions", "--data", str(tmp_path))[1]
    asyncio.run(move("controller"))
    found = json.loads(hone("status", "--json", "--data", str(tmp_path))[1])
    assert found["aliases"][0]["watched_for_s"] is None
    [alarm] = found["alarms"]
    assert alarm.startswith("helpdesk@0 is live again since 00:0")
    assert "the runs of helpdesk@1 are worse. `hone versions --moves`" in alarm
    asyncio.run(move(None))
    assert json.loads(hone("status", "--json", "--data", str(tmp_path))[1])["alarms"] == []
    asyncio.run(move("hand"))
    assert json.loads(hone("status", "--json", "--data", str(tmp_path))[1])["alarms"] == []


def test_status_and_versions_tell_the_same_reward_of_what_a_version_sampled(tmp_path: Path) -> None:
    [version] = make_versions(tmp_path, 1)

    async def fill() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        rows = Rows(store)
        of: dict[str, Any] = {"alias_id": version.alias_id, "version_id": version.id}
        for values in ((0.25, 0.5), (0.5, 0.75)):
            await scored(rows, values, **of)
        await scored(rows, (0.0, 0.0), purpose="eval", **of)  # of the gate
        await scored(rows, (1.0, 1.0), **of | {"version_id": version.parent_id})
        await store.close()

    async def scored(rows: Rows, values: tuple[float, float], **of: Any) -> None:
        claim = await claim_one_for_judging(rows.store, await rows.ready_group(2, **of), "judge", 60)
        assert claim is not None
        parts = [NewPart(id_, "reward", v) for id_, v in zip(await rows.members(claim.group_id), values, strict=True)]
        await record_score(rows.store, claim, await rows.judgement(claim, parts=parts, absolute=True))

    asyncio.run(fill())
    data = ("--data", str(tmp_path))
    base, first = json.loads(hone("status", "--json", *data)[1])["rewards"]
    assert (first["version"], first["trajectories"], first["groups"], first["mean"]) == ("helpdesk@1", 4, 2, 0.5)
    assert (base["version"], base["trajectories"], base["mean"]) == ("helpdesk@0", 2, 1.0)
    listed = {one["name"]: one["reward"] for one in json.loads(hone("versions", "--json", *data)[1])}
    assert listed == {"helpdesk@1": first, "helpdesk@0": base}
    assert "reward helpdesk by version 0: 1, 1: 0.5 (0 to 1)" in " ".join(hone("status", *data)[1].split())
    assert "0.5 (0 to 1)" in hone("versions", *data)[1]


def test_status_tells_how_learning_stands(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)

    async def fill() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        rows = Rows(store)
        [alias] = await get_aliases(Project(store, "default"))
        await rows.scored_group(3, alias_id=alias.id, version_id=alias.live_version_id)
        await rows.ready_group(alias_id=alias.id)
        await store.close()

    asyncio.run(fill())
    found = json.loads(hone("status", "--json", "--data", str(tmp_path))[1])
    assert found["groups"] == {"ready": 1, "scored": 1}
    assert found["rewards"] == [
        {"alias": "helpdesk", "version": "helpdesk@0", "trajectories": 3, "groups": 1, "mean": 0.5, "interval": None}
        | {"relative": True}
    ]
    assert found["alarms"] == ["1 group ready and no judge runs: start one with `hone judge`"]
    told = hone("status", "--data", str(tmp_path))[1]
    assert "1 group ready for the judge; 1 group scored" in told
    words = " ".join(told.split())
    assert "reward helpdesk@0, relative to its groups 0.5; do not compare versions by it" in words
    assert "recording Recording waits for the next call: nothing is open." in words
    assert "judging Judging waits for a judge: 1 group is ready and no judge runs." in words
    assert "learning Learning waits for 4 scored groups: 1 is scored, 1 is ready for the judge. helpdesk" in words
    assert [one["code"] for one in found["stages"]] == ["recording", "no_judge", "too_few_groups"]
