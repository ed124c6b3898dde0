"""An engine whose every byte a test writes: heads, framing and events as no sound server would send them."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n"
CHUNKED = HEAD + b"transfer-encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
_MODELS = json.dumps({"data": [{"id": "base-model", "max_model_len": 1000}]}).encode()
Then = Literal["keep", "close", "abort", "stall", "drip"]


@dataclass(frozen=True)
class Raw:
    """What is done with one request: the pieces are sent one by one, the last when `gate` is set, and then …"""

    pieces: tuple[bytes, ...] = ()
    then: Then = "keep"
    gate: asyncio.Event | None = None


def framed(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def event(value: Any) -> bytes:
    """One event."""
    return b"data: " + json.dumps(value).encode() + b"\n\n"


def sized(body: bytes, head: bytes = HEAD) -> bytes:
    """A whole answer with its length."""
    return head + b"content-length: %d\r\n\r\n" % len(body) + body


class RawEngine:
    """`async with RawEngine() as engine:`; what `next` holds is answered first, then `default` each time."""

    def __init__(self) -> None:
        self.default: Raw | Callable[[dict[str, Any]], Raw] = Raw()
        self.next: list[Raw] = []
        self.models = Raw((sized(_MODELS),))
        self.requests: list[dict[str, Any]] = []
        self.asked = asyncio.Event()  # a request came
        self.given_up = asyncio.Event()  # by the client of a request that stalls
        self._serving: dict[asyncio.StreamWriter, asyncio.Task[None]] = {}

    async def __aenter__(self) -> RawEngine:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._serving:
            writer.transport.abort()
        await asyncio.gather(*self._serving.values(), return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving[writer] = task
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._serving[writer]
            writer.close()
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        lengths = [int(line[15:]) for line in head.split(b"\r\n") if line.startswith(b"content-length:")]
        body = await reader.readexactly(lengths[0]) if lengths else b""
        if head.startswith(b"get /v1/models "):
            return await self._do(self.models, reader, writer)
        self.requests.append(json.loads(body))
        self.asked.set()
        does = self.next.pop(0) if self.next else self.default
        return await self._do(does(self.requests[-1]) if callable(does) else does, reader, writer)

    async def _do(self, raw: Raw, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        for at, piece in enumerate(raw.pieces):
            if raw.gate is not None and at == len(raw.pieces) - 1:
                await raw.gate.wait()
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0)  # each piece is a packet of its own, as far as the system likes
        if raw.then == "stall":
            with contextlib.suppress(ConnectionError):
                await reader.read()
            self.given_up.set()
        while raw.then == "drip":  # something always comes, and never the end
            writer.write(framed(b" "))
            await writer.drain()
            await asyncio.sleep(0.01)
        if raw.then == "abort":
            writer.transport.abort()
        return raw.then == "keep"
