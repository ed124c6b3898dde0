"""Server-sent events: bytes in whatever pieces they come, whole events out; and events as bytes.

Owns: the framing (HTML Living Standard, 9.2.6), for streams whose events are told apart by their data. Refuses: what
the data means. Event names are not kept: every API we speak repeats them inside the data.
"""

from __future__ import annotations

from proxy.errors import EngineBroke

MAX_EVENT_BYTES = 64 * 1024 * 1024
KEEP_ALIVE = b": keep-alive\n\n"
DONE = b"[DONE]"


class Parser:
    """Give it the bytes as they come; it gives back the data of each event that became whole."""

    __slots__ = ("_began", "_buffer", "_held_cr")

    def __init__(self) -> None:
        self._buffer = b""
        self._began = False
        self._held_cr = False  # the last byte was a CR: whether an LF follows is not known yet

    def feed(self, chunk: bytes) -> list[bytes]:
        """The data of the events that `chunk` completes. Raises EngineBroke for an event beyond MAX_EVENT_BYTES."""
        if self._held_cr or b"\r" in chunk:
            chunk = self._normalised(chunk)
        if not self._began:
            chunk = self._without_mark(chunk)
        *whole, rest = (self._buffer + chunk).split(b"\n\n")
        self._buffer = rest
        if len(rest) > MAX_EVENT_BYTES:
            raise EngineBroke(f"the engine sent an event of more than {MAX_EVENT_BYTES} bytes")
        events = []
        for block in whole:
            # the usual event is one line; any other is taken apart
            data = block[6:] if block.startswith(b"data: ") and b"\n" not in block else _data(block)
            if data is not None:
                events.append(data)
        return events

    def _normalised(self, chunk: bytes) -> bytes:
        """CR LF and CR as LF. A CR at the very end waits for what follows."""
        if self._held_cr:
            chunk = b"\r" + chunk
        self._held_cr = chunk.endswith(b"\r")
        if self._held_cr:
            chunk = chunk[:-1]
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _without_mark(self, chunk: bytes) -> bytes:
        """A byte order mark at the start of the stream is not part of it."""
        self._buffer, start = b"", self._buffer + chunk
        mark = b"\xef\xbb\xbf"
        if mark.startswith(start):  # it may still become one
            self._began = start == mark
            if not self._began:
                self._buffer = start
                return b""
        self._began = True
        return start.removeprefix(mark)


def _data(block: bytes) -> bytes | None:
    """The data lines of an event, joined; None where it has none (a comment, an id, a lone name)."""
    lines = []
    for line in block.split(b"\n"):
        if line.startswith(b"data:"):
            value = line[5:]
            lines.append(value[1:] if value.startswith(b" ") else value)
        elif line == b"data":
            lines.append(b"")
    return b"\n".join(lines) if lines else None


def event(data: bytes) -> bytes:
    """One event with one line of data."""
    return b"data: " + data + b"\n\n"
