"""Notifications of changed lists and resources to the callers that want them, in the form of each era.

Owns: the sessions of the handshake era, the streams of the current one, and the subscriptions of each. Refuses:
deciding what changed, and where a resource is.
"""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import mcp_types as types
from mcp.server.connection import Connection
from mcp.server.subscriptions import InMemorySubscriptionBus, ListenHandler
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import CallerIdentity, CallerRequest, Context, identify_caller, session_connection
from proxy.mcp_gateway.servers.link import Link
from proxy.mcp_gateway.servers.upstream import Upstream
from recorder.base.rate_limited_log import RateLimitedLog

log = logging.getLogger(__name__)

EVERY_LIST: Final = (ToolsListChanged(), PromptsListChanged(), ResourcesListChanged())
MOST_STREAMS: Final = 1024

Place = tuple[Link, str]  # the connection that notifies of a resource, and its URI there
Where = Callable[
    [CallerRequest, str], Awaitable[Sequence[tuple[Upstream, str]]]
]  # the likeliest first; raises MCPError


@dataclass(eq=False)
class Subscriber:
    """A receiver of notifications."""

    who: CallerIdentity
    tell: Callable[[ServerEvent], Awaitable[None]]
    resources: dict[str, Place] = field(default_factory=dict)  # by the callers' URI


class CallerSession(Subscriber):
    """A caller's session of the handshake era."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(identify_caller(ctx), self._send)
        self._session = ctx.session
        self.log_level: str | None = None  # None: not set

    async def _send(self, event: ServerEvent) -> None:
        if isinstance(event, ToolsListChanged):
            await self._session.send_tool_list_changed()
        elif isinstance(event, PromptsListChanged):
            await self._session.send_prompt_list_changed()
        elif isinstance(event, ResourcesListChanged):
            await self._session.send_resource_list_changed()
        else:
            await self._session.send_resource_updated(event.uri)


class Notifications:
    """Sends notifications to callers. `left` is called when a session of the handshake era has ended."""

    def __init__(self, where: Where, left: Callable[[CallerIdentity], None]) -> None:
        self._where = where
        self._left_to = left
        self._sessions: dict[Connection, CallerSession] = {}
        self._streams: dict[Subscriber, ListenHandler] = {}
        self._subscriptions: defaultdict[Place, dict[Subscriber, str]] = defaultdict(dict)
        self._telling: set[asyncio.Task[None]] = set()
        self._undelivered = RateLimitedLog(log)

    def session(self, ctx: Context) -> CallerSession:
        """Return the state of the session of a request of the handshake era."""
        connection = session_connection(ctx)
        known = self._sessions.get(connection)
        if known is None:
            known = self._sessions[connection] = CallerSession(ctx)
            connection.exit_stack.push_async_callback(self._ended, connection)
        return known

    def tell(
        self, event: ServerEvent, link: Link | None = None, concerns: Callable[[CallerIdentity], bool] | None = None
    ) -> None:
        """Send an event to the callers that it concerns.

        `link`: the connection of a changed resource. `concerns`: whether a caller's lists changed; None: all did.
        """
        if isinstance(event, ResourceUpdated):
            uris = self._subscriptions.get((link, event.uri), {}) if link is not None else {}
            sends = [subscriber.tell(ResourceUpdated(uri)) for subscriber, uri in uris.items()]
        else:
            subscribers = (*self._sessions.values(), *self._streams)
            sends = [
                subscriber.tell(event) for subscriber in subscribers if concerns is None or concerns(subscriber.who)
            ]
        for one in sends:
            self.soon(one)

    async def subscribe(self, ctx: Context, uri: str) -> None:
        """Subscribe a session to a resource. Raises UpstreamDown, MCPError if that fails."""
        await self._subscribe(self.session(ctx), ctx, uri)

    async def unsubscribe(self, ctx: Context, uri: str) -> None:
        """End a session's subscription."""
        await self._unsubscribe(self.session(ctx), uri)

    async def listen(self, ctx: Context, params: types.SubscriptionsListenRequestParams) -> Any:
        """Serve the stream of notifications of a caller of the current era, for all requested notifications that can be
        delivered.

        Raises MCPError if nothing can.
        """
        if len(self._streams) >= MOST_STREAMS:
            raise MCPError(
                types.INTERNAL_ERROR, f"the limit of {MOST_STREAMS} listening callers is reached: retry later"
            )
        bus = InMemorySubscriptionBus()
        subscriber = Subscriber(identify_caller(ctx), bus.publish)
        requested = params.notifications
        try:
            refusals = [await self._refusal(subscriber, ctx, uri) for uri in requested.resource_subscriptions or ()]
            accepted = requested.model_copy(update={"resource_subscriptions": list(subscriber.resources) or None})
            if any(refusals) and not any(accepted.model_dump(exclude_none=True).values()):
                raise MCPError(types.INVALID_PARAMS, "; ".join(filter(None, refusals)))
            self._streams[subscriber] = handler = ListenHandler(bus)
            return await handler(ctx, params.model_copy(update={"notifications": accepted}))
        finally:
            self._streams.pop(subscriber, None)
            self._left(subscriber)

    def soon(self, work: Coroutine[Any, Any, None] | Awaitable[None]) -> None:
        """Run something in the background."""
        task = asyncio.ensure_future(self._quietly(work))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)

    async def close(self) -> None:
        """End the streams, and stop all notifications."""
        for handler in self._streams.values():
            handler.close()
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)

    async def _refusal(self, subscriber: Subscriber, ctx: Context, uri: str) -> str | None:
        try:
            await self._subscribe(subscriber, ctx, uri)
        except (UpstreamDown, MCPError) as e:
            return str(e)
        return None

    async def _subscribe(self, subscriber: Subscriber, ctx: Context, uri: str) -> None:
        if uri in subscriber.resources:
            return
        place = link, own = await self._find_notifier(ctx, uri)
        if uri in subscriber.resources:  # two concurrent requests for the same URI
            await link.listening.drop(own)
            return
        subscriber.resources[uri] = place
        self._subscriptions[place][subscriber] = uri

    async def _find_notifier(self, ctx: Context, uri: str) -> Place:
        """The first connection that notifies of a resource. Raises the first refusal if there is none."""
        refusals: list[UpstreamDown | MCPError] = []
        exchange = CallerRequest(ctx)
        for upstream, own in await self._where(exchange, uri):
            try:
                return await upstream.hear(exchange, own), own
            except (UpstreamDown, MCPError) as e:
                refusals.append(e)
        raise refusals[0]

    async def _unsubscribe(self, subscriber: Subscriber, uri: str) -> None:
        place = subscriber.resources.pop(uri, None)
        if place is None:
            return
        self._subscriptions[place].pop(subscriber)
        if not self._subscriptions[place]:
            del self._subscriptions[place]
        link, own = place
        await link.listening.drop(own)

    def _left(self, subscriber: Subscriber) -> None:
        for uri in list(subscriber.resources):
            self.soon(self._unsubscribe(subscriber, uri))

    async def _ended(self, connection: Connection) -> None:
        known = self._sessions.pop(connection, None)
        if known is not None:
            self._left_to(known.who)
            self._left(known)

    async def _quietly(self, work: Awaitable[None]) -> None:
        try:
            await work
        except (MCPError, UpstreamDown) as e:  # the next change of that server's state repeats it
            self._undelivered(logging.WARNING, "changes of MCP servers cannot be passed on: %s", e or type(e).__name__)
