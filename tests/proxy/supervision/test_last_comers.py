"""The end of a listening socket: who is connected is accepted, who is not is turned away without a reset."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Iterator

import pytest

from proxy.supervision.draining import close_listener, wait_for_requests


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        sock.listen(8)
        sock.setblocking(False)
        yield sock


@pytest.mark.skipif(sys.platform != "linux", reason="the socket filter is Linux's")
async def test_who_is_connected_stays_and_nobody_else_gets_through(listening: socket.socket) -> None:
    with socket.create_connection(listening.getsockname()) as before:
        await close_listener([listening])
        with socket.socket() as after:
            after.setblocking(False)
            connecting = asyncio.ensure_future(asyncio.get_running_loop().sock_connect(after, listening.getsockname()))
            accepted, _ = listening.accept()
            with pytest.raises(BlockingIOError):
                listening.accept()
            listening.close()
            with pytest.raises(ConnectionRefusedError):  # by the kernel, when the client tries again
                await connecting
        with accepted:
            before.sendall(b"hello")
            assert await asyncio.to_thread(accepted.recv, 5) == b"hello"


async def test_silence_is_waited_out_and_no_longer() -> None:
    looks = iter([True, True, False])
    await wait_for_requests(lambda: next(looks))
    assert next(looks, None) is None
    await wait_for_requests(lambda: True)
