"""A server's lists: tools, prompts, resources and templates, as far as they are known.

Owns: fetching each list at most once at a time, waiting at most `LIST_TIMEOUT_S`, and dropping entries that callers may
not see or that are malformed. Refuses: merging the lists of several servers.
"""

from __future__ import annotations

import asyncio
import contextvars
import logging
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from mcp.shared.inbound import find_invalid_x_mcp_header
from mcp_types import methods
from mcp_types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION
from pydantic import ValidationError

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.names import NameFilter
from proxy.mcp_gateway.servers.link import Link
from recorder.base.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

LIST_TIMEOUT_S: Final = 5.0
FRESH_S: Final = 1.0  # cache time of a list
MOST_PAGES: Final = 200

# Kind of list → capability, method, field of the result, key of its items.
LISTS: Final[Mapping[str, tuple[str, str, str, str]]] = {
    "tools": ("tools", "tools/list", "tools", "name"),
    "prompts": ("prompts", "prompts/list", "prompts", "name"),
    "resources": ("resources", "resources/list", "resources", "uri"),
    "templates": ("resources", "resources/templates/list", "resourceTemplates", "uriTemplate"),
}


@dataclass(frozen=True, slots=True)
class ServerList:
    """A server's list without the entries that callers may not see."""

    items: Mapping[str, Mapping[str, Any]]  # by name or URI, in the server's order
    hints: Mapping[str, Any]  # ttlMs, cacheScope
    at: float  # monotonic


NOTHING: Final = ServerList({}, {}, 0.0)


class ServerLists:
    """The lists of a server, over one link."""

    def __init__(self, link: Link, admits: NameFilter) -> None:
        self._link = link
        self._filter = admits
        self._lists: dict[str, ServerList] = {}
        self._fetching: dict[str, asyncio.Task[ServerList]] = {}
        self._malformed = RateLimitedLog(log)

    async def stop(self) -> None:
        """Cancel all fetches."""
        tasks = list(self._fetching.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def listing(self, kind: str) -> ServerList:
        """Return the current list, or the last known one if the server is slow; empty if it is away."""
        try:
            async with asyncio.timeout(LIST_TIMEOUT_S):
                speaks = await self._link.ready()
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

    def _fetched(self, kind: str, done: asyncio.Task[ServerList]) -> None:
        self._fetching.pop(kind, None)
        if not done.cancelled():
            done.exception()  # retrieved, since nothing may await the task any more

    def known(self, kind: str) -> Mapping[str, Mapping[str, Any]]:
        """Return a list as last seen."""
        return self._lists.get(kind, NOTHING).items

    def outdated(self) -> None:
        """Mark the lists as stale: the next request fetches them again."""
        self._lists = {kind: ServerList(known.items, known.hints, 0.0) for kind, known in self._lists.items()}

    async def _fetch(self, kind: str) -> ServerList:
        _, method, field, key = LISTS[kind]
        items: dict[str, Mapping[str, Any]] = {}
        first: Mapping[str, Any] = {}
        cursor: Any = None
        cursors = set[str]()
        for _ in range(MOST_PAGES):
            page = await self._link.request(method, {"cursor": cursor} if cursor is not None else None)
            first = first or page
            items |= {str(item[key]): item for item in _entries(page, field, key) if self._may_be_seen(kind, item, key)}
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or cursor in cursors:
                break  # a cursor that repeats leads back to pages that are known
            cursors.add(cursor)
        listing = self._lists[kind] = ServerList(items, _hints(first), time.monotonic())
        return listing

    def _may_be_seen(self, kind: str, item: Mapping[str, Any], key: str) -> bool:
        if not self._filter.admits(str(item[key])):
            return False
        if kind == "tools" and find_invalid_x_mcp_header(item.get("inputSchema")) is not None:
            return False  # the protocol requires clients to drop such a tool
        if _is_sound(kind, item):
            return True
        name = str(item[key])[:80]
        self._malformed(
            logging.WARNING,
            "the MCP server %s lists the malformed entry %r in %s: dropped",
            self._link.name,
            name,
            kind,
        )
        return False


def _is_sound(kind: str, item: Mapping[str, Any]) -> bool:
    """Whether callers of both eras can read it: one bad entry would spoil the merged list."""
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
