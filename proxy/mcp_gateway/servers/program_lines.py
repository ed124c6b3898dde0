"""The lines that a server's program writes: complete, bounded, and free of halves of characters.

Owns: a text encoding by which the SDK reads them; a text encoding is the only place where it lets its user in. Refuses:
starting the program (`proxy.mcp_gateway.servers.transport`).
"""

from __future__ import annotations

import codecs
import re
from functools import partial
from typing import Final

import orjson
from mcp_types import INTERNAL_ERROR

from proxy.mcp_gateway.servers.answers import HalfCharacters, TooManyValues, ValueCount

# Our own errors, in place of an answer: a line with too many bytes, or with too many JSON values.
LINE_TOO_LARGE: Final = "hone: the line is too large"
LINE_TOO_MANY: Final = "hone: the line has too many values"
_PREFIX: Final = "hone_mcp_lines_"
_KEPT_BYTES: Final = 256  # of the beginning and the end of a line that is too large: its request's id is there
_FIRST_ID: Final = re.compile(rb'\s*\{\s*(?:"jsonrpc"\s*:\s*"2.0"\s*,\s*)?"id"\s*:\s*(\d+|"[^"\\]*")')
_LAST_ID: Final = re.compile(rb'"id"\s*:\s*(\d+|"[^"\\]*")\s*(?:,\s*"jsonrpc"\s*:\s*"2.0"\s*)?\}\s*$')


def line_encoding(most_bytes: int) -> str:
    """Return the name of the encoding that reads lines of at most so many bytes."""
    return f"{_PREFIX}{most_bytes}"


def _find_encoding(name: str) -> codecs.CodecInfo | None:
    if not name.startswith(_PREFIX):
        return None
    utf8 = codecs.lookup("utf-8")
    decoder = partial(_LineDecoder, int(name.removeprefix(_PREFIX)))
    return codecs.CodecInfo(utf8.encode, utf8.decode, name=name, incrementaldecoder=decoder)


codecs.register(_find_encoding)


class _LineDecoder(codecs.IncrementalDecoder):
    """Decodes whole lines. A line that is too large becomes an error for its request."""

    def __init__(self, most_bytes: int, errors: str = "strict") -> None:
        super().__init__(errors)
        self._most_bytes = most_bytes
        self._parts = list[bytes]()
        self._size = 0
        self._mender = HalfCharacters()
        self._values = ValueCount()
        self._fault: str | None = None

    def decode(self, data: bytes, final: bool = False) -> str:  # type: ignore[override]
        """Return the lines that are complete now."""
        *complete, rest = bytes(data).split(b"\n")
        text = "".join(f"{self._line(part)}\n" for part in complete)
        self._add(rest)
        return text + self._line(b"") if final else text

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        mended = self._mender.mend(part)
        self._parts.append(mended)
        if self._fault is None:
            try:
                self._values.add(mended)
            except TooManyValues:
                self._fault = LINE_TOO_MANY
        if self._size > self._most_bytes:
            self._fault = LINE_TOO_LARGE
        if self._fault is not None:
            line = b"".join(self._parts)
            self._parts = [line[:_KEPT_BYTES], line[_KEPT_BYTES:][-_KEPT_BYTES:]]

    def _line(self, end: bytes) -> str:
        self._add(end)
        line = b"".join([*self._parts, self._mender.rest()])
        fault = self._fault
        self._parts, self._size, self._fault = [], 0, None
        self._mender, self._values = HalfCharacters(), ValueCount()
        return line.decode("utf-8", "replace") if fault is None else _error_of(line, fault)


def _error_of(line: bytes, fault: str) -> str:
    """Return an error for the request that a line answers; the empty text if it is not known."""
    found = _FIRST_ID.match(line[:_KEPT_BYTES]) or _LAST_ID.search(line[-_KEPT_BYTES:])
    if found is None:
        return ""
    error = {"code": INTERNAL_ERROR, "message": fault}
    return orjson.dumps({"jsonrpc": "2.0", "id": orjson.loads(found[1]), "error": error}).decode()
