"""The bytes of a server's answer: decoded, bounded, and free of halves of characters.

Owns: content encodings, the bound of `max_answer_mib`, and `\\ud83d` without its other half, which Python's JSON
readers refuse. Refuses: connections, and what an answer means (`proxy.mcp_gateway.servers.transport`).

An answer is read in slices, and other work of the event loop runs between them: 0.3 MB of gzip may hold 300 MB.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from typing import Final

import httpx2

from proxy.errors import UpstreamDown

_SLICE_BYTES: Final = 32 * 1024
_HIGH: Final = rb"[dD][89abAB][0-9a-fA-F]{2}"
_LOW: Final = rb"[dD][c-fC-F][0-9a-fA-F]{2}"
_ESCAPE: Final = re.compile(
    rb"\\(?:(?P<pair>u" + _HIGH + rb"\\u" + _LOW + rb")|(?P<half>u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)
_ANY_ESCAPE: Final = re.compile(rb"\\.", re.DOTALL)
_LONGEST_ESCAPE: Final = len(rb"\ud83d\ude00")
MOST_VALUES: Final = 100_000  # of one answer: Python takes half a microsecond for each, and serves nobody meanwhile
_EVENT_END: Final = (b"\n\n", b"\r\r", b"\n\r\n")


class UnreadableAnswer(UpstreamDown):
    """An answer cannot be decoded. The server itself is well."""


class AnswerTooLarge(UnreadableAnswer):
    """An answer has more bytes than its server's `max_answer_mib`."""


class TooManyValues(AnswerTooLarge):
    """An answer has more than `MOST_VALUES` JSON values."""

    def __init__(self) -> None:
        super().__init__(f"its answer has more than {MOST_VALUES} JSON values")


async def read_slices(response: httpx2.Response) -> AsyncIterator[bytes]:
    """Yield the decoded body in small slices, with other work of the event loop between them.

    Raises httpx2.TransportError if the connection breaks off, UnreadableAnswer if the encoding is broken.
    """
    try:
        async for piece in response.aiter_bytes():
            for at in range(0, len(piece), _SLICE_BYTES):
                yield piece[at : at + _SLICE_BYTES]
                await asyncio.sleep(0)
    except httpx2.DecodingError as e:
        coding = response.headers.get("content-encoding", "")[:80]
        raise UnreadableAnswer(f"its body is not valid in its content encoding {coding!r}") from e


async def read_body(response: httpx2.Response, most_bytes: int) -> bytes:
    """Return the decoded body. Raises UnreadableAnswer, httpx2.TransportError."""
    parts, size, mender, values = list[bytes](), 0, HalfCharacters(), ValueCount()
    async for part in read_slices(response):
        size += len(part)
        if size > most_bytes:
            raise AnswerTooLarge(f"its answer has more than {most_bytes} bytes")
        mended = mender.mend(part)
        values.add(mended)
        parts.append(mended)
    return b"".join([*parts, mender.rest()])


class EventBound:
    """The size of the running event of a stream: the stream itself has no end."""

    def __init__(self, most_bytes: int) -> None:
        self._most_bytes = most_bytes
        self._size = 0
        self._tail = b""

    def add(self, part: bytes) -> bool:
        """Count a part of the stream. Whether an event ends in it. Raises AnswerTooLarge."""
        seen = self._tail + part
        ends = [(seen.find(end), seen.rfind(end) + len(end)) for end in _EVENT_END if end in seen]
        first_end = min((first for first, _ in ends), default=len(seen))
        largest = self._size - len(self._tail) + first_end
        self._size = len(seen) - max(last for _, last in ends) if ends else self._size + len(part)
        self._tail = seen[-2:]
        if max(largest, self._size) > self._most_bytes:
            raise AnswerTooLarge(f"an event of its answer has more than {self._most_bytes} bytes")
        return bool(ends)


class ValueCount:
    """The number of values of a JSON text that arrives in parts, of which none ends within an escape."""

    def __init__(self) -> None:
        self.count = 0
        self._in_string = False

    def add(self, part: bytes, *, ended: bool = False) -> None:
        """Count the values of a part; `ended`: another text begins in it. Raises TooManyValues."""
        for at, line in enumerate(part.split(b"\n")):  # a JSON string has no line break
            self._in_string = self._in_string and at == 0
            bare = _ANY_ESCAPE.sub(b"", line) if b"\\" in line else line
            pieces = bare.split(b'"')
            plain = b" ".join(pieces[self._in_string :: 2])
            self._in_string ^= len(pieces) % 2 == 0
            self.count += sum(map(plain.count, (b",", b"[", b"{")))
        if self.count > MOST_VALUES:
            raise TooManyValues
        if ended:
            self.count = 0


class HalfCharacters:
    """Replaces escaped surrogates that have no other half by U+FFFD, in JSON that arrives in parts."""

    def __init__(self) -> None:
        self._held = b""  # the beginning of an escape, whose end is in the next part

    def mend(self, part: bytes) -> bytes:
        """Return the part, and what was held of those before, without halves."""
        text = self._held + part
        cut = _unfinished_escape(text)
        text, self._held = text[:cut], text[cut:]
        if b"\\ud" not in text and b"\\uD" not in text:
            return text
        return _ESCAPE.sub(_mended, text)

    def rest(self) -> bytes:
        """Return what is still held at the end of the text."""
        return _ESCAPE.sub(_mended, self._held)


def _mended(escape: re.Match[bytes]) -> bytes:
    return escape[0] if escape["half"] is None else rb"\ufffd"


def _unfinished_escape(text: bytes) -> int:
    """Return where an escape begins that may go on after the text; the length of the text if there is none."""
    at = text.find(b"\\", max(0, len(text) - _LONGEST_ESCAPE))
    before = at
    while before > 0 and text[before - 1 : before] == b"\\":
        before -= 1
    at += (at - before) % 2  # the second one of a pair begins no escape
    while at >= 0:
        at = text.find(b"\\", at)
        if at < 0:
            break
        rest = text[at:]
        if _goes_on(rest):
            return at
        at += 2 if rest[1:2] != b"u" else 6
    return len(text)


def _goes_on(escape: bytes) -> bool:
    """Whether the rest of a text that begins with an escape may be a part of it only."""
    if escape[1:2] not in (b"", b"u"):
        return False
    if len(escape) < 6:
        return True
    if re.fullmatch(_HIGH, escape[2:6]) is None:
        return False
    return len(escape) < _LONGEST_ESCAPE and rb"\u".startswith(escape[6:8])
