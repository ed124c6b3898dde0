"""Forwarding of a client's request to another worker, and the choice of the worker for the MCP gateway.

Owns: relaying one request and its answer, and which worker serves a caller of `/mcp`. Refuses: the gateway itself
(`proxy.mcp_gateway`).

A session of the handshake era lives in the worker that opened it, and its id begins with that worker's number. The
current era has no sessions; the state that servers keep belongs to a trajectory or a key
(`proxy.mcp_gateway.exchange`), and a hash of either chooses the worker. A restarted worker knows no session: its caller
gets 404, as the protocol requires, and opens a new one.
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

# Hop-by-hop headers (RFC 9110, 7.6.1), and the length, which follows from the body that is sent.
_OF_A_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"content-length"}
)


@dataclass(slots=True)
class ForwardedRequest:
    """One request that is forwarded."""

    scope: Scope
    receive: Receive
    send: Send
    stop: Shutdown
    limit_bytes: int
    begun: bool = field(default=False, init=False)  # whether the client has received the headers of its answer
    _body: bytes | None = field(default=None, init=False)  # the body that was read and not delivered yet

    async def to(self, worker: aiohttp.ClientSession) -> bool:
        """Relay the request to another worker; False if it does not answer. Raises ShuttingDown before an answer has
        begun.
        """
        body = await read_body(dict(self.scope["headers"]), self.receive, self.limit_bytes)
        self._body = body
        try:
            async with DisconnectWatch(self.receive, self.stop):
                await self._relay(worker, body)
        except aiohttp.ClientError:
            return self.begun  # an answer that broke off ends without its last chunk, as it did there
        except ClientDisconnected:
            return True  # this closes the connection to the worker too, which notices it
        except ShuttingDown:
            if not self.begun:
                raise
            await self.send({"type": "http.response.body"})
        return True

    async def again(self) -> Message:
        """As `receive`, for the app that serves the request after all."""
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
    """The URL with the path as the client wrote it, which includes the address of its trajectory."""
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
        """Serve a request here, or forward it to the worker that owns it."""
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
                raise Unavailable(f"worker {owner} of this proxy is restarting: send the request again in a moment.")
        except ClientDisconnected:
            return
        except CallerError as e:
            await send_error(send, MCP_PATH, e)
            return
        await self._serve(scope, passing.again, send)  # no worker knows the session: the SDK answers with its error

    def _owner(self, scope: Scope) -> tuple[int, bool]:
        """The number of a worker, and whether a session names it."""
        headers = dict(scope["headers"])
        version = headers.get(b"mcp-protocol-version")
        if version is not None and version.decode("latin-1") not in HANDSHAKE_PROTOCOL_VERSIONS:
            return 1 + zlib.crc32(_caller(scope)) % self.peers.count, False
        session = _OURS.fullmatch(headers.get(SESSION, b""))
        return (int(session[1]), True) if session else (self.peers.own, False)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        own = b"%d-" % self.peers.own

        async def send_prefixed(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = [(n, own + v if n.lower() == SESSION else v) for n, v in message["headers"]]
                message = {**message, "headers": headers}
            await send(message)

        headers = [(n, v.removeprefix(own) if n == SESSION else v) for n, v in scope["headers"]]
        await self.gateway({**scope, "headers": headers, "hone.headers": dict(headers)}, receive, send_prefixed)


def _caller(scope: Scope) -> bytes:
    """The identity that servers with state see for a caller of the current era: its trajectory if it stated one, else
    its key.
    """
    stated: StatedAddress = scope["hone.stated"]
    caller: Caller = scope["hone.caller"]
    at = stated.address
    return repr((at.group or "", at.trajectory) if at.trajectory is not None else caller.key).encode()
