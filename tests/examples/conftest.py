"""Real parts of the helpdesk for its tests: the orders on disk, the tools' server and the scripted judge's."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn

from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.scripted_judge import make_server
from examples.helpdesk.tools_server import tools_app


@pytest.fixture
def files(tmp_path: Path) -> DemoFiles:
    return write_demo(tmp_path)


@asynccontextmanager
async def tools_served(files: DemoFiles, port: int = 0) -> AsyncIterator[int]:
    # The socket listens before the server runs, so whoever connects early waits instead of failing.
    with socket.create_server(("127.0.0.1", port)) as listening:
        server = uvicorn.Server(uvicorn.Config(tools_app(files.database), log_level="warning", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield int(listening.getsockname()[1])
        server.should_exit = True
        await serving


@pytest.fixture
async def mcp_url(files: DemoFiles) -> AsyncIterator[str]:
    async with tools_served(files) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def judge_url() -> Iterator[str]:
    with make_server(0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
