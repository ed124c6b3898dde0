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
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
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
from proxy.mcp_gateway.servers.answers import MOST_VALUES, AnswerTooLarge, TooManyValues, UnreadableAnswer
from proxy.mcp_gateway.servers.handshake import AgreedProtocol, Dispatcher, usable_capabilities
from proxy.mcp_gateway.servers.listener import Backoff, Listener
from proxy.settings.mcp import McpServerSettings

log = logging.getLogger(__name__)

Greet = Callable[[Dispatcher], Awaitable[AgreedProtocol]]

_DRAIN_S: Final = 1.0  # how long a connection whose session is unknown stays open for its other requests


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
    session_lost: bool = False
    in_flight: int = 0
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # set: it has no request

    async def send(self, method: str, params: Mapping[str, Any], options: CallOptions) -> dict[str, Any]:
        """Send a request. Raises as `transport.send_request`."""
        self.in_flight += 1
        self.idle.clear()
        try:
            return await transport.send_request(self.dispatcher, method, params, options)
        finally:
            self.in_flight -= 1
            if not self.in_flight:
                self.idle.set()


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
        self._closed = False
        self._asked = 0  # requests that wait for an answer
        self._known = asyncio.Event()  # set: it is known whether it answers
        self._doubt = asyncio.Event()

    @property
    def speaks(self) -> AgreedProtocol | None:
        """The agreement of the latest connection."""
        return self._connection.speaks if self._connection is not None else None

    @property
    def busy(self) -> bool:
        """Whether a request or a subscription needs it now."""
        return bool(self.in_flight) or self._asked > 0 or self.listening.busy

    async def ready(self) -> AgreedProtocol:
        """Wait until it is known whether it answers. Raises UpstreamDown."""
        return (await self._current()).speaks

    async def _current(self) -> _Connection:
        await self._known.wait()
        if self.state != "up" or self._connection is None:
            raise UpstreamDown(f"the MCP server {self.name!r} does not answer now: {self.why}")
        return self._connection

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
        """Send a request for a caller, or for Hone.

        A server that does not know the session, because it restarted, has refused the request: it is sent again, once,
        in a new session. Raises UpstreamDown, and MCPError with the server's own message.
        """
        self._asked += 1
        try:
            connection = await self._current()
            try:
                return await self._ask(connection, method, params, exchange, schema)
            except transport.SessionUnknown as e:
                if not e.certain and await self._knows_session(connection):
                    raise e.refusal from e
            self._renew(connection)
            try:
                async with asyncio.timeout(_DRAIN_S + self._settings.connect_s):
                    connection = await self._current()
                return await self._ask(connection, method, params, exchange, schema)
            except TimeoutError as e:
                raise UpstreamDown(f"the MCP server {self.name!r} began no new session in time") from e
            except transport.SessionUnknown as e:
                raise e.refusal from e  # it forgets each session at once: a third try would not help
        finally:
            self._asked -= 1

    async def _ask(
        self,
        connection: _Connection,
        method: str,
        params: Mapping[str, Any] | None,
        exchange: CallerRequest | None,
        schema: Mapping[str, Any] | None,
    ) -> dict[str, Any]:
        """Send a request once. Raises UpstreamDown, MCPError, SessionUnknown."""
        sent, options = self._prepared(connection.speaks, method, params, exchange, schema)
        before = CURRENT.set(exchange)
        if exchange is not None:
            options["on_progress"] = exchange.progress
        try:
            return await connection.send(method, sent, options)
        except (MCPError, UpstreamDown) as e:
            raise self._translated(e, method, connection) from e
        finally:
            CURRENT.reset(before)

    async def _knows_session(self, connection: _Connection) -> bool:
        """Whether the server knows the session of a connection: it then answers a ping, if with an error."""
        sent, options = self._prepared(connection.speaks, "ping", None, None)
        options["timeout"] = self._settings.connect_s
        try:
            await connection.send("ping", sent, options)
        except transport.SessionUnknown:
            return False
        except (MCPError, UpstreamDown):
            pass
        return True

    def _renew(self, connection: _Connection) -> None:
        """Begin a new session in place of one that the server does not know; requests wait for it."""
        if connection is not self._connection or connection.session_lost:
            return  # another request has done so
        log.info("%s does not know the session any more: a new one is begun", self._called)
        connection.session_lost = True
        self.state = "starting"
        self._known.clear()
        self._doubt.set()

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
            await connection.send(method, sent, options)
        except (MCPError, UpstreamDown) as e:
            raise self._translated(e, method, connection) from e

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

    def _translated(self, error: MCPError | UpstreamDown, method: str, connection: _Connection) -> Exception:
        """An error of a request as its caller gets it. The server's own errors stay as they are."""
        if isinstance(error, TooManyValues):
            return AnswerTooLarge(
                f"the MCP server {self.name!r} answered {method} with more than {MOST_VALUES} JSON values, "
                "the most that Hone reads: ask for less"
            )
        if isinstance(error, AnswerTooLarge):
            return AnswerTooLarge(
                f"the MCP server {self.name!r} answered {method} with more than {self._settings.max_answer_mib:g} MiB, "
                f"the limit of `max_answer_mib` in [mcp.{self.name}]: ask for less, or raise the limit"
            )
        if isinstance(error, UnreadableAnswer):
            return UnreadableAnswer(f"the answer of the MCP server {self.name!r} to {method} cannot be read: {error}")
        if isinstance(error, UpstreamDown):
            if connection is self._connection and not connection.session_lost:
                self._lost(str(error))
            return UpstreamDown(f"the MCP server {self.name!r} does not answer now: {error}")
        code, message = error.error.code, error.error.message
        if code == types.REQUEST_TIMEOUT and message == f"Request {method!r} timed out":
            # One slow answer does not mean that others are slow.
            return UpstreamDown(f"the MCP server {self.name!r} did not answer within {self._settings.timeout_s:g} s")
        return error

    def doubt(self) -> None:
        """Check this connection: another one to the same server broke."""
        if self.state == "up":
            self._known.clear()
            self._doubt.set()

    def close(self) -> None:
        """Mark it as closed, before `run()` is cancelled: its users find it down."""
        self._closed = True
        self.state, self.why = "down", "its session has ended"
        self._known.set()

    # --- the connection's lifetime

    async def run(self) -> None:
        """Connect, stay connected, and reconnect."""
        patience = Backoff()
        while True:
            try:
                if await self._connect():
                    continue
            # A boundary: any failure of a server or a transport concerns that server only.
            except Exception as e:  # noqa: BLE001
                if self._closed:
                    return  # an error of a stream that is closing may replace the cancellation
                self._down(transport.failure_reason(e, self._settings))
            await patience.wait()

    async def _connect(self) -> bool:
        """Open a connection, and return when it must be reopened. Whether requests wait for a new session."""
        async with transport.open_streams(self._settings) as (read, write):
            dispatcher: Dispatcher = JSONRPCDispatcher(read, write)
            async with anyio.create_task_group() as tasks:
                await tasks.start(self._receive, dispatcher)
                connection = self._connection = _Connection(dispatcher, await self._greet(dispatcher))
                self._rise()
                modern = connection.speaks.modern
                tasks.start_soon(self.listening.run if modern else self.listening.resume)
                await self._while_known(connection)
                tasks.cancel_scope.cancel()
        return connection.session_lost

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
            if connection.session_lost:
                await self._drained(connection)
                return
            patience = Backoff()
            while self._doubt.is_set():
                if connection.session_lost or not await self._answers(connection):
                    return
                if self._doubt.is_set():
                    await patience.wait()

    @staticmethod
    async def _drained(connection: _Connection) -> None:
        """Wait for other requests in a session that the server does not know: they are refused too, and sent again."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_DRAIN_S):
                await connection.idle.wait()

    async def _answers(self, connection: _Connection) -> bool:
        """Whether the server answers. False: open a new connection."""
        method = "server/discover" if connection.speaks.modern else "ping"
        sent, options = self._prepared(connection.speaks, method, None, None)
        options["timeout"] = self._settings.connect_s
        try:
            await connection.send(method, sent, options)
        except transport.SessionUnknown:
            return False
        except (MCPError, UpstreamDown) as e:
            if not connection.speaks.modern or isinstance(e, transport.ConnectionEnded):
                return False
            if isinstance(e, UpstreamDown) or e.error.code == types.REQUEST_TIMEOUT:
                self._down(str(e))
                return True
        self._rise()
        return True

    def _lost(self, why: str) -> None:
        self._down(why)
        self._doubt.set()

    def _down(self, why: str) -> None:
        was, self.state, self.why = self.state, "down", why[:500]
        self._known.set()
        if was != "down":
            log.warning("%s does not answer: %s", self._called, self.why)
            self._watcher.moved(self)

    def _rise(self) -> None:
        was, self.state = self.state, "up"
        self._doubt.clear()
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
