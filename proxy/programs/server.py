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
from collections.abc import Iterator

import uvicorn

from proxy.errors import ConfigError, PortInUse
from proxy.programs.app import HoneApp

BACKLOG = 2048
ENDING_S = 5.0  # how long cancelled requests may take to be recorded and answered
KEEP_ALIVE_S = 75  # longer than agents' clients keep an idle connection, so that it is they who close it


def listen(host: str, port: int) -> socket.socket:
    """A listening socket; port 0 takes a free one. Raises PortInUse, or ConfigError for an address not ours."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as e:
        raise ConfigError(f"cannot listen on {host!r}: {e}. Set `host` in [proxy].") from e
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.bind(address)
        sock.listen(BACKLOG)
        sock.setblocking(False)
    except OSError as e:
        sock.close()
        if e.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use by another program: stop it, or choose another port with --port."
            ) from e
        raise ConfigError(f"cannot listen on {host}:{port}: {e}. Set `host` and `port` in [proxy].") from e
    return sock


async def serve(app: HoneApp, sock: socket.socket, *, stop_timeout_s: float = 30.0) -> None:
    """Serve on `sock` until SIGINT or SIGTERM, or until cancelled; running requests may go on for `stop_timeout_s`."""
    config = uvicorn.Config(
        app,
        http="httptools",
        ws="none",
        lifespan="off",  # entered here, so that what fails while starting reaches our caller
        access_log=False,
        log_config=None,
        server_header=False,
        proxy_headers=False,  # who the peer is decides what it may do: no header may say so
        timeout_keep_alive=KEEP_ALIVE_S,
        timeout_graceful_shutdown=max(1, round(stop_timeout_s)),
    )
    async with app.running():
        gc.collect()
        gc.freeze()  # what was imported is not walked again by every full collection
        await _until_stopped(_Server(config), sock)


async def _until_stopped(server: uvicorn.Server, sock: socket.socket) -> None:
    serving = asyncio.ensure_future(server.serve(sockets=[sock]))
    try:
        await asyncio.shield(serving)
    except asyncio.CancelledError:
        server.should_exit = True
        await serving
        raise


class _Server(uvicorn.Server):
    """uvicorn's, which ends on a signal and then leaves it at that, instead of raising it again.

    Requests that it cancels, since they took longer than it waits, are recorded and answered before it ends.
    """

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Stop to take requests, and end those that run."""
        await super().shutdown(sockets)
        if self.server_state.tasks and not self.force_exit:
            await asyncio.wait(set(self.server_state.tasks), timeout=ENDING_S)

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
