"""Real parts of the examples for their tests: orders and mails on disk, the tools' servers, the scripted judge's."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import uvicorn
from starlette.applications import Starlette

from examples.helpdesk.scenarios import DemoFiles, write_demo
from examples.helpdesk.scripted_judge import make_server
from examples.helpdesk.tools_server import tools_app
from examples.inbox import scenarios as inbox
from examples.inbox import tools_server as inbox_tools


@pytest.fixture
def files(tmp_path: Path) -> DemoFiles:
    return write_demo(tmp_path)


@pytest.fixture
def inbox_files(tmp_path: Path) -> inbox.Files:
    return inbox.write(tmp_path / "inbox", 7)


@asynccontextmanager
async def tools_served(files: DemoFiles, port: int = 0) -> AsyncIterator[int]:
    async with served(tools_app(files.database), port) as listening:
        yield listening


@asynccontextmanager
async def served(app: Starlette, port: int = 0) -> AsyncIterator[int]:
    # The socket listens before the server runs, so whoever connects early waits instead of failing.
    with socket.create_server(("127.0.0.1", port)) as listening:
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning", ws="none"))
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        yield int(listening.getsockname()[1])
        server.should_exit = True
        await serving


@pytest.fixture
async def mcp_url(files: DemoFiles) -> AsyncIterator[str]:
    async with tools_served(files) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
async def inbox_url(inbox_files: inbox.Files) -> AsyncIterator[str]:
    async with served(inbox_tools.tools_app(inbox_files.database)) as port:
        yield f"http://127.0.0.1:{port}/mcp"


@pytest.fixture
def judge_url() -> Iterator[str]:
    with make_server(0) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()
