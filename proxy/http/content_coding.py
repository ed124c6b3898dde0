"""Compressed request bodies: `Content-Encoding` gzip, deflate, zstd and br (RFC 9110, 8.4).

Owns: decoding, bounded by the largest body that is accepted. Refuses: admission, and the bodies of answers.

A small body can decode to gigabytes, so that every decoder is asked for a bounded piece at a time, in a thread: all of
them give up the interpreter while they decode.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import Callable, Iterator, Mapping
from typing import Final

import brotli
import zstandard

from proxy.errors import BadRequest, TooLarge, UnknownCoding
from proxy.http.asgi import Message, Receive, Scope, read_body

_PIECE: Final = 256 * 1024
_MOST_CODINGS: Final = 3  # one around another
_GZIP: Final = 16 + zlib.MAX_WBITS  # zlib's name of the format
_ZSTD_INPUT: Final = 1024
_ZSTD_WINDOW: Final = 128 * 1024 * 1024  # of memory for one frame: what the zstd program accepts


def _inflate(data: bytes, bits: int) -> Iterator[bytes]:
    """Decode one member after another; only gzip may have several."""
    while data:
        decoder = zlib.decompressobj(bits)
        yield decoder.decompress(data, _PIECE)
        while not decoder.eof:
            piece = decoder.decompress(decoder.unconsumed_tail, _PIECE)
            if not piece and not decoder.unconsumed_tail and not decoder.eof:
                raise zlib.error("it ends in the middle")
            yield piece
        data = decoder.unused_data
        if data and bits != _GZIP:
            raise zlib.error("bytes follow its end")


def _gzip(data: bytes) -> Iterator[bytes]:
    return _inflate(data, _GZIP)


def _deflate(data: bytes) -> Iterator[bytes]:
    """With zlib's frame, as the standard has it, or without one, as many clients send it."""
    try:
        zlib.decompressobj().decompress(data, 1)
    except zlib.error:
        return _inflate(data, -zlib.MAX_WBITS)
    return _inflate(data, zlib.MAX_WBITS)


def _zstd(data: bytes) -> Iterator[bytes]:
    """Decode one frame after another. Only this decoder knows where a frame ends, and it bounds no output: it gets
    little at a time, since four bytes become at most 128 KiB.
    """
    view = memoryview(data)
    while view:
        decoder = zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()
        at = 0
        while not decoder.eof:
            if at >= len(view):
                raise zstandard.ZstdError("it ends in the middle")
            yield decoder.decompress(view[at : at + _ZSTD_INPUT])
            at += _ZSTD_INPUT
        view = view[min(at, len(view)) - len(decoder.unused_data) :]


def _brotli(data: bytes) -> Iterator[bytes]:
    decoder = brotli.Decompressor()
    piece: bytes = decoder.process(data, output_buffer_limit=_PIECE)
    yield piece
    while not decoder.is_finished():
        piece = decoder.process(b"", output_buffer_limit=_PIECE)
        if not piece and not decoder.is_finished() and decoder.can_accept_more_data():
            raise brotli.error("it ends in the middle")
        yield piece


_DECODERS: Final[Mapping[str, Callable[[bytes], Iterator[bytes]]]] = {
    "gzip": _gzip,
    "x-gzip": _gzip,
    "deflate": _deflate,
    "zstd": _zstd,
    "br": _brotli,
}
ACCEPTED: Final = b"gzip, deflate, zstd, br"


def codings_of(header: bytes) -> list[str]:
    """Return the codings of a `Content-Encoding`, in the order in which they were applied. Raises UnknownCoding."""
    names = [name.strip().lower() for name in header.decode("latin-1").split(",")]
    codings = [name for name in names if name not in ("", "identity")]
    unknown = next((name for name in codings if name not in _DECODERS), None)
    if unknown is not None or len(codings) > _MOST_CODINGS:
        what = repr(unknown[:80]) if unknown is not None else f"{len(codings)} codings at once"
        raise UnknownCoding(f"the content-encoding is {what}: send gzip, deflate, zstd or br, or no coding.")
    return codings


def decode(body: bytes, codings: list[str], limit_bytes: int) -> bytes:
    """Return a body without its codings. Raises BadRequest for a broken one, and TooLarge."""
    for coding in reversed(codings):
        parts, size = [], 0
        try:
            for piece in _DECODERS[coding](body):
                parts.append(piece)
                size += len(piece)
                if size > limit_bytes:
                    raise TooLarge(
                        f"the body has more than {limit_bytes} bytes behind its content-encoding {coding}: shorten "
                        "the conversation, or raise `max_body_bytes` in the [proxy] section of hone.toml."
                    )
        except (zlib.error, zstandard.ZstdError, brotli.error) as e:
            raise BadRequest(f"the body is not {coding}, as its content-encoding says: {e}.") from e
        body = b"".join(parts)
    return body


def decode_request(scope: Scope, headers: dict[bytes, bytes], receive: Receive, limit_bytes: int) -> Receive:
    """Return a `receive` with the decoded body, and take the coding out of the headers.

    `headers`: those of `scope`, as a table. Raises UnknownCoding; the new `receive` raises BadRequest, TooLarge and
    ClientDisconnected.
    """
    coding = headers.pop(b"content-encoding", None)
    if coding is None:
        return receive
    codings = codings_of(coding)
    scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"content-encoding"]
    if not codings:
        return receive
    sent = dict(headers)
    if headers.pop(b"content-length", None) is not None:  # the routes would compare it with what they get
        scope["headers"] = [(name, value) for name, value in scope["headers"] if name != b"content-length"]
    read = False

    async def receive_decoded() -> Message:
        nonlocal read
        if read:
            return await receive()
        read = True
        body = await read_body(sent, receive, limit_bytes)
        decoded = await asyncio.to_thread(decode, body, codings, limit_bytes) if body else b""
        return {"type": "http.request", "body": decoded, "more_body": False}

    return receive_decoded
