"""An MCP server behind the gateway.

Owns: the shared connection, which serves the lists and every caller of a stateless server, and whether a caller gets a
connection of its own. Refuses: when a caller's own connection ends (`proxy.mcp_gateway.servers.sessions`).

A server that keeps state for its client (a session of the handshake era, a process on this machine) is not shared
between callers, unless its settings say so: each caller has its own session, and the shared connection only serves the
lists. A server of the current era behind a URL is stateless, and one connection serves all.

A server of both eras is used in its caller's era: sampling, elicitation and subscriptions often work only in the era
that the server's author had in mind.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import orjson
from mcp.shared.exceptions import MCPError

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import NEEDS, CallerIdentity, CallerRequest
from proxy.mcp_gateway.names import NameFilter
from proxy.mcp_gateway.servers.handshake import (
    SUBSCRIBE,
    Ability,
    AgreedProtocol,
    Dispatcher,
    agree,
    discover,
    probe_handshake,
    shake_hands,
)
from proxy.mcp_gateway.servers.link import Greet, Link, LinkWatcher
from proxy.mcp_gateway.servers.lists import ServerList, ServerLists
from proxy.mcp_gateway.servers.sessions import Ended, Session, SessionKey, Sessions
from proxy.settings.mcp import McpServerSettings

# Capabilities declared to a shared process: it may ask whatever one of its callers can answer.
_OF_ALL: Final[Mapping[str, Any]] = {name: {} for name in NEEDS.values()}


class Upstream:
    """One server. `start()` and `stop()` it."""

    def __init__(
        self,
        name: str,
        settings: McpServerSettings,
        watcher: LinkWatcher,
        *,
        idle_s: float,
        ended: Ended,
        counted: Callable[[str, int], None],
    ) -> None:
        self.name = name
        self.filter = NameFilter(settings.allow, settings.deny)
        self._settings = settings
        self._watcher = watcher
        self.link = Link(name, settings, watcher, self._greet)
        self._trying: asyncio.Task[AgreedProtocol | None] | None = (
            None  # probe of the handshake era, at a server of the current one
        )
        self._lists = ServerLists(self.link, self.filter)
        self._sessions = Sessions(name, settings.most_sessions, idle_s, ended, counted)
        self._running: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Connect in the background."""
        # A context of its own: a task that inherits a caller's would take later messages for that caller's.
        self._running = asyncio.get_running_loop().create_task(
            self.link.run(), name=f"mcp-{self.name}", context=contextvars.Context()
        )

    async def stop(self) -> None:
        """Close every connection."""
        self.link.close()
        tasks = [task for task in (self._running, self._trying) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, self._lists.stop(), self._sessions.close(), return_exceptions=True)

    # --- connections

    @asynccontextmanager
    async def lend(self, exchange: CallerRequest) -> AsyncIterator[Link]:
        """Lend the connection for a caller's request. Raises UpstreamDown."""
        modern = await self._in_current_era(exchange, self.link.speaks or await self.link.ready())
        if self._settings.shared or (modern and self._settings.url is not None):
            with self.link.working(exchange):
                await self.link.ready()
                yield self.link
            return
        session = await self._opened(exchange, modern)
        try:
            with session.link.working(exchange):
                speaks = await session.link.ready()
                if session.begun is not speaks:
                    session.begun = speaks
                    with suppress(MCPError):  # surplus log messages are filtered here
                        await self._set_level(session.link, exchange)
                yield session.link
        finally:
            self._sessions.used(session)

    def links_of(self, who: CallerIdentity) -> list[Link]:
        """Return a caller's own connections; the shared one if it has none."""
        return [session.link for session in self._sessions.of(who)] or [self.link]

    async def at_level(self, exchange: CallerRequest) -> None:
        """Set the level of log messages for a caller of the handshake era. Raises UpstreamDown, MCPError."""
        for link in self.links_of(exchange.who):
            if link is not self.link or self._settings.shared:
                await self._set_level(link, exchange)

    async def _set_level(self, link: Link, exchange: CallerRequest) -> None:
        speaks, level = link.speaks, exchange.stated_level
        if level is None or exchange.modern or link.state != "up" or speaks is None or speaks.modern:
            return  # a server of the current era gets the level with each request
        if "logging" in speaks.capabilities:
            await link.request("logging/setLevel", {"level": level})

    async def roots_changed(self, who: CallerIdentity) -> None:
        """Notify the server that a caller's roots have changed: it may ask for them again."""
        for session in self._sessions.of(who):
            await session.link.notify("notifications/roots/list_changed")

    def moved(self, link: Link) -> None:
        """A connection came up or broke."""
        self._sessions.moved(link)
        if link is not self.link and link.state == "down":
            self.link.doubt()

    def left(self, who: CallerIdentity) -> None:
        """End the sessions of a caller that is gone."""
        self._sessions.end(who)

    async def _in_current_era(self, exchange: CallerRequest, speaks: AgreedProtocol) -> bool:
        """Whether to use the current era with the server: the caller's era, if the server has both."""
        return speaks.modern and (exchange.modern or await self._handshake() is None)

    async def _handshake(self) -> AgreedProtocol | None:
        """The handshake era's agreement of a server of the current era, if it has both."""
        return await asyncio.shield(self._trying) if self._trying is not None else None

    async def _opened(self, exchange: CallerRequest, modern: bool) -> Session:
        """The caller's own session. Raises UpstreamDown."""
        greet, capabilities = (discover, dict[str, Any]()) if modern else (shake_hands, exchange.back_channel())
        key = SessionKey(exchange.who, orjson.dumps(capabilities, option=orjson.OPT_SORT_KEYS))
        if key not in self._sessions:
            await self.link.ready()  # if it does not answer, a session would not either
        connect_s = self._settings.connect_s
        return await self._sessions.open(
            key, lambda: self._made(lambda dispatcher: greet(dispatcher, capabilities, connect_s))
        )

    def _made(self, greet: Greet) -> tuple[Link, ServerLists]:
        link = Link(self.name, self._settings, self._watcher, greet, own=True)
        return link, ServerLists(link, self.filter)

    async def _greet(self, dispatcher: Dispatcher) -> AgreedProtocol:
        capabilities = _OF_ALL if self._settings.shared else {}
        speaks = await agree(dispatcher, capabilities, self._settings.connect_s)
        if not speaks.modern or self._settings.shared:
            self._trying = None
        elif self._trying is None or self._trying.done():
            self._trying = asyncio.ensure_future(probe_handshake(self.name, self._settings))
        return speaks

    # --- capabilities

    def ability(self, *, modern: bool) -> Ability | None:
        """Return the server's capabilities for callers of an era; None if it has not answered yet."""
        speaks = self.link.speaks
        if speaks is None or modern or self._trying is None:
            return speaks.ability if speaks is not None else None
        handshake = self._trying.result() if self._trying.done() and not self._trying.cancelled() else None
        if handshake is None:
            return speaks.ability
        # the shared connection may deliver resources' changes too (`hear`)
        return handshake.ability | (speaks.ability & {SUBSCRIBE} if self._notifies_all else frozenset())

    async def settled(self) -> None:
        """Wait until its capabilities are known, or it does not answer."""
        with suppress(UpstreamDown):
            await self.link.ready()
            await self._handshake()

    # --- lists

    async def listing(self, kind: str, who: CallerIdentity | None = None) -> ServerList:
        """Return a list as a caller's own session has it; without one, as a new session would."""
        return await next(self._lists_of(who)).listing(kind)

    def known(self, kind: str, who: CallerIdentity | None = None) -> Mapping[str, Mapping[str, Any]]:
        """Return a list as last seen."""
        return next((known for lists in self._lists_of(who) if (known := lists.known(kind))), {})

    def outdated(self, link: Link) -> None:
        """Mark the lists of a connection as stale: the next request fetches them again."""
        session = self._sessions.over(link)
        (session.lists if session is not None else self._lists).outdated()

    def _lists_of(self, who: CallerIdentity | None) -> Iterator[ServerLists]:
        if who is not None:
            yield from (session.lists for session in self._sessions.of(who) if session.link.state == "up")
        yield self._lists

    # --- notifications

    async def hear(self, exchange: CallerRequest, uri: str) -> Link:
        """Subscribe to a resource for a caller; return the connection that notifies. Raises UpstreamDown, MCPError."""
        async with self.lend(exchange) as link:
            try:
                await link.listening.add(uri)
            except MCPError:
                if link is self.link or not self._notifies_all:
                    raise
            else:
                return link
        await self.link.listening.add(uri)
        return self.link

    @property
    def _notifies_all(self) -> bool:
        """Whether the shared connection may deliver notifications that a caller's own does not."""
        return self._settings.url is not None and self.link.speaks is not None and self.link.speaks.modern
