"""An MCP server that cannot be called is described in plain words, in the gateway and where scenarios are made."""

from __future__ import annotations

import pytest

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.servers.handshake import greet_server
from proxy.settings.mcp import McpServerSettings
from tests.failing_servers import REASONS, failing, require_plain
from trainer.errors import ToolsUnavailable
from trainer.scenario_generation import tools


@pytest.mark.parametrize("how", ["dead", "hangs", "certificate"])
async def test_a_server_that_cannot_be_called_is_told_in_plain_words(how: str) -> None:
    async with failing(how) as url:
        with pytest.raises(UpstreamDown) as raised:
            await greet_server(McpServerSettings(url=url))
    assert REASONS.get(how, "no answer within 5 s") in require_plain(str(raised.value))


@pytest.mark.parametrize("how", ["dead", "hangs", "certificate"])
async def test_tools_that_cannot_be_listed_are_told_in_plain_words(how: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tools, "TIMEOUT_S", 1.0)
    async with failing(how) as url:
        with pytest.raises(ToolsUnavailable) as raised:
            await tools.list_tools(url, {})
    message = require_plain(str(raised.value))
    assert message.startswith(f"the MCP server at {url} ")
    assert how == "hangs" or REASONS[how] in message
