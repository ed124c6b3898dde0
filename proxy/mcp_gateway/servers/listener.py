"""A server's own notifications: changed lists, and resources with subscribers; and the backoff between retries.

Owns: which resources one connection subscribes to, in the form of its era, and again after it was reopened. Refuses:
who the subscribers are (`proxy.mcp_gateway.notifications`).
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from itertools import count
from typing import Any, Final

import anyio
import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.servers.handshake import AgreedProtocol
from recorder.base.rate_limited_log import RateLimitedLog

FIRST_WAIT_S: Final = 0.1  # before the second try; doubled before each further one
LONGEST_WAIT_S: Final = 15.0


class Backoff:
    """The waits between tries, longer each time, reset after a try that lasted."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._since = time.monotonic()

    async def wait(self) -> None:
        """Wait before the next try."""
        if time.monotonic() - self._since > LONGEST_WAIT_S:
            self._wait_s = FIRST_WAIT_S
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        self._since = time.monotonic()


log = logging.getLogger(__name__)


class Listener:
    """The subscriptions of one connection.

    `ready` waits for the connection; `request` sends one request; `stream` sends one that stays open until the server
    ends it. All raise UpstreamDown, the last two MCPError.
    """

    def __init__(
        self,
        name: str,
        limit_s: float,
        *,
        ready: Callable[[], Awaitable[AgreedProtocol]],
        request: Callable[[str, Mapping[str, Any] | None], Awaitable[dict[str, Any]]],
        stream: Callable[[str, Mapping[str, Any], str], Awaitable[None]],
    ) -> None:
        self._name = name
        self._ready = ready
        self._request = request
        self._open_stream = stream
        self._limit_s = limit_s
        self._uris: Counter[str] = Counter()
        self._changing = asyncio.Lock()
        self._ids = count(1)
        # current era: one stream for all
        self._stream: anyio.CancelScope | None = None
        self._id = ""
        self._settled = asyncio.Event()  # set: the server has accepted or refused
        self._refusal: str | None = None
        self._tells_resources = False
        self._unheard = RateLimitedLog(log)

    @property
    def busy(self) -> bool:
        """Whether a resource has a subscriber."""
        return bool(self._uris)

    async def add(self, uri: str) -> None:
        """Subscribe to a resource, until `drop` was called as often. Raises UpstreamDown, MCPError if that fails."""
        async with self._changing:
            speaks = await self._ready()
            self._uris[uri] += 1
            if self._uris[uri] > 1:
                return
            try:
                await (self._listen_again(uri) if speaks.modern else self._subscribe(uri))
            except BaseException:
                del self._uris[uri]
                raise

    async def drop(self, uri: str) -> None:
        """End one subscription to a resource. Raises UpstreamDown, MCPError."""
        async with self._changing:
            self._uris[uri] -= 1
            if self._uris[uri] > 0:
                return
            del self._uris[uri]
            try:
                speaks = await self._ready()
            except UpstreamDown:
                return  # it is not subscribed to again
            if speaks.modern:
                self._restart()
            else:
                await self._request("resources/unsubscribe", {"uri": uri})

    def acknowledged(self, params: Mapping[str, Any] | None) -> None:
        """The server has accepted a stream, and lists what it covers."""
        meta, covered = ((params or {}).get(name) for name in ("_meta", "notifications"))
        if isinstance(meta, Mapping) and meta.get(SUBSCRIPTION_ID_META_KEY, self._id) != self._id:
            return  # for the previous stream
        self._tells_resources = isinstance(covered, Mapping) and bool(covered.get("resourceSubscriptions"))
        self._refusal = None
        self._settled.set()

    async def resume(self) -> None:
        """Subscribe again on a reopened connection of the handshake era."""
        for uri in list(self._uris):
            try:
                await self._subscribe(uri)
            except (MCPError, UpstreamDown) as e:
                self._unheard(
                    logging.WARNING,
                    "changes of %s are no longer received: the MCP server %s: %s",
                    uri,
                    self._name,
                    e,
                )

    async def run(self) -> None:
        """Keep a stream of notifications open on a connection of the current era, unless the server has none."""
        self._refusal, patience = None, Backoff()
        while True:
            with anyio.CancelScope() as self._stream:
                if not await self._streamed():
                    return
            if not self._stream.cancelled_caught:
                await patience.wait()

    async def _streamed(self) -> bool:
        """Run one stream until it ends; False if a further one would be refused too."""
        notifications: dict[str, Any] = {f"{kind}ListChanged": True for kind in ("tools", "prompts", "resources")}
        if self._uris:
            notifications["resourceSubscriptions"] = sorted(self._uris)
        self._id = f"listen-{next(self._ids)}"
        try:
            await self._open_stream("subscriptions/listen", {"notifications": notifications}, self._id)
        except UpstreamDown:
            return True
        except MCPError as e:
            self._refusal = e.error.message
            self._settled.set()
            return e.error.code != types.METHOD_NOT_FOUND
        return True

    async def _subscribe(self, uri: str) -> None:
        await self._request("resources/subscribe", {"uri": uri})

    async def _listen_again(self, uri: str) -> None:
        if self._refusal is None:
            self._settled.clear()
            self._restart()
            try:
                async with asyncio.timeout(self._limit_s):
                    await self._settled.wait()
            except TimeoutError as e:
                raise UpstreamDown(f"{self._prefix(uri)} no answer within {self._limit_s:g} s") from e
        if self._refusal is not None:
            raise MCPError(types.METHOD_NOT_FOUND, f"{self._prefix(uri)} {self._refusal}")
        if not self._tells_resources:
            raise MCPError(types.METHOD_NOT_FOUND, f"{self._prefix(uri)} it only notifies of lists")

    def _restart(self) -> None:
        if self._stream is not None:
            self._stream.cancel()

    def _prefix(self, uri: str) -> str:
        return f"the MCP server {self._name!r} does not notify of changes of {uri[:200]}:"
