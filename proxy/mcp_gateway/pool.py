"""The servers behind the gateway as one: merged lists, who a name or a URI belongs to, what changed.

Owns: the upstreams and their lives, routing. Refuses: the protocol towards callers (`proxy.mcp_gateway.gateway`).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from mcp.shared.subscriptions import ServerEvent

from proxy.mcp_gateway.exchange import Context
from proxy.mcp_gateway.names import Naming, hints, template_matches, uri_of
from proxy.mcp_gateway.news import EVERY_LIST, News, Place
from proxy.mcp_gateway.results import is_modern, not_found
from proxy.mcp_gateway.servers.link import Link
from proxy.mcp_gateway.servers.lists import LISTS
from proxy.mcp_gateway.servers.upstream import Upstream
from proxy.metrics import Metrics
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)


class Pool:
    """All upstreams. `async with pool.running():`."""

    def __init__(self, servers: Mapping[str, McpServerSettings], naming: Naming, metrics: Metrics) -> None:
        self.upstreams = {name: Upstream(name, settings, self) for name, settings in servers.items()}
        self.naming = naming
        self.news = News(self._places)
        self._metrics = metrics

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to every server in the background, and close the connections in the end."""
        for upstream in self.upstreams.values():
            self._metrics.mcp_server(upstream.name, up=False)
            upstream.start()
        try:
            yield
        finally:
            await self.news.close()
            await asyncio.gather(*(u.stop() for u in self.upstreams.values()), return_exceptions=True)

    @property
    def instructions(self) -> str | None:
        """What the servers say about their use."""
        said = {name: u.link.speaks.instructions for name, u in self.upstreams.items() if u.link.speaks is not None}
        told = {name: text for name, text in said.items() if text}
        if self.naming.only is not None:
            return told.get(self.naming.only)
        return "\n\n".join(f"{name}: {text}" for name, text in told.items()) or None

    # --- lists

    async def merged(self, kind: str) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """A list of all servers that answer, and how long it may be kept."""
        upstreams = list(self.upstreams.values())
        listings = await asyncio.gather(*(u.lists.listing(kind) for u in upstreams))
        items: dict[str, dict[str, Any]] = {}
        _, _, _, key = LISTS[kind]
        for upstream, listing in zip(upstreams, listings, strict=True):
            for own, item in listing.items.items():
                shown = self._shown(kind, upstream.name, own, taken=own in items)
                items[shown] = {**item, key: shown}
        return list(items.values()), hints([listing.hints for listing in listings if listing.at])

    def _shown(self, kind: str, server: str, own: str, *, taken: bool) -> str:
        if kind in ("tools", "prompts"):
            return self.naming.shown(server, own)
        return uri_of(server, own) if taken else own

    def tool(self, name: str) -> tuple[Upstream, str, Mapping[str, Any]] | None:
        """The server of a tool or prompt, its own name there, and the tool as it was last seen (empty: it was not)."""
        parts = self.naming.taken_apart(name)
        upstream = self.upstreams.get(parts[0]) if parts is not None else None
        if parts is None or upstream is None or not upstream.filter.admits(parts[1]):
            return None
        return upstream, parts[1], upstream.lists.known("tools").get(parts[1], {})

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """The input schema of a tool, as far as it is known."""
        found = self.tool(name)
        schema = found[2].get("inputSchema") if found is not None else None
        return schema if isinstance(schema, Mapping) else None

    # --- resources

    async def of_uri(self, uri: str) -> list[tuple[Upstream, str]]:
        """The servers that may have a resource, the likeliest first, with the URI as each has it."""
        for upstream in self.upstreams.values():
            prefix = uri_of(upstream.name, "")
            if uri.startswith(prefix):
                return self._admitted([(upstream, uri.removeprefix(prefix))])
        if not any(self._listed(u, uri) for u in self.upstreams.values()):
            kinds = ("resources", "templates")
            await asyncio.gather(*(u.lists.listing(kind) for u in self.upstreams.values() for kind in kinds))
        listed = [(u, uri) for u in self.upstreams.values() if uri in u.lists.known("resources")]
        if listed:
            return self._admitted(listed[:1])
        matching = [(u, uri) for u in self.upstreams.values() if self._listed(u, uri)]
        able = [(u, uri) for u in self.upstreams.values() if _has_resources(u)]
        return self._admitted(matching or able)

    def _admitted(self, found: list[tuple[Upstream, str]]) -> list[tuple[Upstream, str]]:
        return [(upstream, uri) for upstream, uri in found if upstream.filter.admits(uri)]

    @staticmethod
    def _listed(upstream: Upstream, uri: str) -> bool:
        return uri in upstream.lists.known("resources") or any(
            template_matches(template, uri) for template in upstream.lists.known("templates")
        )

    async def _places(self, ctx: Context, uri: str) -> list[Place]:
        """Whom to ask for the changes of a resource. Raises MCPError where nobody can have it."""
        found = await self.of_uri(uri)
        if not found:
            raise not_found(uri, modern=is_modern(ctx))
        return [(upstream.link, own) for upstream, own in found]

    # --- what the links hear

    def changed(self, link: Link, event: ServerEvent) -> None:
        """A list or a resource of a server changed. It says so on each of its links: one is listened to."""
        if link is not self.upstreams[link.name].link:
            return
        self.upstreams[link.name].lists.outdated()
        self.news.tell(event, link)

    def moved(self, link: Link) -> None:
        """A server came or went, and its lists with it."""
        upstream = self.upstreams[link.name]
        if link is not upstream.link:
            return
        self._metrics.mcp_server(link.name, up=link.state == "up")
        upstream.lists.outdated()
        for event in EVERY_LIST:
            self.news.tell(event)
        if link.state == "up":
            self.news.soon(self._learn(upstream))

    async def _learn(self, upstream: Upstream) -> None:
        """A server is back: its tools are to be known, for their annotations are recorded."""
        await upstream.lists.listing("tools")


def _has_resources(upstream: Upstream) -> bool:
    speaks = upstream.link.speaks
    return upstream.link.state == "up" and speaks is not None and "resources" in speaks.capabilities
