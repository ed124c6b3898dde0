"""The socket and the HTTP server around the app.

Owns: listening, signals, stopping in an orderly way. Refuses: routes.

uvicorn, because it tells a handler that the client hung up while it still works on an answer, streaming or not, waits
for slow readers, and serves raw ASGI on httptools and uvloop; granian measured alike (benchmarks/upstream.py).
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import gc
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from types import FrameType

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from proxy.errors import ConfigError, PortInUse
from proxy.http.asgi import App
from proxy.programs import last_comers
from proxy.programs.app import HoneApp
from proxy.programs.draining import Draining

BACKLOG = 2048
Beside = Callable[[App], AbstractAsyncContextManager[None]]
KEEP_ALIVE_S = 75  # longer than agents' clients keep an idle connection, so that it is they who close it


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortInUse, or ConfigError for an address not ours.

    `shared`: with other processes of this user that listen so; the kernel gives each a part of what comes.
    """
    sock = bind(host, port, shared=shared)
    with _told(sock, host, port):
        sock.listen(BACKLOG)
        sock.setblocking(False)
    return sock


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A socket that has the address and does not listen yet. Raises as `listen`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as e:
        raise ConfigError(f"cannot listen on {host!r}: {e}. Set `host` in [proxy].") from e
    with _told(sock, host, port):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    return sock


@contextlib.contextmanager
def _told(sock: socket.socket, host: str, port: int) -> Iterator[None]:
    """Close the socket where it cannot be had, and say why."""
    try:
        yield
    except OSError as e:
        sock.close()
        if e.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use by another program: stop it, or choose another port with --port."
            ) from e
        raise ConfigError(f"cannot listen on {host}:{port}: {e}. Set `host` and `port` in [proxy].") from e


async def serve(
    app: HoneApp,
    sock: socket.socket,
    *,
    stop_timeout_s: float = 30.0,
    beside: Beside | None = None,
) -> None:
    """Serve on `sock` until SIGINT or SIGTERM, or until cancelled; running requests may go on for `stop_timeout_s`.

    What runs for longer is ended in words. Until the last has ended, new requests are answered with 503. `beside` is
    given the app as it is served, for what reaches it otherwise.
    """
    draining = Draining(app, app.stop)
    config = uvicorn.Config(
        draining,
        http="httptools",
        ws="none",
        lifespan="off",  # entered here, so that what fails while starting reaches our caller
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # who the peer is decides what it may do: no header may say so
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=1,  # nothing runs by then: `Draining` has ended it
    )
    async with app.running(), beside(draining) if beside is not None else contextlib.nullcontext():
        gc.collect()
        gc.freeze()  # what was imported is not walked again by every full collection
        await _until_stopped(_Server(config, draining, stop_timeout_s), sock)


async def _until_stopped(server: _Server, sock: socket.socket) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.end()
        await serving
        raise


class _Server(uvicorn.Server):
    """uvicorn's, which listens until the last request has ended, and leaves it at a signal instead of raising it."""

    def __init__(self, config: uvicorn.Config, draining: Draining, stop_timeout_s: float) -> None:
        super().__init__(config)
        self._draining = draining
        self._stop_timeout_s = stop_timeout_s
        self._ending = asyncio.Event()

    def end(self) -> None:
        """Stop serving."""
        self.should_exit = True
        self._ending.set()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """As uvicorn's, and end at once."""
        super().handle_exit(sig, frame)
        self._ending.set()

    async def main_loop(self) -> None:
        """As uvicorn's, which looks ten times a second whether it is to end: here the end wakes it.

        What it does every tenth time, the date of answers, it does every time here: once a second.
        """
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._ending.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """End what runs while the socket still listens, then close it without a reset for who just came."""
        await self._draining.drain(self._stop_timeout_s, lambda: self.force_exit)
        await last_comers.turn_away(sockets or ())
        for server in self.servers:
            server.close()
        await last_comers.until_heard(self._silent)
        await super().shutdown(sockets)

    def _silent(self) -> bool:
        """Whether a connection was made on which no request has begun. Who waits for a second one has been told."""
        made = self.server_state.connections
        return any(one.cycle is None for one in made if isinstance(one, HttpToolsProtocol))

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """End on SIGINT and SIGTERM; the second one does not wait for running requests."""
        loop, caught = asyncio.get_running_loop(), (signal.SIGINT, signal.SIGTERM)
        with contextlib.suppress(RuntimeError, ValueError):  # not the main thread: whoever runs us stops us
            for number in caught:
                loop.add_signal_handler(number, self.handle_exit, number, None)
        try:
            yield
        finally:
            with contextlib.suppress(RuntimeError, ValueError):
                for number in caught:
                    loop.remove_signal_handler(number)
