"""The workers of one `hone serve --workers N`, as one of them or their parent sees them.

Owns: their numbers, their sockets, and requests to them. Refuses: what is answered (`proxy.worker_ipc.worker_socket`),
and forwarding clients' requests (`proxy.worker_ipc.forwarding`).

A worker has a number from 1 on, which it keeps when it is restarted. Its unix socket has that name, in a folder that
only its owner can enter. There is no other registry: a worker is alive if it answers.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final
from urllib.parse import quote

import aiohttp

ANSWER_S: Final = 2.0  # time limit for a worker's metrics: a busy one is not dead
CONNECT_S: Final = 2.0
FIGURES: Final = "/workers/figures"
BACKGROUND: Final = "/workers/background/"
ORIGIN: Final = "http://worker"  # HTTP needs a host; the socket decides
_GONE: Final = (aiohttp.ClientError, OSError, TimeoutError)


class WorkerPeers:
    """The workers that share one folder. `async with peers.running():` around requests."""

    def __init__(self, folder: Path, own: int, count: int) -> None:
        self.own = own  # 0: the parent
        self.count = count
        self._folder = folder
        self._sessions: dict[int, aiohttp.ClientSession] = {}

    @property
    def others(self) -> list[int]:
        """The numbers of all other workers."""
        return [number for number in range(1, self.count + 1) if number != self.own]

    def socket_path(self, number: int) -> Path:
        """Return the unix socket of a worker."""
        return self._folder / f"{number}.sock"

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Open sessions to the others until the block ends."""
        self._sessions = {number: self._session(number) for number in self.others}
        try:
            yield
        finally:
            await asyncio.gather(*(session.close() for session in self._sessions.values()))

    def _session(self, number: int) -> aiohttp.ClientSession:
        connector = aiohttp.UnixConnector(path=str(self.socket_path(number)), limit=0)  # streams stay open
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_S)
        return aiohttp.ClientSession(connector=connector, timeout=timeout, auto_decompress=False)

    def at(self, number: int) -> aiohttp.ClientSession | None:
        """Return the session to a worker; None for ourselves and for an unknown number."""
        return self._sessions.get(number)

    async def figures(self) -> dict[int, bytes | None]:
        """Return the `/metrics` text of every other worker, by its number; None for one that does not answer."""
        texts = await asyncio.gather(*(self.figures_of(number) for number in self.others))
        return dict(zip(self.others, texts, strict=True))

    async def figures_of(self, number: int) -> bytes | None:
        """Return the `/metrics` text of one worker; None if it does not answer."""
        with contextlib.suppress(*_GONE):
            async with asyncio.timeout(ANSWER_S), self._sessions[number].get(ORIGIN + FIGURES) as answer:
                return await answer.read() if answer.status == 200 else None
        return None

    async def cancel(self, response_id: str) -> bool:
        """End a background response in another worker; False if no worker is running it."""
        return any(await asyncio.gather(*(self._cancel_at(number, response_id) for number in self.others)))

    async def _cancel_at(self, number: int, response_id: str) -> bool:
        with contextlib.suppress(*_GONE):
            async with self._sessions[number].post(ORIGIN + BACKGROUND + quote(response_id, safe="")) as answer:
                return answer.status == 200
        return False
