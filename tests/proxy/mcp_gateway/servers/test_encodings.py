"""A real MCP server whose host compresses its answers, as many hosts do, in the encoding that it likes best."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import Any

import brotli
import pytest
import zstandard
from mcp.client import Client

from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import WITHOUT_PAGES, serving

ALL = ("zstd", "br", "deflate", "gzip")


class _Packer:
    """Compresses a body in parts; each can be decoded when it arrives."""

    def __init__(self, coding: str) -> None:
        if coding == "br":
            packer = brotli.Compressor()
            self._pack, self._flush, self._end = packer.process, packer.flush, packer.finish
        elif coding == "zstd":
            zstd = zstandard.ZstdCompressor().compressobj()
            self._pack, self._end = zstd.compress, zstd.flush
            self._flush = lambda: zstd.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
        else:
            deflate = zlib.compressobj(wbits=zlib.MAX_WBITS | (16 if coding == "gzip" else 0))
            self._pack, self._end = deflate.compress, deflate.flush
            self._flush = lambda: deflate.flush(zlib.Z_SYNC_FLUSH)

    def part(self, body: bytes, *, last: bool) -> bytes:
        packed: bytes = self._pack(body) + (self._end() if last else self._flush())
        return packed


class CompressingApp:
    """Stands before an app. `used`: the encodings of its answers, and what was offered."""

    def __init__(self, app: Any, order: Sequence[str], *, asked_or_not: bool = False) -> None:
        self._app = app
        self._order = order
        self._asked_or_not = asked_or_not
        self.used: set[str] = set()
        self.offered: set[str] = set()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        accepted = dict(scope["headers"]).get(b"accept-encoding", b"").decode().replace(" ", "").split(",")
        self.offered |= {*accepted}
        coding = next((one for one in self._order if self._asked_or_not or one in accepted), None)
        packer = _Packer(coding) if coding is not None else None

        async def send_packed(message: Any) -> None:
            if packer is not None and coding is not None and message["type"] == "http.response.start":
                self.used.add(coding)
                headers = [(name, value) for name, value in message["headers"] if name != b"content-length"]
                message = message | {"headers": [*headers, (b"content-encoding", coding.encode())]}
            elif packer is not None and message["type"] == "http.response.body":
                body = packer.part(message.get("body", b""), last=not message.get("more_body"))
                message = message | {"body": body}
            await send(message)

        await self._app(scope, receive, send_packed)


async def call(store: Store, url: str, mode: str) -> Any:
    mcp = {"s": McpServerSettings(url=url)}
    async with (
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp=mcp) as proxy,
        Client(proxy.url + "/mcp", mode=mode) as client,
    ):
        return await client.call_tool("s__test_simple_text", {})


@pytest.mark.parametrize(
    ("mode", "order", "chosen"),
    [("legacy", ALL, "br"), ("auto", ALL, "br"), ("legacy", ["deflate"], "deflate"), ("auto", ["gzip"], "gzip")],
)
async def test_the_best_encoding_that_is_asked_for_is_read(
    store: Store, mode: str, order: Sequence[str], chosen: str
) -> None:
    made: list[CompressingApp] = []

    def around(app: Any) -> CompressingApp:
        made.append(CompressingApp(app, order))
        return made[0]

    async with served(Everything(), around=around) as url:
        result = await call(store, url, mode)
    assert result.content[0].text
    assert made[0].used == {chosen}
    assert made[0].offered == {"gzip", "deflate", "br"}


async def test_an_encoding_that_is_not_asked_for_is_named_in_the_error(store: Store) -> None:
    async with served(Everything(), around=lambda app: CompressingApp(app, ["zstd"], asked_or_not=True)) as url:
        result = await call(store, url, "auto")
    assert result.is_error
    assert "'zstd', which Hone does not read" in result.content[0].text
