"""An MCP server behind the gateway.

Owns: its connections, and which of them a request goes over. Refuses: its lists (`proxy.mcp_gateway.servers.lists`).
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
from typing import Final

import orjson

from proxy.mcp_gateway.exchange import Exchange
from proxy.mcp_gateway.names import Filter
from proxy.mcp_gateway.servers.link import Link, Watcher
from proxy.mcp_gateway.servers.lists import Lists
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)

MOST_LINKS: Final = 8


class Upstream:
    """One server. `start()` and `stop()`."""

    def __init__(self, name: str, settings: McpServerSettings, watcher: Watcher) -> None:
        self.name = name
        self.filter = Filter(settings.allow, settings.deny)
        self._settings = settings
        self._watcher = watcher
        self.link = Link(name, settings, watcher)
        self._others: dict[bytes, Link] = {}  # for callers that a server of the handshake era may ask something
        self._running: dict[int, asyncio.Task[None]] = {}
        self.lists = Lists(self.link, self.filter)

    def start(self) -> None:
        """Connect in the background."""
        self._keep(self.link)

    async def stop(self) -> None:
        """Close every connection."""
        tasks = list(self._running.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self.lists.stop(), return_exceptions=True)

    def _keep(self, link: Link) -> None:
        # A context of its own: a task that inherits a caller's would take later messages for that caller's.
        self._running[id(link)] = asyncio.get_running_loop().create_task(
            link.run(), name=f"mcp-{self.name}", context=contextvars.Context()
        )

    async def link_for(self, exchange: Exchange) -> Link:
        """The connection for a caller: a server of the handshake era is told once what its client can."""
        speaks = await self.link.ready()
        wanted = exchange.back_channel()
        if speaks.modern or not wanted:
            return self.link
        key = orjson.dumps(wanted, option=orjson.OPT_SORT_KEYS)
        link = self._others.pop(key, None)
        if link is None:
            await self._make_room()
            link = Link(self.name, self._settings, self._watcher, wanted)
            self._keep(link)
        self._others[key] = link  # the last is the one used last
        return link

    async def _make_room(self) -> None:
        idle = [key for key, link in self._others.items() if not link.in_flight]
        if len(self._others) < MOST_LINKS or not idle:
            return
        task = self._running.pop(id(self._others.pop(idle[0])))
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
