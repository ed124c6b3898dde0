"""The gateway for MCP tools where several workers serve it: every caller meets the worker that remembers it.

Owns: whose a request is. Refuses: the gateway itself (`proxy.mcp_gateway`), and passing on (`proxy.workers.passing`).

A session of the handshake era lives at the worker that opened it: its id begins with that worker's number. The current
era has no sessions; what servers remember of its callers is a run's or a key's (`proxy.mcp_gateway.callers`), so each
of these has one worker, by its hash. A worker that was started again knows no session: its caller hears 404, as the
protocol has it, and opens a new one.
"""

from __future__ import annotations

import re
import zlib
from dataclasses import dataclass
from typing import Final

from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS

from proxy.admission.address import Stated
from proxy.admission.auth import Caller
from proxy.admission.replies import MCP_PATH, say
from proxy.errors import CallerError, ClientGone, Unavailable
from proxy.http import stopping
from proxy.http.asgi import App, Message, Receive, Scope, Send
from proxy.http.stopping import Stop
from proxy.mcp_gateway.gateway import listens
from proxy.workers.door import PASSED
from proxy.workers.passing import Passing
from proxy.workers.peers import Peers

SESSION: Final = b"mcp-session-id"
_OURS: Final = re.compile(rb"([1-9]\d{0,3})-(.+)")


@dataclass(frozen=True, slots=True)
class SharedSessions:
    """The app at `/mcp` of one worker."""

    gateway: App
    peers: Peers
    stop: Stop
    max_body_bytes: int

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve a request, here or at the worker whose it is."""
        owner, in_session = self._owner(scope)
        worker = None if scope.get(PASSED) else self.peers.at(owner)
        if worker is None:
            await self._serve(scope, receive, send)
            return
        if listens(scope):
            stopping.listens(scope)
        passing = Passing(scope, receive, send, self.stop, self.max_body_bytes)
        try:
            if await passing.to(worker):
                return
            if not in_session:
                raise Unavailable(f"worker {owner} of this proxy is starting again: ask again in a moment.")
        except ClientGone:
            return
        except CallerError as e:
            await say(send, MCP_PATH, e)
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
    stated: Stated = scope["hone.stated"]
    caller: Caller = scope["hone.caller"]
    at = stated.address
    return repr((at.group or "", at.trajectory) if at.trajectory is not None else caller.key).encode()
