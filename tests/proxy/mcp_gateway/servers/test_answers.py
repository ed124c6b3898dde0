"""An answer is bounded after decoding, and others are served while it is read."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import random
import re
import resource
import zlib
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest

from proxy.mcp_gateway.servers.answers import AnswerTooLarge, EventBound, HalfCharacters, ValueCount
from proxy.settings.mcp import McpServerSettings
from recorder.store.database import Store
from tests.event_loop import GAP_S, loop_gaps
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.raw_mcp import LEGACY, MODERN, RawCaller, RawServer
from tests.proxy.running import WITHOUT_PAGES, serving

brotli: Any = pytest.importorskip("brotli")

CALL: dict[str, Any] = {"name": "s__run", "arguments": {}}


Encode = Callable[[Iterable[bytes]], bytes]


def deflated(parts: Iterable[bytes], wbits: int) -> bytes:
    packer = zlib.compressobj(wbits=wbits)
    return b"".join([*map(packer.compress, parts), packer.flush()])


def brotlied(parts: Iterable[bytes]) -> bytes:
    packer = brotli.Compressor(quality=5)
    return b"".join([*map(packer.process, parts), packer.finish()])


GZIP = zlib.MAX_WBITS | 16
ENCODINGS: dict[str, tuple[str, Encode]] = {
    "gzip": ("gzip", lambda parts: deflated(parts, GZIP)),
    "deflate": ("deflate", lambda parts: deflated(parts, zlib.MAX_WBITS)),
    "raw deflate": ("deflate", lambda parts: deflated(parts, -zlib.MAX_WBITS)),
    "br": ("br", brotlied),
    "twice": ("gzip, gzip", lambda parts: deflated([deflated(parts, GZIP)], GZIP)),
}
USUAL = ("gzip", "br")  # a body of 300 MB takes seconds: `make test` has the two that clients and servers use most


def each_way(names: Iterable[str], usual: Iterable[str] = ()) -> list[Any]:
    """Each name, read whole and as a stream. `make test` reads the first one both ways, and others (`usual`) whole."""
    first, *others = names
    lean = {(first, True), *((name, False) for name in usual or (first, *others))}
    pairs = [(name, streams) for name in (first, *others) for streams in (False, True)]
    return [pytest.param(*pair, marks=() if pair in lean else pytest.mark.long) for pair in pairs]


@contextlib.asynccontextmanager
async def memory_bounded(most_mib: float) -> AsyncIterator[None]:
    """Assert that the process does not grow by more while the block runs."""

    def now_mib() -> float:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * resource.getpagesize() / 2**20

    async def watch() -> float:
        most = first = now_mib()
        with contextlib.suppress(asyncio.CancelledError):
            while True:
                await asyncio.sleep(0.002)
                most = max(most, now_mib())
        return most - first

    watching = asyncio.create_task(watch())
    await asyncio.sleep(0)
    yield
    watching.cancel()
    grown_mib = await watching
    assert grown_mib <= most_mib, f"the process grew by {grown_mib:.0f} MiB"


@pytest.mark.slow
@pytest.mark.parametrize(("encoding", "streams"), each_way(ENCODINGS, USUAL))
async def test_a_small_body_that_decodes_to_a_large_one(store: Store, encoding: str, streams: bool) -> None:
    name, encode = ENCODINGS[encoding]
    server = RawServer()
    server.streams, server.encoding = streams, name
    begin = b'data: {"jsonrpc":"2.0","id":2,"result":{"content":[],"x":"' if streams else b"["
    server.encoded = encode([begin, *itertools.repeat(b"0" * 1_000_000, 300)])
    server.answers = {"tools/call": "{}"}
    assert len(server.encoded) < 400_000
    async with (
        server.served() as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
    ):
        caller = RawCaller(proxy.http, LEGACY)
        await caller.ask("tools/list", {})
        async with memory_bounded(50), loop_gaps() as gaps:
            answer = await caller.ask("tools/call", CALL)
        assert gaps.busy_s <= GAP_S
        assert answer["result"]["isError"] is True
        assert answer["result"]["content"][0]["text"] == (
            "the MCP server 's' answered tools/call with more than 16 MiB, the limit of `max_answer_mib` in [mcp.s]: "
            "ask for less, or raise the limit"
        )
        server.encoding = None
        assert (await caller.ask("tools/call", CALL))["result"]["content"] == []  # the connection is well


@pytest.mark.parametrize(("caller_era", "streams"), [(LEGACY, False), (MODERN, True)])
@pytest.mark.parametrize("encoding", ENCODINGS)
async def test_an_encoded_answer_within_the_limit_is_read(
    store: Store, encoding: str, streams: bool, caller_era: str
) -> None:
    name, encode = ENCODINGS[encoding]
    server = RawServer(MODERN)
    server.streams, server.encoding, server.encode = streams, name, lambda body: encode([body])
    server.answers = {"tools/call": json.dumps({"content": [{"type": "text", "text": "é😀" * 50_000}]})}
    settings = McpServerSettings(url="http://x", max_answer_mib=2.0)
    async with (
        server.served() as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": settings.model_copy(update={"url": url})}) as proxy,
    ):
        caller = RawCaller(proxy.http, caller_era)
        answer = await caller.ask("tools/call", CALL)
        assert answer["result"]["content"] == [{"type": "text", "text": "é😀" * 50_000}]
        server.answers = {"tools/call": json.dumps({"content": [{"type": "text", "text": "a" * 2**21}]})}
        answer = await caller.ask("tools/call", CALL)
        assert "`max_answer_mib` in [mcp.s]" in answer["result"]["content"][0]["text"]
        for method, params in (("prompts/get", {"name": "s__ask"}), ("resources/read", {"uri": "raw://one"})):
            server.answers = {method: json.dumps({"a": "a" * 2**21})}
            assert "`max_answer_mib` in [mcp.s]" in (await caller.ask(method, params))["error"]["message"]
        assert 'hone_mcp_server_up{server="s"} 1.0' in (await proxy.http.get("/metrics")).text


FORMS = {
    "numbers": b"0," * 5_000_000 + b"0",
    "lists": b"[]," * 5_000_000 + b"0",
    "objects": b'{"a":0},' * 1_800_000 + b"0",
    "strings": b'"\\"",' * 2_500_000 + b"0",
    "nested": b"[" * 15_000_000,
}


@pytest.mark.slow
@pytest.mark.parametrize(("form", "streams"), each_way(FORMS))
async def test_an_answer_of_very_many_values_is_not_read(store: Store, form: str, streams: bool) -> None:
    server = RawServer()
    server.streams, server.encoding = streams, "gzip"
    body = b'{"jsonrpc":"2.0","id":2,"result":{"content":[],"structuredContent":{"x":[' + FORMS[form] + b"]}}}"
    server.encoded = deflated([b"data: " + body + b"\n\n" if streams else body], GZIP)
    server.answers = {"tools/call": "{}"}
    async with (
        server.served() as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
    ):
        caller = RawCaller(proxy.http, LEGACY)
        await caller.ask("tools/list", {})
        async with memory_bounded(50), loop_gaps() as gaps:
            answer = await caller.ask("tools/call", CALL)
        assert gaps.busy_s <= GAP_S
        assert "more than 100000 JSON values" in answer["result"]["content"][0]["text"]


def test_values_are_counted_outside_of_strings_alone() -> None:
    text = json.dumps({"a": ["x, [{ \\", '"', 1, {"b": None}], "c": "," * 1000}).encode()
    mender, values = HalfCharacters(), ValueCount()
    for at in range(0, len(text), 7):
        values.add(mender.mend(text[at : at + 7]))
    values.add(mender.rest())
    assert values.count == len("{[,,,{,")


@pytest.mark.parametrize(("encoding", "streams"), each_way(["gzip", "deflate", "br", "rot13"]))
async def test_a_body_that_cannot_be_decoded_is_an_error_of_its_call(
    store: Store, encoding: str, streams: bool
) -> None:
    server = RawServer()
    server.encoding, server.encoded, server.streams = encoding, b"not encoded", streams
    server.answers = {"tools/call": "{}"}
    async with (
        server.served() as url,
        FakeEngine() as engine,
        serving(store, engine, settings=WITHOUT_PAGES, mcp={"s": McpServerSettings(url=url)}) as proxy,
    ):
        caller = RawCaller(proxy.http, LEGACY)
        answer = await caller.ask("tools/call", CALL)
        text = answer["result"]["content"][0]["text"]
        assert text.startswith("the answer of the MCP server 's' to tools/call cannot be read: its ")
        assert encoding in text
        server.encoding = None
        assert (await caller.ask("tools/call", CALL))["result"]["content"] == []


@pytest.mark.parametrize("end", [b"\n\n", b"\r\n\r\n", b"\r\r"])
@pytest.mark.parametrize("cut", [1, 2, 3, 7, 100])
def test_an_event_is_bounded_and_a_stream_is_not(end: bytes, cut: int) -> None:
    bound = EventBound(100)
    stream = (b"data: " + b"x" * 80 + end) * 50
    for at in range(0, len(stream), cut):
        bound.add(stream[at : at + cut])
    for _ in range(98):
        bound.add(b"y")
    bound.add(end + b"y" * 100)
    with pytest.raises(AnswerTooLarge):
        bound.add(b"y" + end)


def test_halves_of_characters_are_replaced_wherever_the_text_is_cut() -> None:
    rng = random.Random(3)
    parts = [rb"\ud83d", rb"\ude00", rb"\\", rb"\n", rb"\u00e9", b"a", b"ud83d", rb"\uD83D\uDE00", b"bc12"]
    for _ in range(5_000):
        text = b'"' + b"".join(rng.choices(parts, k=rng.randint(1, 9))) + b'"'
        mender, mended, at = HalfCharacters(), [], 0
        while at < len(text):
            step = rng.randint(1, 7)
            mended.append(mender.mend(text[at : at + step]))
            at += step
        expected = re.sub("[\ud800-\udfff]", "\ufffd", json.loads(text))
        assert json.loads(b"".join([*mended, mender.rest()])) == expected
