"""Real parts of the example for its tests: a warehouse on disk, its tools' server."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import uvicorn

from examples.mcp_rl.tools_server import tools_app
from examples.mcp_rl.warehouse import warehouse, write_database

SEED = 7


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "warehouse.sqlite"
    write_database(path, warehouse(SEED))
    return path


@pytest.fixture
async def mcp_url(database: Path) -> AsyncIterator[str]:
    # The socket listens before the server runs, so whoever connects early waits instead of failing.
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = uvicorn.Server(uvicorn.Config(tools_app(database), log_level="warning", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield f"http://127.0.0.1:{listening.getsockname()[1]}/mcp"
        server.should_exit = True
        await serving
