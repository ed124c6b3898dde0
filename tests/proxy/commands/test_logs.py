"""What the programs that stay say in their log."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from tests.proxy.mcp_everything import Everything, served

ROOT = Path(__file__).parents[3]


@pytest.mark.slow
async def test_the_log_of_hone_serve_tells_no_secret_of_a_url(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "ignore", "-m", "proxy.cli", "serve", "--port", "0", "--data", str(tmp_path)]
    async with served(Everything()) as url:
        serving = await asyncio.create_subprocess_exec(
            *command,
            *("--model", "m", "--mcp", f"e={url}?token=open-sesame"),
            cwd=ROOT,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        assert serving.stdout is not None
        log = (await serving.stdout.readuntil(b"the MCP server e answers")).decode()
        serving.terminate()
        log += (await serving.stdout.read()).decode()
        await serving.wait()
    assert "open-sesame" not in log
