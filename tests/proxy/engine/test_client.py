"""The hot path's HTTP client: connections used again, given up, broken off, and never lost behind its back."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.engine.client import Client
from proxy.errors import EngineFailed, EngineUnreachable
from tests.proxy.fake_engine import FakeEngine, Script, words


@pytest.fixture
async def client() -> AsyncIterator[Client]:
    made = Client(connect_timeout_s=2, read_timeout_s=5)
    yield made
    await made.close()


class Server:
    """Answers each request on its connections with raw bytes, in the pieces given."""

    def __init__(self, *answers: list[bytes], close: bool = False) -> None:
        self.answers = list(answers)
        self.close = close
        self.heads: list[str] = []
        self.connections = 0
        self._tasks: list[Any] = []
        self._writers: list[asyncio.StreamWriter] = []

    async def __aenter__(self) -> Server:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._tasks.append(asyncio.current_task())
        self._writers.append(writer)
        try:
            while self.answers:
                head = (await reader.readuntil(b"\r\n\r\n")).decode()
                self.heads.append(head)
                length = next((int(x[15:]) for x in head.lower().split("\r\n") if x.startswith("content-length:")), 0)
                await reader.readexactly(length)
                for piece in self.answers.pop(0):
                    writer.write(piece)
                    await writer.drain()
                    await asyncio.sleep(0)
                if self.close:
                    break
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        writer.close()
        with contextlib.suppress(ConnectionError):
            await writer.wait_closed()


async def fetch(client: Client, url: str, path: str = "/x", body: bytes | None = b"{}") -> bytes:
    async with await client.send(url, path, body) as reply:
        return await reply.body()


PLAIN = b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello"
CHUNKED = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhello\r\n6\r\n world\r\n0\r\n\r\n"


async def test_an_answer_may_come_in_any_pieces(client: Client) -> None:
    pieces = [bytes([byte]) for byte in CHUNKED]
    async with Server(pieces, [CHUNKED], [PLAIN]) as server:
        assert await fetch(client, server.url) == b"hello world"
        assert await fetch(client, server.url) == b"hello world"
        assert await fetch(client, server.url) == b"hello"
        assert server.connections == 1


async def test_a_request_is_what_it_should_be(client: Client) -> None:
    async with Server([PLAIN], [PLAIN]) as server:
        async with await client.send(f"{server.url}/base", "/v1/x", b"{}", key="secret") as reply:
            assert (reply.status, reply.headers["content-length"], await reply.body()) == (200, "5", b"hello")
        await fetch(client, server.url, body=None)
    first, *lines = server.heads[0].lower().strip().split("\r\n")
    assert first == "post /base/v1/x http/1.1"
    sent = dict(line.split(": ", 1) for line in lines)
    assert (
        sent.items()
        >= {
            "content-type": "application/json",
            "content-length": "2",
            "accept-encoding": "identity",
            "authorization": "bearer secret",
        }.items()
    )
    assert "authorization" not in server.heads[1].lower()


async def test_a_body_without_a_length_ends_with_the_connection(client: Client) -> None:
    async with Server([b"HTTP/1.1 200 OK\r\n\r\nhel", b"lo"], close=True) as server:
        assert await fetch(client, server.url) == b"hello"


async def test_an_informational_answer_precedes_the_answer(client: Client) -> None:
    interim = b"HTTP/1.1 100 Continue\r\nx: y\r\n\r\n"
    async with Server([interim, PLAIN]) as server, await client.send(server.url, "/x", b"{}") as reply:
        assert (reply.status, "x" in reply.headers, await reply.body()) == (200, False, b"hello")


async def test_a_connection_that_the_engine_closed_costs_one_more_try() -> None:
    async with FakeEngine() as engine:
        engine.default = Script(body=b"ok", close=True)
        client = Client(connect_timeout_s=2, read_timeout_s=5)
        for _ in range(5):  # each finds the connection of the one before closed, or about to be
            assert await fetch(client, engine.url) == b"ok"
        assert len(engine.requests) == 5
        await client.close()


async def test_a_request_that_breaks_its_connection_is_sent_once_more_and_no_more(client: Client) -> None:
    async with FakeEngine() as engine:
        engine.next = [Script(body=b"ok"), Script(hang_up=True), Script(body=b"ok"), *[Script(hang_up=True)] * 3]
        assert await fetch(client, engine.url) == b"ok"
        assert await fetch(client, engine.url) == b"ok"
        assert len(engine.requests) == 3
        with pytest.raises(EngineFailed, match="without an answer"):
            await fetch(client, engine.url)
        assert len(engine.requests) == 5


async def test_a_connection_that_was_idle_for_long_is_not_used_again() -> None:
    async with FakeEngine() as engine:
        engine.default = Script(body=b"ok")
        client = Client(connect_timeout_s=2, read_timeout_s=5, idle_s=1e-9)
        assert [await fetch(client, engine.url) for _ in range(3)] == [b"ok"] * 3
        assert engine.connections == 3
        await client.close()


async def test_requests_at_the_same_time_have_connections_of_their_own(client: Client) -> None:
    async with FakeEngine() as engine:
        gate = asyncio.Event()
        engine.default = Script(body=b"ok", gate=gate)
        running = [asyncio.ensure_future(fetch(client, engine.url)) for _ in range(4)]
        await engine.until(lambda e: len(e.requests) == 4)
        gate.set()
        assert await asyncio.gather(*running) == [b"ok"] * 4
        assert engine.connections == 4


@pytest.mark.parametrize("streamed", [False, True])
async def test_a_request_that_is_given_up_is_aborted_at_once(client: Client, streamed: bool) -> None:
    async with FakeEngine() as engine:
        engine.default = Script(after_events=2, then="hang") if streamed else Script(gate=asyncio.Event())
        body = b'{"messages": [], "model": "m", "stream": true}' if streamed else b"{}"
        waiting = asyncio.ensure_future(fetch(client, engine.url, "/v1/chat/completions", body))
        await engine.until(lambda e: len(e.requests) == 1)
        waiting.cancel()
        await engine.until(lambda e: e.aborted == [0])
        with pytest.raises(asyncio.CancelledError):
            await waiting


async def test_an_answer_that_is_not_read_to_its_end_is_aborted(client: Client) -> None:
    async with FakeEngine() as engine:
        engine.default = Script(after_events=1, then="hang")
        async with await client.send(
            engine.url, "/v1/chat/completions", b'{"messages":[],"model":"m","stream":true}'
        ) as r:
            assert (await r.chunk()).startswith(b"data: ")
        await engine.until(lambda e: e.aborted == [0])


async def test_a_slow_reader_makes_the_engine_wait(client: Client) -> None:
    sent = 0

    async def flood(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        try:
            while sent < 200_000_000:
                writer.write(b"x" * 100_000)
                await writer.drain()
                sent += 100_000
        except ConnectionError:
            pass
        writer.close()

    server = await asyncio.start_server(flood, "127.0.0.1", 0)
    async with await client.send(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", "/x", None) as reply:
        await reply.chunk()
        before = -1
        while before != sent:  # until the server makes no more progress
            before = sent
            for _ in range(50):
                await asyncio.sleep(0)
            await asyncio.sleep(0.05)
        assert sent < 50_000_000
    server.close()
    await server.wait_closed()


@pytest.mark.parametrize(
    ("answer", "words_"),
    [
        ([b"SMTP hello\r\n\r\n"], "not valid HTTP"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 50\r\n\r\nhello"], "broke off"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nhel"], "broke off"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n"], "not valid HTTP"),
        ([b"HTTP/1.1 200"], "without an answer"),
    ],
)
async def test_an_answer_that_breaks_off_is_an_error(client: Client, answer: list[bytes], words_: str) -> None:
    async with Server(answer, close=True) as server:
        with pytest.raises(EngineFailed, match=words_):
            await fetch(client, server.url)


async def test_a_silent_engine_is_given_up() -> None:
    async with FakeEngine() as engine:
        engine.default = Script([words("a b")], after_events=2, then="hang")
        client = Client(connect_timeout_s=2, read_timeout_s=0.2)
        with pytest.raises(EngineFailed, match=r"nothing for 0\.2 s"):
            await fetch(client, engine.url, "/v1/chat/completions", b'{"messages": [], "model": "m", "stream": true}')
        await engine.until(lambda e: e.aborted == [0])
        await client.close()


async def test_an_engine_that_is_not_there_cannot_be_reached(client: Client) -> None:
    async with FakeEngine() as engine:
        url = engine.url
    with pytest.raises(EngineUnreachable, match=f"{url} cannot be reached"):
        await fetch(client, url)
