"""A client's request passed on to another worker, and its answer passed back as it comes.

Owns: one request on its way. Refuses: choosing the worker (`proxy.worker_ipc.forwarding`).

The gateway for MCP tools where several workers serve it: every caller meets the worker that remembers it.

Owns: whose a request is. Refuses: the gateway itself (`proxy.mcp_gateway`), and passing on
(`proxy.worker_ipc.forwarding`).

A session of the handshake era lives at the worker that opened it: its id begins with that worker's number. The current
era has no sessions; what servers remember of its callers is a run's or a key's (`proxy.mcp_gateway.exchange`), so each
of these has one worker, by its hash. A worker that was started again knows no session: its caller hears 404, as the
protocol has it, and opens a new one.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from yarl import URL

from proxy.admission.address import StatedAddress
from proxy.admission.auth import Caller
from proxy.admission.replies import MCP_PATH, send_error
from proxy.errors import CallerError, ClientDisconnected, Unavailable
from proxy.http import shutdown
from proxy.http.asgi import App, DisconnectWatch, Message, RawHeaders, Receive, Scope, Send, read_body
from proxy.http.shutdown import Shutdown, ShuttingDown
from proxy.mcp_gateway.gateway import is_endless
from proxy.worker_ipc.peers import ORIGIN, WorkerPeers
from proxy.worker_ipc.worker_socket import CLIENT, PASSED

# Between two hops alone (RFC 9110, 7.6.1), and the length, which is the body's that we send.
_OF_A_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"content-length"}
)


@dataclass(slots=True)
class ForwardedRequest:
    """One request."""

    scope: Scope
    receive: Receive
    send: Send
    stop: Shutdown
    limit_bytes: int
    begun: bool = field(default=False, init=False)  # whether the client has the head of its answer
    _body: bytes | None = field(default=None, init=False)  # what was read and nobody has heard yet

    async def to(self, worker: aiohttp.ClientSession) -> bool:
        """Have another worker answer; False: it is not there. Raises Stopping before an answer has begun."""
        body = await read_body(dict(self.scope["headers"]), self.receive, self.limit_bytes)
        self._body = body
        try:
            async with DisconnectWatch(self.receive, self.stop):
                await self._relay(worker, body)
        except aiohttp.ClientError:
            return self.begun  # what broke in the middle ends without its last chunk, as it did there
        except ClientDisconnected:
            return True  # the connection to the worker is closed with it, and tells it so
        except ShuttingDown:
            if not self.begun:
                raise
            await self.send({"type": "http.response.body"})
        return True

    async def again(self) -> Message:
        """As `receive`, for whoever serves the request after all."""
        if self._body is None:
            return await self.receive()
        body, self._body = self._body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def _relay(self, worker: aiohttp.ClientSession, body: bytes) -> None:
        headers = _pairs([*_kept(self.scope["headers"]), *self._client()])
        async with worker.request(
            self.scope["method"], _target(self.scope), data=body or None, headers=headers, allow_redirects=False,
            skip_auto_headers=("user-agent", "accept", "accept-encoding", "content-type"),
        ) as answer:  # fmt: skip
            await self.send(
                {"type": "http.response.start", "status": answer.status, "headers": list(_kept(answer.raw_headers))}
            )
            self.begun = True
            async for chunk in answer.content.iter_any():
                await self.send({"type": "http.response.body", "body": chunk, "more_body": True})
        await self.send({"type": "http.response.body"})

    def _client(self) -> RawHeaders:
        client = self.scope.get("client")
        return [(CLIENT, str(client[0]).encode())] if client else []


def _target(scope: Scope) -> URL:
    """The path as the client wrote it: the address of its run stands in it."""
    query: bytes = scope.get("query_string", b"")
    return URL(ORIGIN + (scope["hone.asked"] + (b"?" + query if query else b"")).decode("latin-1"), encoded=True)


def _kept(headers: RawHeaders | tuple[tuple[bytes, bytes], ...]) -> Iterator[tuple[bytes, bytes]]:
    for name, value in headers:
        if name.lower() not in _OF_A_HOP and name.lower() != CLIENT:
            yield name.lower(), value


def _pairs(headers: RawHeaders) -> list[tuple[str, str]]:
    return [(name.decode("latin-1"), value.decode("latin-1")) for name, value in headers]


SESSION: Final = b"mcp-session-id"
_OURS: Final = re.compile(rb"([1-9]\d{0,3})-(.+)")


@dataclass(frozen=True, slots=True)
class SharedSessions:
    """The app at `/mcp` of one worker."""

    gateway: App
    peers: WorkerPeers
    stop: Shutdown
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, here or at the worker whose it is."""
        owner, in_session = self._owner(scope)
        worker = None if scope.get(PASSED) else self.peers.at(owner)
        if worker is None:
            await self._serve(scope, receive, send)
            return
        if is_endless(scope):
            shutdown.mark_endless(scope)
        passing = ForwardedRequest(scope, receive, send, self.stop, self.max_body_bytes)
        try:
            if await passing.to(worker):
                return
            if not in_session:
                raise Unavailable(f"worker {owner} of this proxy is starting again: ask again in a moment.")
        except ClientDisconnected:
            return
        except CallerError as e:
            await send_error(send, MCP_PATH, e)
            return
        await self._serve(
            scope, passing.again, send
        )  # nobody knows the session any more, and the SDK has the words for it

    def _owner(self, scope: Scope) -> tuple[int, bool]:
        """The number of a worker, and whether it is that of a session."""
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version")
        if version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS:
            return 1 + zlib.crc32(_caller(scope)) % self.peers.count, False
        session = _OURS.fullmatch(headers.get(SESSION, b""))
        return (int(session[1]), True) if session else (self.peers.own, False)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = b"%d-" % self.peers.own

        async def told(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(n, own + v if n.lower() == SESSION else v) for n, v in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        headers = [(n, v.removeprefix(own) if n == SESSION else v) for n, v in scope["headers"]]
        await self.gateway({**scope, "headers": headers, "hone.headers": dict(headers)}, receive, told)


def _caller(scope: Scope) -> bytes:
    """Who a caller of the current era is to a server that remembers: its run if it stated one, else its key."""
    stated: StatedAddress = scope["hone.stated"]
    caller: Caller = scope["hone.caller"]
    at = stated.address
    return repr((at.group or "", at.trajectory) if at.trajectory is not None else caller.key).encode()
