"""The end of a listening socket, without a reset for who comes just then.

Owns: turning away who is not connected yet, and waiting for what those who are have to say. Refuses: what they are told
(`proxy.programs.draining`), and when (`proxy.programs.server`).

The kernel connects clients to a socket that listens before the program hears of them, and resets those whom it has not
heard of when the socket is closed. Who is turned away first tries again a second later, and is refused in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import socket
import struct
import sys
from collections.abc import Callable, Iterable
from typing import Final

LINGER_S: Final = 0.05  # for connections that were made already to be accepted
SILENT_S: Final = 1.0  # for who connected to begin a request; longer than a busy client needs
_LOOKS: Final = 100

# Linux's socket filter (SO_ATTACH_FILTER, linux/filter.h), which sees TCP's header: what asks to connect is dropped.
_ATTACH_FILTER: Final = 26
_NO_SYN: Final = b"".join(
    struct.pack("HBBI", *instruction)
    for instruction in (
        (0x30, 0, 0, 13),  # load the byte of the flags
        (0x45, 0, 1, 0x02),  # is SYN among them?
        (0x06, 0, 0, 0),  # then drop it,
        (0x06, 0, 0, 0xFFFFFFFF),  # else keep it whole
    )
)


async def turn_away(sockets: Iterable[socket.socket]) -> None:
    """Let nobody connect any more; returns when those who had connected were accepted."""
    for sock in sockets:
        sock.listen(0)  # where there is no filter, the kernel queues one at most
        if sys.platform == "linux":
            _drop_new(sock)
    await asyncio.sleep(LINGER_S)


def _drop_new(sock: socket.socket) -> None:
    code = ctypes.create_string_buffer(_NO_SYN)
    program = struct.pack("HP", len(_NO_SYN) // 8, ctypes.addressof(code))
    with contextlib.suppress(OSError):  # a kernel or a sandbox without: the short queue has to do
        sock.setsockopt(socket.SOL_SOCKET, _ATTACH_FILTER, program)


async def until_heard(silent: Callable[[], bool]) -> None:
    """Wait until every connection has begun a request, though not long for one that says nothing."""
    for _ in range(_LOOKS):
        if not silent():
            return
        await asyncio.sleep(SILENT_S / _LOOKS)
