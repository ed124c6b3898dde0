"""An MCP server behind the gateway: its connections, and what it has to offer as far as it is known.

Owns: the lists (tools, prompts, resources, templates), fetched at most once at a time and never waited for longer than
`LIST_TIMEOUT_S`; which connection a request goes over. Refuses: putting the lists of several servers together.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import orjson
from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from proxy.mcp_gateway.errors import UpstreamDown
from proxy.mcp_gateway.exchange import Exchange
from proxy.mcp_gateway.link import Link, Watcher
from proxy.mcp_gateway.names import Filter
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)

LIST_TIMEOUT_S: Final = 5.0
FRESH_S: Final = 1.0  # a list that is asked for again within this time is not fetched again
MOST_PAGES: Final = 200
MOST_LINKS: Final = 8

# Kind of list → capability, method, field of the result, what its items are called by.
LISTS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "tools": ("tools", "tools/list", "tools", "name"),
    "prompts": ("prompts", "prompts/list", "prompts", "name"),
    "resources": ("resources", "resources/list", "resources", "uri"),
    "templates": ("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
}


@dataclass(frozen=True, slots=True)
class Listing:
    """A list of a server, without what callers may not see."""

    items: Mapping[str, Mapping[str, Any]]  # by name or URI, in the server's order
    hints: Mapping[str, Any]  # ttlMs, cacheScope
    at: float  # monotonic


NOTHING: Final = Listing({}, {}, 0.0)


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
        self._lists: dict[str, Listing] = {}
        self._fetching: dict[str, asyncio.Task[Listing]] = {}

    def start(self) -> None:
        """Connect in the background."""
        self._keep(self.link)

    async def stop(self) -> None:
        """Close every connection."""
        tasks = [*self._running.values(), *self._fetching.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

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

    async def listing(self, kind: str) -> Listing:
        """A list as it is now, or as it was last where the server takes too long; empty where it is away."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                speaks = await self.link.ready()
        except (UpstreamDown, TimeoutError):
            return NOTHING
        if speaks.capabilities.get(LISTS[kind][0]) is None:
            return NOTHING
        known = self._lists.get(kind)
        if known is not None and time.monotonic() - known.at < FRESH_S:
            return known
        task = self._fetching.get(kind)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._fetch(kind), context=contextvars.Context())
            self._fetching[kind] = task
            task.add_done_callback(lambda done: self._fetched(kind, done))
        await asyncio.wait({task}, timeout=LIST_TIMEOUT_S)
        if task.done() and not task.cancelled() and task.exception() is None:
            return task.result()
        return known if known is not None else NOTHING

    def _fetched(self, kind: str, done: asyncio.Task[Listing]) -> None:
        self._fetching.pop(kind, None)
        if not done.cancelled():
            done.exception()  # looked at, though nobody may wait for it any more

    def known(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """A list as it was last seen."""
        return self._lists.get(kind, NOTHING).items

    def outdated(self) -> None:
        """Lists may have changed: the next one who asks gets them anew."""
        self._lists = {kind: Listing(known.items, known.hints, 0.0) for kind, known in self._lists.items()}

    async def _fetch(self, kind: str) -> Listing:
        _, method, field, key = LISTS[kind]
        items: dict[str, Mapping[str, Any]] = {}
        first: Mapping[str, Any] = {}
        cursor: Any = None
        for _ in range(MOST_PAGES):
            page = await self.link.request(method, {"cursor": cursor} if cursor is not None else None)
            first = first or page
            items |= {str(item[key]): item for item in _entries(page, field, key) if self._may_be_seen(kind, item, key)}
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str):
                break
        listing = self._lists[kind] = Listing(items, _hints(first), time.monotonic())
        return listing

    def _may_be_seen(self, kind: str, item: Mapping[str, Any], key: str) -> bool:
        if not self.filter.admits(str(item[key])):
            return False
        if kind == "tools" and find_invalid_x_mcp_header(item.get("inputSchema")) is not None:
            return False  # the protocol has clients drop such a tool
        if _is_sound(kind, item):
            return True
        log.warning("the MCP server %s lists %r in %s, which is malformed: left out", self.name, item[key][:80], kind)
        return False


def _is_sound(kind: str, item: Mapping[str, Any]) -> bool:
    """Whether callers of both eras can read it: in the list of all servers, one bad entry would spoil the others."""
    _, method, field, _ = LISTS[kind]
    alone = {field: [item], "resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
    try:
        for version in (LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION):
            methods.validate_server_result(method, version, alone)
    except ValidationError:
        return False
    return True


def _hints(page: Mapping[str, Any]) -> dict[str, Any]:
    ttl, scope = page.get("ttlMs"), page.get("cacheScope")
    sound = isinstance(ttl, int) and ttl >= 0 and scope in ("public", "private")
    return {"ttlMs": ttl, "cacheScope": scope} if sound else {}


def _entries(page: Mapping[str, Any], field: str, key: str) -> Sequence[Mapping[str, Any]]:
    entries = page.get(field)
    if not isinstance(entries, list):
        return ()
    return [item for item in entries if isinstance(item, Mapping) and isinstance(item.get(key), str)]
