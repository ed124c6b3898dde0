"""A client's request passed on to another worker, and its answer passed back as it comes.

Owns: one request on its way. Refuses: choosing the worker (`proxy.workers.sessions`).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

import aiohttp
from yarl import URL

from proxy.errors import ClientGone
from proxy.http.asgi import Connected, Message, RawHeaders, Receive, Scope, Send, read_body
from proxy.http.stopping import Stop, Stopping
from proxy.workers.door import CLIENT
from proxy.workers.peers import ORIGIN

# Between two hops alone (RFC 9110, 7.6.1), and the length, which is the body's that we send.
_OF_A_HOP: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"te", b"transfer-encoding", b"upgrade", b"content-length"}
)


@dataclass(slots=True)
class Passing:
    """One request."""

    scope: Scope
    receive: Receive
    send: Send
    stop: Stop
    limit_bytes: int
    begun: bool = field(default=False, init=False)  # whether the client has the head of its answer
    _body: bytes | None = field(default=None, init=False)  # what was read and nobody has heard yet

    async def to(self, worker: aiohttp.ClientSession) -> bool:
        """Have another worker answer; False: it is not there. Raises Stopping before an answer has begun."""
        body = await read_body(dict(self.scope["headers"]), self.receive, self.limit_bytes)
        self._body = body
        try:
            async with Connected(self.receive, self.stop):
                await self._relay(worker, body)
        except aiohttp.ClientError:
            return self.begun  # what broke in the middle ends without its last chunk, as it did there
        except ClientGone:
            return True  # the connection to the worker is closed with it, and tells it so
        except Stopping:
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
