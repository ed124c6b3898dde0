"""Mount of Hone's own MCP server, which is built at its first request.

Owns: when the server is built, and its lifetime. Refuses: what it does (`proxy.api.mcp.server`).

Importing the SDK takes half a second and building the tools' schemas a quarter more. A proxy starts without both; the
first request builds them in a thread, while other requests continue.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

from proxy.api.actions import HoneActions
from proxy.http.asgi import Receive, Scope, Send

if TYPE_CHECKING:
    from proxy.api.mcp.server import HoneMcp


class McpMount:
    """An ASGI app. Serve it inside `async with running():`."""

    def __init__(self, hone: HoneActions) -> None:
        self._hone = hone
        self._making = asyncio.Lock()
        self._server: HoneMcp | None = None
        self._stop = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Allow building the server until the block ends, then stop it."""
        try:
            yield
        finally:
            self._stop.set()
            if self._task is not None:
                await self._task

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        await (await self._made())(scope, receive, send)

    async def _made(self) -> HoneMcp:
        async with self._making:
            if self._server is None:
                server = await asyncio.to_thread(_make, self._hone)
                running = asyncio.Event()
                self._task = asyncio.create_task(self._run(server, running), name="hone-mcp")
                await running.wait()
                self._server = server
            return self._server

    async def _run(self, server: HoneMcp, running: asyncio.Event) -> None:
        # In a task of its own: its task group must end where it began, which no request does.
        async with server.running():
            running.set()
            await self._stop.wait()


def _make(hone: HoneActions) -> HoneMcp:
    from proxy.api.mcp.server import HoneMcp

    return HoneMcp(hone)
