"""Servers that fail in the ways that clients must tell in plain words, and what such a message never holds."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import ssl
import subprocess
import tempfile
from collections.abc import AsyncIterator
from typing import Final

DEAD: Final = "http://127.0.0.1:9/v1"
CLASS_NAME: Final = re.compile(
    r"\b\w*(?:Error|Exception|Timeout|Disconnected)\b|\bobject at 0x|Traceback|litellm\.|aiohttp\.|httpx2?\."
)


def require_plain(text: str) -> str:
    """The text, of which it is held that it names no class of a library."""
    assert not CLASS_NAME.search(text), text
    return text


@contextlib.asynccontextmanager
async def server(answer: bytes | None, tls: ssl.SSLContext | None = None) -> AsyncIterator[str]:
    """A server that sends bytes to each request and hangs up; None: it never answers."""
    ended = asyncio.Event()
    taking: set[asyncio.Task[None] | None] = set()

    async def take(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        taking.add(asyncio.current_task())
        with contextlib.suppress(OSError):
            await reader.read(1)
            if answer is None:
                await ended.wait()
            else:
                writer.write(answer)
                await writer.drain()
            writer.close()
            await writer.wait_closed()

    listening = await asyncio.start_server(take, "127.0.0.1", 0, ssl=tls)
    try:
        async with listening:
            yield f"http{'s' if tls else ''}://127.0.0.1:{listening.sockets[0].getsockname()[1]}/v1"
    finally:
        ended.set()
        await asyncio.gather(*filter(None, taking), return_exceptions=True)


@functools.cache
def self_signed() -> ssl.SSLContext:
    """A server's TLS with a certificate that nobody vouches for."""
    with tempfile.TemporaryDirectory() as folder:
        files = ["-keyout", f"{folder}/key", "-out", f"{folder}/cert", "-days", "2", "-subj", "/CN=localhost"]
        command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", *files]
        subprocess.run(command, check=True, capture_output=True)
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(f"{folder}/cert", f"{folder}/key")
    return context


@contextlib.asynccontextmanager
async def failing(how: str) -> AsyncIterator[str]:
    """The URL of a server that is `dead`, `hangs`, or has a bad `certificate`."""
    if how == "dead":
        yield DEAD
        return
    async with server(None if how == "hangs" else b"", self_signed() if how == "certificate" else None) as url:
        yield url


REASONS: Final = {
    "dead": "nothing listens at its address (connection refused)",
    "certificate": "its TLS certificate is not valid (self-signed certificate)",
}
