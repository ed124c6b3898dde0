"""The `hone` command: light at the top, clear when something is wrong."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path

import pytest

from proxy.commands.context import Context
from proxy.settings.hone import HoneSettings
from recorder.registry.aliases import ensure_alias, get_alias, set_canary
from recorder.registry.replicas import report_replica
from recorder.registry.versions import VersionView, allocate, get_version, mark
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.migrate import open_store
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")

ROOT = Path(__file__).parents[2]
HEAVY = ("litellm", "torch", "vllm", "transformers", "sqlalchemy", "litestar", "pydantic", "rich", "httpx")


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom proxy.cli import cli\n"
        "try:\n    cli(['--help'])\nexcept SystemExit:\n    pass\n"
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=True)
    assert "rollback" in done.stdout
    assert done.stdout.splitlines()[-1] == "[]"


def test_a_misspelt_command_is_met_with_the_nearest() -> None:
    code, _, err = hone("versoins")
    assert code == 2
    assert "Did you mean 'versions'?" in err


def test_an_unknown_key_is_one_line_and_exit_code_2(tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text("[proxy]\nprot = 1\n")
    code, _, err = hone("config")
    assert code == 2
    assert err.strip() == "hone: hone.toml: unknown key 'proxy.prot'. Did you mean 'proxy.port'?"


def test_debug_shows_the_traceback(tmp_path: Path) -> None:
    (tmp_path / "hone.toml").write_text("[proxy]\nprot = 1\n")
    with pytest.raises(Exception, match="unknown key"):
        hone("config", "--debug")


def test_a_missing_store_is_one_line_and_exit_code_1(tmp_path: Path) -> None:
    code, _, err = hone("versions", "--data", str(tmp_path / "nothing"))
    assert code == 1
    assert err.startswith("hone: ")
    assert "nothing" in err
    assert len(err.strip().splitlines()) == 1


def test_a_bug_is_not_hidden(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_self: Context) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(Context, "loaded", broken)
    with pytest.raises(ZeroDivisionError):
        hone("config")


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


def make_versions(data: Path, count: int) -> list[VersionView]:
    """A store with alias helpdesk and `count` gated versions beside version 0."""

    async def make() -> list[VersionView]:
        store = await open_store(data, RecorderSettings(), migrate=True)
        alias = await ensure_alias(store, "default", "helpdesk", "base", None)
        made = []
        for _ in range(count):
            assert alias.live_version_id is not None
            version = await allocate(store, alias.id, alias.live_version_id)
            for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
                version = await mark(store, version.id, state)
            made.append(version)
        await store.close()
        return made

    return asyncio.run(make())


def test_promote_and_rollback_work_without_a_proxy(tmp_path: Path) -> None:
    make_versions(tmp_path, 2)
    data = ("--data", str(tmp_path))
    assert hone("promote", "1", *data) == (0, "helpdesk@1 is live (helpdesk@0 left)\n", "")
    assert hone("promote", "helpdesk@2", *data)[1] == "helpdesk@2 is live (helpdesk@1 left)\n"
    assert hone("rollback", *data)[1] == "helpdesk@1 is live (helpdesk@2 left)\n"
    moved = json.loads(hone("rollback", "helpdesk", "--json", *data)[1])
    assert moved == {"alias": "helpdesk", "live": "helpdesk@0", "left": "helpdesk@1"}
    code, _, err = hone("rollback", *data)
    assert code == 1
    assert "no earlier version" in err


def test_rollback_takes_a_canary_away_and_leaves_the_live_version(tmp_path: Path) -> None:
    (version,) = make_versions(tmp_path, 1)

    async def begin_canary() -> None:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        await set_canary(store, version.alias_id, version.id, 0.5)
        await store.close()

    async def look() -> tuple[str | None, VersionState]:
        store = await open_store(tmp_path, RecorderSettings(), migrate=False)
        alias = await get_alias(store, "default", "helpdesk")
        state = (await get_version(store, version.id)).state
        await store.close()
        return alias.canary_version_id, state

    asyncio.run(begin_canary())
    assert hone("rollback", "--data", str(tmp_path))[1] == "helpdesk@0 is live (helpdesk@1 left)\n"
    assert asyncio.run(look()) == (None, VersionState.RETIRED)


def test_a_version_that_is_not_there_or_not_fit_is_refused(tmp_path: Path) -> None:
    make_versions(tmp_path, 0)
    code, _, err = hone("promote", "7", "--data", str(tmp_path))
    assert code == 1
    assert "helpdesk@7" in err


def test_versions_lists_names_states_and_the_live_one(tmp_path: Path) -> None:
    make_versions(tmp_path, 1)
    data = ("--data", str(tmp_path))
    rows = json.loads(hone("versions", "--json", *data)[1])
    assert [(r["name"], r["state"], r["live"]) for r in rows] == [
        ("helpdesk@1", "gated", False),
        ("helpdesk@0", "live", True),
    ]
    header, one, base = hone("versions", "helpdesk", *data)[1].splitlines()
    assert header.split() == ["version", "state", "parent", "verified", "since", "reward", "kl", "tokens", "reason"]
    assert one.split()[:3] == ["helpdesk@1", "gated", "helpdesk@0"]
    assert base.split()[:2] == ["helpdesk@0", "live"]


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


def test_engine_print_is_a_command_for_a_shell_without_the_key(tmp_path: Path) -> None:
    code, out, _ = hone("engine", "--print", "--base", "org/a model", "--data", str(tmp_path / "d"))
    assert code == 0
    key = (tmp_path / "d" / "engine.key").read_text()
    assert key not in out
    assert "'org/a model'" in out
    assert f'VLLM_API_KEY="$(cat {tmp_path}/d/engine.key)"' in out
    assert "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True" in out


def test_an_engine_without_a_base_is_refused() -> None:
    code, _, err = hone("engine", "--print")
    assert code == 2
    assert "no base model is named" in err


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["--mcp", "http://127.0.0.1:9/mcp"], "write it as NAME=URL"),
        (["--mcp", "a="], "write it as NAME=URL"),
        (["--mcp", "a=x"], "is no URL"),
        (["--mcp", "a=http://x/mcp", "--mcp", "b=http://x/mcp", "--mcp-prefix", "none"], "with one server only"),
        (["--mcp", "a__b=http://x/mcp"], "is no name for an MCP server"),
    ],
)
def test_serve_refuses_mcp_servers_that_cannot_be(arguments: list[str], why: str) -> None:
    code, out, error = hone("serve", "--engine", "http://127.0.0.1:9", "--model", "m", *arguments)
    assert code != 0
    assert why in error + out


def test_serve_takes_mcp_servers_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[HoneSettings] = []

    async def run(settings: HoneSettings) -> None:
        served.append(settings)

    monkeypatch.setattr("proxy.programs.serve.run", run)
    arguments = ("--mcp", "orders=http://127.0.0.1:9/mcp?a=b", "--mcp-prefix", "none")
    code, _, error = hone("serve", "--engine", "http://127.0.0.1:9", "--model", "m", *arguments)
    assert code == 0, error
    assert {name: one.url for name, one in served[0].mcp.items()} == {"orders": "http://127.0.0.1:9/mcp?a=b"}
    assert served[0].proxy.mcp_prefix == "none"
