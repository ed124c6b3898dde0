"""`hone serve` and `engine`: what their flags say, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from proxy.settings.hone import HoneSettings
from tests.proxy.hone_command import hone

pytestmark = pytest.mark.usefixtures("bare")


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
        (["--mcp", "a=x"], "is not a URL"),
        (["--mcp", "a=http://x/mcp", "--mcp", "b=http://x/mcp", "--mcp-prefix", "none"], "only a single server"),
        (["--mcp", "a__b=http://x/mcp"], "is not a name for an MCP server"),
    ],
)
def test_serve_refuses_mcp_servers_that_cannot_be(arguments: list[str], why: str) -> None:
    code, out, error = hone("serve", "--engine", "http://127.0.0.1:9", "--model", "m", *arguments)
    assert code != 0
    assert why in error + out


def test_serve_takes_mcp_servers_without_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    served: list[HoneSettings] = []

    async def run(settings: HoneSettings, *, origin: dict[str, str]) -> None:
        assert origin["proxy.mcp_prefix"] == "flag"
        served.append(settings)

    monkeypatch.setattr("proxy.supervision.serve.run", run)
    arguments = ("--mcp", "orders=http://127.0.0.1:9/mcp?a=b", "--mcp-prefix", "none")
    code, _, error = hone("serve", "--engine", "http://127.0.0.1:9", "--model", "m", *arguments)
    assert code == 0, error
    assert {name: one.url for name, one in served[0].mcp.items()} == {"orders": "http://127.0.0.1:9/mcp?a=b"}
    assert served[0].proxy.mcp_prefix == "none"
