"""Bodies that break, stall or never end: whoever reads one is told so, whatever the HTTP library does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from proxy.engine import client as clients
from proxy.engine import client as waiting
from proxy.engine.client import Client, EngineReply
from proxy.errors import EngineFailed
from tests.proxy.raw_engine import CHUNKED, END, HEAD, Raw, RawEngine, framed, sized

pytestmark = pytest.mark.slow

FIRST = CHUNKED + framed(b"hello")
# Chunk framing that aiohttp's parser dislikes. It closes the connection then, and tells nobody.
BROKEN = {
    "a size that is no number": b"zz\r\nhello\r\n",
    "a size with rubbish behind it": b"5 x\r\nhello\r\n",
    "a negative size": b"-5\r\nhello\r\n",
    "a size beyond all": b"fffffffffffffffffff\r\nhello\r\n",
    "a chunk that is longer than its size": b"3\r\nhello\r\n",
    "a line feed alone": b"5\nhello\n",
    "no size": b"\r\nhello\r\n",
    "bytes of another protocol": b"\x16\x03\x01\x02\x00",
    "trailers that are none": b"0\r\n\x00\x01\x02\r\n\r\n",
}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look more often than is needed, so that no test waits for it."""
    monkeypatch.setattr(waiting, "LOOK_S", 0.01)


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client(connect_timeout_s=2, read_timeout_s=60)  # longer than any test may take: no test waits for it
    yield made
    await made.close()


@pytest.fixture
async def impatient() -> AsyncIterator[Client]:
    made = Client(connect_timeout_s=2, read_timeout_s=0.1)
    yield made
    await made.close()


@pytest.fixture
async def engine() -> AsyncIterator[RawEngine]:
    async with RawEngine() as running:
        yield running


async def chunks(reply: EngineReply) -> list[bytes]:
    """The body as it comes, to its end."""
    found = []
    while chunk := await reply.chunk():
        found.append(chunk)
    return found


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
@pytest.mark.parametrize("waits", [True, False])
async def test_broken_framing_breaks_the_answer(client: Client, engine: RawEngine, broken: bytes, waits: bool) -> None:
    """Whether the reader waits already when the framing breaks, or comes later, and finds the connection gone."""
    gate = asyncio.Event()
    engine.default = Raw((FIRST, broken), "stall", gate)
    async with await client.send(engine.url, "/x", b"{}") as reply:
        assert await reply.chunk() == b"hello"
        if waits:
            asyncio.get_running_loop().call_soon(gate.set)
        else:
            gate.set()
            await engine.given_up.wait()
        with pytest.raises(EngineFailed, match="broke off in the middle"):
            await chunks(reply)


@pytest.mark.parametrize("broken", BROKEN.values(), ids=BROKEN)
async def test_a_whole_body_with_broken_framing_is_an_error(client: Client, engine: RawEngine, broken: bytes) -> None:
    gate = asyncio.Event()
    engine.default = Raw((FIRST, broken), "stall", gate)
    async with await client.send(engine.url, "/x", b"{}") as reply:
        gate.set()
        with pytest.raises(EngineFailed, match="broke off in the middle"):
            await reply.body()


@pytest.mark.parametrize(
    "pieces",
    [
        (CHUNKED,),
        (FIRST,),
        (FIRST, b"5\r\nhel"),
        (FIRST, b"5"),
        (sized(b"hello")[:-1],),
        (HEAD + b"\r\nhello",),
    ],
)
@pytest.mark.parametrize("whole", [True, False])
async def test_a_body_that_stalls_is_given_up(
    impatient: Client, engine: RawEngine, pieces: tuple[bytes, ...], whole: bool
) -> None:
    engine.default = Raw(pieces, "stall")
    async with await impatient.send(engine.url, "/x", b"{}") as reply:
        with pytest.raises(EngineFailed, match=r"sent nothing for 0\.1 s"):
            await (reply.body() if whole else chunks(reply))


@pytest.mark.parametrize("pieces", [(), (b"HTTP/1.1 200 OK\r\n",), (b"HTTP/1.1 100 Continue\r\n\r\n",) * 3])
async def test_a_head_that_does_not_come_is_given_up(
    impatient: Client, engine: RawEngine, pieces: tuple[bytes, ...]
) -> None:
    engine.default = Raw(pieces, "stall")
    with pytest.raises(EngineFailed, match=r"sent nothing for 0\.1 s"):
        await impatient.send(engine.url, "/x", b"{}")


async def test_a_reader_that_takes_its_time_is_no_silence_of_the_engine(impatient: Client, engine: RawEngine) -> None:
    gate = asyncio.Event()
    engine.default = Raw((FIRST, framed(b" world"), END))
    async with await impatient.send(engine.url, "/x", b"{}") as reply:
        first = await reply.chunk()
        asyncio.get_running_loop().call_later(0.3, gate.set)  # three times what the engine may be silent
        await gate.wait()
        assert first + b"".join(await chunks(reply)) == b"hello world"


async def test_trailers_and_extensions_of_chunks_are_passed_over(client: Client, engine: RawEngine) -> None:
    engine.default = Raw((CHUNKED + b"5;name=value\r\nhello\r\n0\r\nx-trailer: yes\r\n\r\n",))
    for _ in range(2):
        async with await client.send(engine.url, "/x", b"{}") as reply:
            assert await reply.body() == b"hello"


@pytest.mark.parametrize("status", [b"101 Switching Protocols", b"200 OK"])
async def test_an_answer_that_leaves_http_is_aborted(client: Client, engine: RawEngine, status: bytes) -> None:
    head = b"HTTP/1.1 %b\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n" % status
    engine.default = Raw((head,), "stall")
    reply = await client.send(engine.url, "/x", b"{}")  # held here, so that it is not the collector that ends it
    async with reply:
        pass
    await engine.given_up.wait()


async def test_what_follows_an_answer_is_not_the_next_one(client: Client, engine: RawEngine) -> None:
    engine.next = [Raw((sized(b"mine") + sized(b"smuggled"),)), Raw((sized(b"mine too"),))]
    for expected in (b"mine", b"mine too"):
        async with await client.send(engine.url, "/x", b"{}") as reply:
            assert await reply.body() == expected


@pytest.mark.parametrize("framing", ["sized", "chunked"])
async def test_a_body_without_end_is_an_error(
    client: Client, engine: RawEngine, monkeypatch: pytest.MonkeyPatch, framing: str
) -> None:
    monkeypatch.setattr(clients, "MAX_BODY_BYTES", 1000)
    for size, fits in ((1000, True), (1001, False)):
        body = b"x" * size
        pieces = (sized(body),) if framing == "sized" else (CHUNKED, *[framed(b"x")] * size, END)
        engine.default = Raw(pieces)
        async with await client.send(engine.url, "/x", b"{}") as reply:
            if fits:
                assert await reply.body() == body
            else:
                with pytest.raises(EngineFailed, match="more than 1000 bytes"):
                    await reply.body()
