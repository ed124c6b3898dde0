"""Server-sent events: parse a byte stream into events, encode events, and keep a silent stream alive.

Owns: the framing (HTML Living Standard, 9.2.6) and one keep-alive timer per stream. Refuses: what the data means. Event
names are not kept: every API that Hone speaks repeats them inside the data.
"""

from __future__ import annotations

import asyncio
from types import TracebackType

from proxy.errors import EngineFailed
from proxy.http.asgi import Send

# Twice the default limit of a request (`proxy.max_body_bytes`): the largest event that an engine has reason to send
# is a stream's first, which repeats the prompt as token ids.
MAX_EVENT_BYTES = 64 * 1024 * 1024
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"[DONE]"
_MARK = b"\xef\xbb\xbf"


class Parser:
    """Turns chunks of bytes into the data of complete events.

    Each byte is scanned once: the cost of an event is its length, however many chunks it arrives in.
    """

    __slots__ = ("_began", "_held", "_rest")

    def __init__(self) -> None:
        self._began = False
        self._rest = bytearray()  # of an incomplete event
        self._held = (
            b""  # the end of the last chunk: perhaps half of a line break, of an event's end or of the byte order mark
        )

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the data of the events that `chunk` completes. Raises EngineFailed for an event beyond
        MAX_EVENT_BYTES.
        """
        if self._held:
            chunk, self._held = self._held + chunk, b""
        if not self._began:
            chunk = self._without_mark(chunk)
        if b"\r" in chunk:
            chunk = self._normalised(chunk)
        *whole, rest = chunk.split(b"\n\n")
        if whole and self._rest:
            self._rest += whole[0]
            whole[0], self._rest = bytes(self._rest), bytearray()
        if rest:
            self._keep(rest)
        events = []
        for block in whole:
            if len(block) > MAX_EVENT_BYTES:
                raise _too_large()
            # fast path: the usual event is one line
            data = block[6:] if block.startswith(b"data: ") and b"\n" not in block else _data(block)
            if data is not None:
                events.append(data)
        return events

    def _keep(self, rest: bytes) -> None:
        """Keep the beginning of an event, or more of it. A line break at its end may be half of the event's end."""
        if rest.endswith(b"\n"):
            rest, self._held = rest[:-1], b"\n" + self._held
        self._rest += rest
        if len(self._rest) > MAX_EVENT_BYTES:
            raise _too_large()

    def _without_mark(self, chunk: bytes) -> bytes:
        """Drop a byte order mark at the start of the stream."""
        if len(chunk) < len(_MARK) and _MARK.startswith(chunk):  # it may still become one
            self._held = chunk
            return b""
        self._began = True
        return chunk.removeprefix(_MARK)

    def _normalised(self, chunk: bytes) -> bytes:
        """Replace CR LF and CR by LF. A CR at the very end waits for the next chunk."""
        if chunk.endswith(b"\r"):
            chunk, self._held = chunk[:-1], b"\r"
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")


def _data(block: bytes) -> bytes | None:
    """The data lines of an event, joined; None if it has none (a comment, an id, a name only)."""
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


def _too_large() -> EngineFailed:
    return EngineFailed(f"the engine sent an event of more than {MAX_EVENT_BYTES} bytes")


def encode_event(data: bytes) -> bytes:
    """Return one event with one line of data."""
    return b"data: " + data + b"\n\n"


EVERY_S = 15.0
_EVENT_ENDS = (b"\n\n", b"\r\n\r\n", b"\r\r")
_END_BYTES = max(map(len, _EVENT_ENDS))


class KeepAliveStream:
    """Sends events, and a comment after every `every_s` seconds of silence.

    `with KeepAliveStream(send) as stream: await stream.send(events)`. The comments keep intermediaries from closing a
    stream while the engine is still computing. What is sent need not be whole events: a comment comes between two.
    """

    __slots__ = ("_beating", "_busy", "_end", "_every_s", "_loop", "_send", "_sent_at", "_timer")

    def __init__(self, send: Send, every_s: float = EVERY_S) -> None:
        self._send = send
        self._every_s = every_s
        self._loop = asyncio.get_running_loop()
        self._busy = False
        self._end = _EVENT_ENDS[0]  # the last bytes that were sent
        self._beating: asyncio.Task[None] | None = None

    def __enter__(self) -> KeepAliveStream:
        self._sent_at = self._loop.time()
        self._timer = self._loop.call_later(self._every_s, self._look)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._timer.cancel()
        if self._beating is not None:
            self._beating.cancel()

    async def send(self, events: bytes) -> None:
        """Send events. A slow reader makes this wait, and with it the engine."""
        self._busy = True
        await self._send({"type": "http.response.body", "body": events, "more_body": True})
        self._busy = False
        self._end = (self._end + events)[-_END_BYTES:] if len(events) < _END_BYTES else events[-_END_BYTES:]
        self._sent_at = self._loop.time()

    def _look(self) -> None:
        """Send a comment if the stream was silent long enough, and set the timer for the next check."""
        left_s = self._sent_at + self._every_s - self._loop.time()
        if left_s <= 0.001:
            if not self._busy and self._end.endswith(_EVENT_ENDS):
                self._beating = self._loop.create_task(self.send(KEEP_ALIVE))
            left_s = self._every_s
        self._timer = self._loop.call_later(left_s, self._look)
