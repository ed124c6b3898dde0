"""A worker's unix socket, which only its owner can use.

Owns: the socket, and what siblings ask there: the worker's metrics, the end of a background response, and requests of
clients that reached another worker. Refuses: finding and asking other workers (`proxy.worker_ipc.peers`).

The client's address that a sibling reports is trusted: the sibling runs as the same user, who could read the store and
the keys too.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Final
from urllib.parse import unquote

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.server import ServerState

from proxy.http.asgi import App, Receive, Scope, Send, respond
from proxy.worker_ipc.peers import BACKGROUND, FIGURES
from recorder.processes import file_modes

CLIENT: Final = b"x-hone-client"  # the client's address of a forwarded request
PASSED: Final = "hone.passed"  # the scope's key of a forwarded request
_TEXT: Final = b"text/plain; charset=utf-8"
_BACKLOG: Final = 128


class WorkerSocket:
    """What siblings reach at one worker. `async with socket.open(app):` while it serves."""

    def __init__(self, path: Path, *, figures: Callable[[], bytes], cancel: Callable[[str], Awaitable[bool]]) -> None:
        self._path = path
        self._figures = figures
        self._cancel = cancel

    @contextlib.asynccontextmanager
    async def open(self, app: App) -> AsyncIterator[None]:
        """Serve siblings; `app` gets the requests of clients that they forward."""
        state = ServerState()
        config = uvicorn.Config(
            self._served(app), ws="none", lifespan="off", access_log=False, log_config=None, proxy_headers=False,
            server_header=False, date_header=False,
        )  # fmt: skip
        config.load()
        sock = _listen(self._path)
        server = await asyncio.get_running_loop().create_unix_server(
            lambda: HttpToolsProtocol(config, state, {}), sock=sock
        )
        try:
            yield
        finally:
            server.close()
            for connection in list(state.connections):
                connection.shutdown()
            self._path.unlink(missing_ok=True)

    def _served(self, app: App) -> App:
        async def serve(scope: Scope, receive: Receive, send: Send) -> None:
            path: str = scope["path"]
            if path == FIGURES:
                await respond(send, 200, self._figures(), _TEXT)
            elif path.startswith(BACKGROUND):
                ended = await self._cancel(unquote(path.removeprefix(BACKGROUND)))
                await respond(send, 200 if ended else 404, b"", _TEXT)
            else:
                await app(_as_it_came(scope), receive, send)

        return serve


def _as_it_came(scope: Scope) -> Scope:
    """A forwarded request, as its first worker received it."""
    client = dict(scope["headers"]).get(CLIENT, b"").decode("latin-1")
    scope["headers"] = [(name, value) for name, value in scope["headers"] if name != CLIENT]
    scope["client"] = (client, 0) if client else None
    scope[PASSED] = True
    return scope


def _listen(path: Path) -> socket.socket:
    path.unlink(missing_ok=True)  # left by a killed worker of this number
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.bind(str(path))
    path.chmod(file_modes.FILE)  # before it listens, so that no other user can connect
    sock.listen(_BACKLOG)
    sock.setblocking(False)
    return sock
