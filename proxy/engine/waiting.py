"""Waiting for the next bytes of an answer's body, with a bound of ours.

Owns: how long an engine may be silent inside a body, and noticing that its connection is gone. Refuses: the head of an
answer, and what is told of a body that came to a bad end (`proxy.engine.client`).

aiohttp's own read timeout is not enough: where its parser dislikes the framing of chunks, it closes the connection,
takes the timeout down with it and tells nobody, so that whoever reads the body waits for ever.
"""

from __future__ import annotations

import asyncio
import math

import aiohttp

LOOK_S = 1.0  # how often a wait is looked at: so long may a connection be gone before its reader is told


class Waiting:
    """One body while it is read. `close()` it.

    A stream is hundreds of waits, and a timeout for each would cost 4 µs. Here each says only until when it may last,
    which costs a tenth of that, and one timer for all of them looks.
    """

    __slots__ = ("_content", "_limit_s", "_loop", "_protocol", "_timer", "_until")

    def __init__(self, response: aiohttp.ClientResponse, limit_s: float) -> None:
        self._content = response.content
        self._protocol = response.connection.protocol if response.connection is not None else None
        self._limit_s = limit_s
        self._until = math.inf  # when the wait that lasts now is over; without end: nobody waits
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(min(limit_s, LOOK_S), self._look)

    async def chunk(self) -> bytes:
        """The next bytes as they come; b"" at the end. Raises TimeoutError, OSError, aiohttp.ClientError."""
        self._until = self._loop.time() + self._limit_s
        try:
            return await self._content.readany()
        except RuntimeError as e:  # the connection was gone before anybody waited
            raise _gone() from e
        finally:
            self._until = math.inf

    def close(self) -> None:
        """Nobody waits any more."""
        self._timer.cancel()

    def _look(self) -> None:
        """End the wait that lasts too long, or that nothing can end; come again."""
        left_s = self._until - self._loop.time()
        if left_s <= 0:
            self._content.set_exception(TimeoutError())
        elif left_s < math.inf and self._is_lost():
            self._content.set_exception(_gone())
        else:
            self._timer = self._loop.call_later(min(left_s, self._limit_s, LOOK_S), self._look)

    def _is_lost(self) -> bool:
        """Whether the connection is gone, and the body did not end with it."""
        return self._protocol is not None and not self._protocol.connected and not self._content.is_eof()


def _gone() -> aiohttp.ClientPayloadError:
    return aiohttp.ClientPayloadError("the connection was closed in the middle of a body")
