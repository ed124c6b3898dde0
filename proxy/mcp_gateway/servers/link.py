"""One connection to an MCP server, reopened whenever it breaks.

Owns: requests with their timeouts, noticing that a server is gone or back, and which caller a server's message is for.
Refuses: agreeing on an era (`proxy.mcp_gateway.servers.handshake`), and what callers see (`proxy.mcp_gateway.gateway`).

It uses the SDK's dispatcher and not its `Client`: a gateway passes results on unchanged, and declares in each request
the capabilities of *that* caller.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal, Protocol

import anyio
import anyio.abc
import mcp_types as types
from mcp.shared.dispatcher import CallOptions, DispatchContext
from mcp.shared.exceptions import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp.shared.jsonrpc_dispatcher import JSONRPCDispatcher
from mcp.shared.subscriptions import ServerEvent, event_from_wire
from mcp.shared.transport_context import TransportContext

from proxy.errors import UpstreamDown
from proxy.mcp_gateway.exchange import CURRENT, CallerRequest
from proxy.mcp_gateway.servers import transport
from proxy.mcp_gateway.servers.handshake import AgreedProtocol, Dispatcher, usable_capabilities
from proxy.mcp_gateway.servers.listener import Backoff, Listener
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)

Greet = Callable[[Dispatcher], Awaitable[AgreedProtocol]]

_TERMINATED: Final = "Session terminated"  # the SDK's message for 404 on a session that the server forgot


class LinkWatcher(Protocol):
    """Receives what a link observes."""

    def changed(self, link: Link, event: ServerEvent) -> None:
        """A list or a resource of the server changed."""

    def moved(self, link: Link) -> None:
        """The link came up, or went down."""


@dataclass(slots=True)
class _Connection:
    dispatcher: Dispatcher
    speaks: AgreedProtocol


class Link:
    """A connection to one server. `run()` keeps it open until cancelled.

    `greet` agrees on an era; `own`: it belongs to one caller.
    """

    def __init__(
        self, name: str, settings: McpServerSettings, watcher: LinkWatcher, greet: Greet, *, own: bool = False
    ) -> None:
        self.name = name
        self.state: Literal["starting", "up", "down"] = "starting"
        self.why = "it has not answered yet"
        self.in_flight: Counter[CallerRequest] = Counter()
        self.listening = Listener(name, settings.connect_s, ready=self.ready, request=self.request, stream=self.stream)
        self._settings = settings
        self._watcher = watcher
        self._greet = greet
        self._own = own
        self._owner: CallerRequest | None = None  # the way to the caller's session that this one belongs to
        self._called = f"a caller's session at the MCP server {name}" if own else f"the MCP server {name}"
        self._connection: _Connection | None = None
        self._known = asyncio.Event()  # set: it is known whether it answers
        self._up = asyncio.Event()
        self._doubt = asyncio.Event()

    @property
    def speaks(self) -> AgreedProtocol | None:
        """The agreement of the latest connection."""
        return self._connection.speaks if self._connection is not None else None

    async def ready(self) -> AgreedProtocol:
        """Wait until it is known whether it answers. Raises UpstreamDown."""
        await self._known.wait()
        if self.state != "up" or self._connection is None:
            raise UpstreamDown(f"the MCP server {self.name!r} does not answer now: {self.why}")
        return self._connection.speaks

    @contextmanager
    def working(self, exchange: CallerRequest) -> Iterator[None]:
        """Mark the server as working for this caller's request: it may ask that caller."""
        self.in_flight[exchange] += 1
        if self._own and exchange.who.session is not None:
            self._owner = exchange
        try:
            yield
        finally:
            self.in_flight[exchange] -= 1
            self.in_flight = +self.in_flight

    async def request(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        exchange: CallerRequest | None = None,
        *,
        schema: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        """Send a request for a caller, or for Hone. Raises UpstreamDown, and MCPError with the server's own message."""
        await self.ready()
        try:
            return await self._ask(method, params, exchange, schema)
        except MCPError as e:
            if e.error.code != types.INVALID_REQUEST or e.error.message != _TERMINATED:
                raise
        # The server has restarted and knows no session: it did not process the request.
        self._lost("it ended the session")
        try:
            async with asyncio.timeout(self._settings.connect_s):
                await self._up.wait()
        except TimeoutError:
            await self.ready()
        return await self._ask(method, params, exchange, schema)

    async def _ask(
        self,
        method: str,
        params: Mapping[str, Any] | None,
        exchange: CallerRequest | None,
        schema: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        connection = self._connection
        assert connection is not None
        sent, options = self._prepared(connection.speaks, method, params, exchange, schema)
        before = CURRENT.set(exchange)
        if exchange is not None:
            options["on_progress"] = exchange.progress
        try:
            return await connection.dispatcher.send_raw_request(method, sent, options)
        except MCPError as e:
            raise self._translated(e, method) from e
        finally:
            CURRENT.reset(before)

    async def notify(self, method: str) -> None:
        """Send a notification to a server of the handshake era, if it answers."""
        if self.state == "up" and self._connection is not None and not self._connection.speaks.modern:
            headers = {MCP_PROTOCOL_VERSION_HEADER: self._connection.speaks.version}
            await self._connection.dispatcher.notify(method, None, {"headers": headers})

    async def stream(self, method: str, params: Mapping[str, Any], request_id: str) -> None:
        """Send a request that stays open until the server ends it. Raises UpstreamDown, MCPError."""
        connection = self._connection
        assert connection is not None
        sent, options = self._prepared(connection.speaks, method, params, None)
        options.pop("timeout")
        options["request_id"] = request_id
        try:
            await connection.dispatcher.send_raw_request(method, sent, options)
        except MCPError as e:
            raise self._translated(e, method) from e

    def _prepared(
        self,
        speaks: AgreedProtocol,
        method: str,
        params: Mapping[str, Any] | None,
        exchange: CallerRequest | None,
        schema: Mapping[str, Any] | None = None,
    ) -> tuple[dict[str, Any], CallOptions]:
        sent, headers = transport.stamp_request(
            method,
            params,
            speaks.version,
            modern=speaks.modern,
            capabilities=usable_capabilities(exchange),
            log_level=exchange.log_level if exchange is not None else None,
            schema=schema,
        )
        return sent, {"timeout": self._settings.timeout_s, "headers": headers}

    def _translated(self, error: MCPError, method: str) -> Exception:
        code = error.error.code
        if code == types.REQUEST_TIMEOUT and error.error.message.startswith(f"Request {method!r} timed out"):
            # One slow answer does not mean that others are slow.
            return UpstreamDown(f"the MCP server {self.name!r} did not answer within {self._settings.timeout_s:g} s")
        if code in (transport.UNREACHABLE, types.CONNECTION_CLOSED):
            self._lost(error.error.message)
            return UpstreamDown(f"the MCP server {self.name!r} does not answer now: {error.error.message}")
        return error

    def doubt(self) -> None:
        """Check this connection: another one to the same server broke."""
        if self.state == "up":
            self._known.clear()
            self._doubt.set()

    def close(self) -> None:
        """Mark it as closed: its users find it down."""
        self.state, self.why = "down", "its session has ended"
        self._up.clear()
        self._known.set()

    # --- the connection's lifetime

    async def run(self) -> None:
        """Connect, stay connected, and reconnect."""
        patience = Backoff()
        while True:
            try:
                await self._connect()
            # A boundary: any failure of a server or a transport concerns that server only.
            except Exception as e:  # noqa: BLE001
                self._down(transport.failure_reason(e, self._settings))
            await patience.wait()

    async def _connect(self) -> None:
        """Open a connection, and return when it must be reopened."""
        async with transport.open_streams(self._settings) as (read, write):
            dispatcher: Dispatcher = JSONRPCDispatcher(read, write)
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._receive, dispatcher)
                self._connection = _Connection(dispatcher, await self._greet(dispatcher))
                self._rise()
                modern = self._connection.speaks.modern
                tasks.start_soon(self.listening.run if modern else self.listening.resume)
                await self._while_known(self._connection)
                tasks.cancel_scope.cancel()

    async def _receive(
        self,
        dispatcher: Dispatcher,
        *,
        task_status: anyio.abc.TaskStatus[None] = anyio.TASK_STATUS_IGNORED,
    ) -> None:
        await dispatcher.run(self._on_request, self._on_notify, task_status=task_status)
        self._lost("it closed the connection")

    async def _while_known(self, connection: _Connection) -> None:
        """Return when the connection is useless. A server that is only away is asked until it is back."""
        while True:
            await self._doubt.wait()
            patience = Backoff()
            while self._doubt.is_set():
                if not await self._answers(connection):
                    return
                if self._doubt.is_set():
                    await patience.wait()

    async def _answers(self, connection: _Connection) -> bool:
        """Whether the server answers. False: open a new connection."""
        method = "server/discover" if connection.speaks.modern else "ping"
        sent, options = self._prepared(connection.speaks, method, None, None)
        options["timeout"] = self._settings.connect_s
        try:
            await connection.dispatcher.send_raw_request(method, sent, options)
        except MCPError as e:
            code = e.error.code
            if not connection.speaks.modern or code == types.CONNECTION_CLOSED:
                return False
            if code in (transport.UNREACHABLE, types.REQUEST_TIMEOUT):
                self._down(e.error.message)
                return True
        self._rise()
        return True

    def _lost(self, why: str) -> None:
        self._down(why)
        self._doubt.set()

    def _down(self, why: str) -> None:
        was, self.state, self.why = self.state, "down", why[:500]
        self._up.clear()
        self._known.set()
        if was != "down":
            log.warning("%s does not answer: %s", self._called, self.why)
            self._watcher.moved(self)

    def _rise(self) -> None:
        was, self.state = self.state, "up"
        self._doubt.clear()
        self._up.set()
        self._known.set()
        if was != "up":
            log.info("%s answers", self._called)
            self._watcher.moved(self)

    # --- messages from the server

    async def _on_request(
        self, ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> dict[str, Any]:
        """A question of a server of the handshake era, for the caller of its current request."""
        if method == "ping":
            return {}
        exchange = self._meant()
        if exchange is None:
            raise MCPError(types.INVALID_REQUEST, f"{method}: it belongs to no single running request")
        return await exchange.ask(method, params)

    async def _on_notify(
        self, ctx: DispatchContext[TransportContext], method: str, params: Mapping[str, Any] | None
    ) -> None:
        if method == "notifications/subscriptions/acknowledged":
            self.listening.acknowledged(params)
        elif (event := event_from_wire(method, params)) is not None:
            self._watcher.changed(self, event)
        elif method == "notifications/message" and params is not None and (exchange := self._meant()) is not None:
            await exchange.log(params)

    def _meant(self) -> CallerRequest | None:
        """The request that a message belongs to: by the stream of its arrival, else the only running one.

        A caller's own session of the handshake era has one client, so any of its requests will do, even one that has
        ended.
        """
        current = CURRENT.get()
        if current is not None:
            return current
        if self._owner is not None:
            return self._owner if self._owner in self.in_flight else self._owner.standing()
        return next(iter(self.in_flight)) if len(self.in_flight) == 1 else None
