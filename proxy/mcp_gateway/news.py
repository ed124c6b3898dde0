"""What changed, for those who want to hear of it: lists and resources, in the way of each era.

Owns: the sessions of the handshake era, what they subscribed to, and the streams of the current one. Refuses: deciding
what changed.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.session import ServerSession
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ServerEvent,
    ToolsListChanged,
)

from proxy.mcp_gateway.exchange import Context

EVERY_LIST: Final = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())


@dataclass(slots=True)
class Session:
    """A caller's session of the handshake era."""

    session: ServerSession
    log_level: str = "debug"  # as servers of that era do it: everything, until the caller says less
    uris: set[str] = field(default_factory=set)


class News:
    """Tells callers of changes. `rewatch` is called when the set of watched URIs has changed."""

    def __init__(self, rewatch: Callable[[], Awaitable[None]]) -> None:
        self._rewatch = rewatch
        self._bus = InMemorySubscriptionBus()
        self._listen = ListenHandler(self._bus)
        self._sessions: dict[Connection, Session] = {}
        self._watched: Counter[str] = Counter()

    @property
    def watched(self) -> set[str]:
        """The URIs that somebody wants to hear of."""
        return set(self._watched)

    def session(self, ctx: Context) -> Session:
        """What is known of the session of a request of the handshake era."""
        connection: Any = ctx.session._connection  # the SDK has no public name for what lives as long as a session
        known = self._sessions.get(connection)
        if known is None:
            known = self._sessions[connection] = Session(ctx.session)
            connection.exit_stack.push_async_callback(self._ended, connection)
        return known

    async def tell(self, event: ServerEvent) -> None:
        """Tell everybody who wants to know."""
        await self._bus.publish(event)
        await asyncio.gather(*(self._tell(known, event) for known in list(self._sessions.values())))

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """A session wants to hear of a resource. Raises what `rewatch` raises, and is then not subscribed."""
        uris = self.session(ctx).uris
        if uri in uris:
            return
        uris.add(uri)
        try:
            await self._watch([uri])
        except BaseException:
            uris.discard(uri)
            raise

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        """A session has heard enough."""
        uris = self.session(ctx).uris
        if uri in uris:
            uris.discard(uri)
            await self._unwatch([uri])

    async def listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        """The stream of changes of a caller of the current era."""
        uris = list(params.notifications.resource_subscriptions or ())
        await self._watch(uris)
        try:
            return await self._listen(ctx, params)
        finally:
            await self._unwatch(uris)

    def close(self) -> None:
        """End the streams."""
        self._listen.close()

    async def _watch(self, uris: list[str]) -> None:
        self._watched.update(uris)
        if any(self._watched[uri] == 1 for uri in uris):
            try:
                await self._rewatch()
            except BaseException:
                self._forget(uris)
                raise

    async def _unwatch(self, uris: list[str]) -> None:
        if self._forget(uris):
            await asyncio.shield(self._rewatch())

    def _forget(self, uris: list[str]) -> bool:
        before = len(self._watched)
        self._watched.subtract(uris)
        self._watched = +self._watched
        return len(self._watched) < before

    async def _ended(self, connection: Connection) -> None:
        known = self._sessions.pop(connection, None)
        if known is not None and known.uris:
            await self._unwatch(sorted(known.uris))

    async def _tell(self, known: Session, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            await known.session.send_tool_list_changed()
        elif isinstance(event, PromptsListChanged):
            await known.session.send_prompt_list_changed()
        elif isinstance(event, ResourcesListChanged):
            await known.session.send_resource_list_changed()
        elif event.uri in known.uris:
            await known.session.send_resource_updated(event.uri)
