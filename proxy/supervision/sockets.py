"""The proxy's TCP socket, for one process or shared by several.

Owns: binding, listening, and their errors. Refuses: serving (`proxy.supervision.serve`). Imports no server, so that a
program whose workers serve stays small.
"""

from __future__ import annotations

import contextlib
import errno
import socket
from collections.abc import Iterator
from typing import Final

from proxy.errors import ConfigError, PortInUse

BACKLOG: Final = 2048


def listen(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A listening socket; port 0 selects a free one. Raises PortInUse, or ConfigError for an unusable address.

    `shared`: with other processes of this user (SO_REUSEPORT); the kernel distributes the connections.
    """
    sock = bind(host, port, shared=shared)
    with _translate_errors(sock, host, port):
        sock.listen(BACKLOG)
        sock.setblocking(False)
    return sock


def bind(host: str, port: int, *, shared: bool = False) -> socket.socket:
    """A bound socket that does not listen yet. Raises as `listen`."""
    try:
        family, kind, proto, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        sock = socket.socket(family, kind, proto)
    except OSError as e:
        raise ConfigError(f"cannot listen on {host!r}: {e}. Set `host` in [proxy].") from e
    with _translate_errors(sock, host, port):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if shared:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(address)
    return sock


@contextlib.contextmanager
def _translate_errors(sock: socket.socket, host: str, port: int) -> Iterator[None]:
    """After an OSError, close the socket and raise PortInUse or ConfigError."""
    try:
        yield
    except OSError as e:
        sock.close()
        if e.errno == errno.EADDRINUSE:
            raise PortInUse(
                f"port {port} on {host} is in use by another program: stop it, or choose another port with --port."
            ) from e
        raise ConfigError(f"cannot listen on {host}:{port}: {e}. Set `host` and `port` in [proxy].") from e
