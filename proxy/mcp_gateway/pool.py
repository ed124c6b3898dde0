"""The servers behind the gateway as one: merged lists, routing by name or URI, and changes.

Owns: the upstreams and their lifetime, and routing. Refuses: the protocol for callers (`proxy.mcp_gateway.gateway`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any

from mcp.shared.subscriptions import ServerEvent

from proxy.mcp_gateway.exchange import CallerIdentity, CallerRequest, resource_not_found
from proxy.mcp_gateway.names import NameScheme, cache_hints, gateway_uri, matches_template
from proxy.mcp_gateway.notifications import EVERY_LIST, Notifications
from proxy.mcp_gateway.servers.handshake import Ability
from proxy.mcp_gateway.servers.link import Link
from proxy.mcp_gateway.servers.lists import LIST_TIMEOUT_S, LISTS
from proxy.mcp_gateway.servers.sessions import Ended
from proxy.mcp_gateway.servers.upstream import Upstream
from proxy.metrics import Metrics
from proxy.settings.mcp import McpServerSettings


class Pool:
    """All upstreams. `async with pool.running():` around their use."""

    def __init__(
        self,
        servers: Mapping[str, McpServerSettings],
        naming: NameScheme,
        metrics: Metrics,
        *,
        idle_s: float,
        ended: Ended,
    ) -> None:
        self.upstreams = {
            name: Upstream(name, settings, self, idle_s=idle_s, ended=ended, counted=metrics.mcp_sessions)
            for name, settings in servers.items()
        }
        self.naming = naming
        self.news = Notifications(self._places, self._left)
        self._metrics = metrics

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Connect to every server in the background, and close the connections at the end."""
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
        """The servers' instructions for their use."""
        texts = {name: u.link.speaks.instructions for name, u in self.upstreams.items() if u.link.speaks is not None}
        texts = {name: text for name, text in texts.items() if text}
        if self.naming.only is not None:
            return texts.get(self.naming.only)
        return "\n\n".join(f"{name}: {text}" for name, text in texts.items()) or None

    def abilities(self, *, modern: bool) -> list[Ability | None]:
        """Return each server's capabilities for callers of an era; None for one that has not answered yet."""
        return [upstream.ability(modern=modern) for upstream in self.upstreams.values()]

    async def settled(self) -> None:
        """Wait until the servers' capabilities are known, at most `LIST_TIMEOUT_S`."""
        with suppress(TimeoutError):
            async with asyncio.timeout(LIST_TIMEOUT_S):
                await asyncio.gather(*(upstream.settled() for upstream in self.upstreams.values()))

    # --- lists

    async def merged(self, kind: str, who: CallerIdentity) -> tuple[list[dict[str, Any]], dict[str, Any]]:
        """Return a list of all servers that answer, for a caller, and its cache hints."""
        upstreams = list(self.upstreams.values())
        listings = await asyncio.gather(*(u.listing(kind, who) for u in upstreams))
        items: dict[str, dict[str, Any]] = {}
        _, _, _, key = LISTS[kind]
        for upstream, listing in zip(upstreams, listings, strict=True):
            for own, item in listing.items.items():
                public_name = self._shown(kind, upstream.name, own, taken=own in items)
                items[public_name] = {**item, key: public_name}
        return list(items.values()), cache_hints([listing.hints for listing in listings if listing.at])

    def _shown(self, kind: str, server: str, own: str, *, taken: bool) -> str:
        if kind in ("tools", "prompts"):
            return self.naming.public_name(server, own)
        return gateway_uri(server, own) if taken else own

    def tool(self, name: str, who: CallerIdentity | None = None) -> tuple[Upstream, str, Mapping[str, Any]] | None:
        """Return the server of a tool or prompt, its own name there, and the tool as last seen (empty: never)."""
        parts = self.naming.split_name(name)
        upstream = self.upstreams.get(parts[0]) if parts is not None else None
        if parts is None or upstream is None or not upstream.filter.admits(parts[1]):
            return None
        return upstream, parts[1], upstream.known("tools", who).get(parts[1], {})

    def schema(self, name: str) -> Mapping[str, Any] | None:
        """Return the input schema of a tool, if known."""
        target = self.tool(name)
        schema = target[2].get("inputSchema") if target is not None else None
        return schema if isinstance(schema, Mapping) else None

    # --- resources

    async def of_uri(self, uri: str, who: CallerIdentity) -> list[tuple[Upstream, str]]:
        """Return the servers that may have a resource, the likeliest first, with the URI in each one's form."""
        for upstream in self.upstreams.values():
            prefix = gateway_uri(upstream.name, "")
            if uri.startswith(prefix):
                return self._admitted([(upstream, uri.removeprefix(prefix))])
        upstreams = list(self.upstreams.values())
        if not any(_listed(u, uri, who) for u in upstreams):
            await asyncio.gather(*(u.listing(kind, who) for u in upstreams for kind in ("resources", "templates")))
        listed = [(u, uri) for u in upstreams if uri in u.known("resources", who)]
        if listed:
            return self._admitted(listed[:1])
        matching = [(u, uri) for u in upstreams if _listed(u, uri, who)]
        able = [(u, uri) for u in upstreams if _has_resources(u)]
        return self._admitted(matching or able)

    def _admitted(self, places: list[tuple[Upstream, str]]) -> list[tuple[Upstream, str]]:
        return [(upstream, uri) for upstream, uri in places if upstream.filter.admits(uri)]

    async def _places(self, exchange: CallerRequest, uri: str) -> list[tuple[Upstream, str]]:
        places = await self.of_uri(uri, exchange.who)
        if not places:
            raise resource_not_found(uri, modern=exchange.modern)
        return places

    async def roots_changed(self, who: CallerIdentity) -> None:
        """Relay that a caller of the handshake era has changed its roots."""
        for upstream in self.upstreams.values():
            await upstream.roots_changed(who)

    # --- notifications of the links

    def changed(self, link: Link, event: ServerEvent) -> None:
        """A list or a resource of a server changed. A caller with a session there is notified by that session only."""
        upstream = self.upstreams[link.name]
        upstream.outdated(link)
        self.news.tell(event, link, lambda who: link in upstream.links_of(who))

    def moved(self, link: Link) -> None:
        """A server came or went, and its lists with it; or a caller's session there did."""
        upstream = self.upstreams[link.name]
        upstream.moved(link)
        if link is not upstream.link:
            return
        self._metrics.mcp_server(link.name, up=link.state == "up")
        upstream.outdated(link)
        for event in EVERY_LIST:
            self.news.tell(event)
        if link.state == "up":
            self.news.soon(self._learn(upstream))

    async def _learn(self, upstream: Upstream) -> None:
        """Fetch the tools of a server that is back: their annotations are recorded."""
        await upstream.listing("tools")

    def _left(self, who: CallerIdentity) -> None:
        for upstream in self.upstreams.values():
            upstream.left(who)


def _listed(upstream: Upstream, uri: str, who: CallerIdentity) -> bool:
    return uri in upstream.known("resources", who) or any(
        matches_template(template, uri) for template in upstream.known("templates", who)
    )


def _has_resources(upstream: Upstream) -> bool:
    speaks = upstream.link.speaks
    return upstream.link.state == "up" and speaks is not None and "resources" in speaks.capabilities
