"""Each MCP server is asked once: one that answers passes; a dead address, another program or no program is wrong."""

from __future__ import annotations

import sys
import time

import pytest
from pydantic import SecretStr

from proxy.doctor import mcp_servers
from proxy.doctor.mcp_servers import check_mcp_servers
from proxy.settings.mcp import McpServerSettings
from recorder.base.findings import FindingLevel
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.scripted_engine import ScriptedEngine


@pytest.mark.parametrize("era", ["both", "handshake"])
async def test_a_server_that_answers_is_fine(era: str) -> None:
    async with served(Everything("one"), era=era) as url:
        [found] = await check_mcp_servers({"one": McpServerSettings(url=url)})
    assert found.verdict is FindingLevel.FINE
    assert url in found.found


async def test_a_dead_port_another_program_and_a_missing_program_are_wrong(engine: ScriptedEngine) -> None:
    servers = {
        "dead": McpServerSettings(url="http://127.0.0.1:9/mcp"),
        "other": McpServerSettings(url=f"{engine.url}/version"),
        "missing": McpServerSettings(command="/no/such/program"),
        "ends": McpServerSettings(command=sys.executable, args=["-c", "pass"]),
    }
    found = await check_mcp_servers(servers)
    assert {one.verdict for one in found} == {FindingLevel.WRONG}
    assert "correct url in [mcp.dead]" in found[0].todo
    assert "correct command in [mcp.missing]" in found[2].todo


async def test_all_are_asked_at_once_and_no_longer_than_the_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_servers, "LIMIT_S", 0.5)
    silent = McpServerSettings(command=sys.executable, args=["-c", "import time; time.sleep(60)"])
    started = time.monotonic()
    found = await check_mcp_servers({"a": silent, "b": silent, "c": silent})
    assert time.monotonic() - started < 8
    assert [one.verdict for one in found] == [FindingLevel.WRONG] * 3
    assert "no answer within" in found[0].found


async def test_offline_asks_nobody_and_secrets_are_never_shown() -> None:
    server = McpServerSettings(url="http://127.0.0.1:9/mcp?api_key=secret", token=SecretStr("also-secret"))
    [skipped] = await check_mcp_servers({"dead": server}, offline=True)
    assert skipped.verdict is FindingLevel.SKIPPED
    [found] = await check_mcp_servers({"dead": server})
    assert "secret" not in found.line()
