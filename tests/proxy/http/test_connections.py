"""HTTP as clients speak it, and as nobody should: on real connections to a real proxy."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator

import pytest

from proxy.http import connections
from proxy.settings.sections import ProxySettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script
from tests.proxy.running import ALIAS, Proxy, say, serving

pytestmark = pytest.mark.slow

BODY = json.dumps(say()).encode()
HEAD = b"POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
LENGTH = b"Content-Length: %d\r\n" % len(BODY)
GET = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"


@contextlib.asynccontextmanager
async def running(store: Store, **settings: object) -> AsyncIterator[Proxy]:
    """A proxy with these settings of [proxy]."""
    async with FakeEngine() as engine:
        configured = ProxySettings.model_validate({"port": 0, "pages": False} | settings)
        async with serving(store, engine, settings=configured) as proxy:
            yield proxy


class Client:
    """A connection as bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader, self.writer = reader, writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """Read one answer: status, headers, body."""
        async with asyncio.timeout(20):
            head = await self.reader.readuntil(b"\r\n\r\n")
            line, *rest = head.decode("latin-1").rstrip().split("\r\n")
            headers = {k.lower(): v.strip() for k, _, v in (one.partition(":") for one in rest)}
            return int(line.split()[1]), headers, await self.reader.readexactly(int(headers.get("content-length", 0)))

    async def ended(self) -> bool:
        """Whether the server closes the connection without a further byte."""
        async with asyncio.timeout(20):
            try:
                return await self.reader.read(1) == b""
            except ConnectionError:
                return True


@contextlib.asynccontextmanager
async def connected(proxy: Proxy) -> AsyncIterator[Client]:
    """A connection to a proxy."""
    host, port = proxy.url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        yield Client(reader, writer)
    finally:
        writer.transport.abort()


UPGRADES = {
    "h2c": b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
    "websocket": b"Connection: keep-alive, upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n",
    "tls": b"Upgrade: TLS/1.2\r\nConnection: Upgrade\r\n",
    "two": b"Connection: Upgrade\r\nConnection: HTTP2-Settings\r\nUpgrade: h2c\r\nUpgrade: foo/2\r\n",
}


class TestUpgrades:
    @pytest.mark.parametrize("form", ["whole", "in two parts", "in bytes", "chunked"])
    async def test_one_that_is_not_taken_is_ignored(self, store: Store, form: str) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            for upgrade in UPGRADES:  # on one connection
                if form == "chunked":
                    chunks = b"%x\r\n%b\r\n%x\r\n%b\r\n0\r\n\r\n" % (5, BODY[:5], len(BODY) - 5, BODY[5:])
                    request = HEAD + UPGRADES[upgrade] + b"Transfer-Encoding: chunked\r\n\r\n" + chunks
                else:
                    request = HEAD + UPGRADES[upgrade] + LENGTH + b"\r\n" + BODY
                size = {"whole": len(request), "chunked": len(request), "in two parts": len(request) - len(BODY)}
                step = size.get(form, 1)
                for at in range(0, len(request), step):
                    await client.send(request[at : at + step])
                status, _, body = await client.answer()
                assert (status, json.loads(body)["object"]) == (200, "chat.completion")

    async def test_requests_behind_one_are_served(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            upgrading = b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + UPGRADES["h2c"] + b"\r\n"
            await client.send(upgrading + GET + upgrading)
            assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 200]

    async def test_connect_is_refused(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n")
            status, _, body = await client.answer()
            assert status == 405
            assert b"CONNECT" in body
            assert await client.ended()


class TestExpectation:
    async def test_a_client_that_waits_for_100_is_told_to_go_on(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n")
            assert (await client.answer())[0] == 100
            await client.send(BODY)
            assert (await client.answer())[0] == 200

    async def test_a_client_that_does_not_wait_is_served_too(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(HEAD + LENGTH + b"Expect: 100-continue\r\n\r\n" + BODY)
            statuses = [(await client.answer())[0]]
            if statuses == [100]:
                statuses.append((await client.answer())[0])
            assert statuses[-1] == 200


class TestHeads:
    @pytest.mark.parametrize(
        "head",
        [
            b"GET /" + b"a" * 80_000,
            b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 80_000,
            b"GET / HTTP/1.1\r\nHost: a\r\n" + b"".join(b"X%d: %b\r\n" % (n, b"a" * 60) for n in range(1200)),
            b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX: " + b"a" * 80_000 + b"\r\n\r\n",
        ],
        ids=["url", "header", "many headers", "whole"],
    )
    async def test_one_that_is_too_large_gets_431(self, store: Store, head: bytes) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(head)
            status, headers, body = await client.answer()
            assert (status, headers["connection"]) == (431, "close")
            assert "max_head_bytes" in json.loads(body)["error"]["message"]
            assert await client.ended()

    async def test_it_ends_while_the_client_still_sends(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            with contextlib.suppress(ConnectionError):
                await client.send(b"GET /")
                for _ in range(100):
                    await client.send(b"a" * 100_000)
            assert (await client.answer())[0] == 431

    async def test_a_large_one_within_the_limit_is_served(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(GET[:-2] + b"X: " + b"a" * 60_000 + b"\r\n\r\n")
            assert (await client.answer())[0] == 200

    async def test_one_that_does_not_end_gets_408(self, store: Store) -> None:
        async with running(store, head_timeout_s=0.3) as proxy, connected(proxy) as client:
            await client.send(b"POST /v1/messages HTTP/1.1\r\nHost: a\r\n")
            status, _, body = await client.answer()
            fault = json.loads(body)
            assert (status, fault["type"]) == (408, "error")  # in the format of the path
            assert "head_timeout_s" in fault["error"]["message"]
            assert await client.ended()

    async def test_bytes_do_not_buy_time(self, store: Store) -> None:
        async with running(store, head_timeout_s=0.5) as proxy, connected(proxy) as client:

            async def drip() -> None:
                with contextlib.suppress(ConnectionError):
                    for byte in b"GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"X: y\r\n" * 100:
                        await client.send(bytes([byte]))
                        await asyncio.sleep(0.05)

            dripping = asyncio.ensure_future(drip())
            assert (await client.answer())[0] == 408
            dripping.cancel()

    async def test_a_connection_without_a_byte_is_closed(self, store: Store) -> None:
        async with running(store, head_timeout_s=0.3) as proxy, connected(proxy) as client:
            assert await client.ended()

    async def test_empty_lines_keep_no_connection(self, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(connections, "KEEP_ALIVE_S", 0.3)
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(GET)
            assert (await client.answer())[0] == 200
            await client.send(b"\r\n")
            assert await client.ended()


class TestBodies:
    @pytest.mark.parametrize("sent", [0, 10])
    async def test_one_that_stands_still_gets_408(self, store: Store, sent: int) -> None:
        async with running(store, body_timeout_s=0.3) as proxy, connected(proxy) as client:
            await client.send(HEAD + LENGTH + b"\r\n" + BODY[:sent])
            status, _, body = await client.answer()
            assert status == 408
            assert b"body_timeout_s" in body
            assert await client.ended()
            assert (await proxy.http.get("/healthz")).status_code == 200

    async def test_a_slow_one_is_served(self, store: Store) -> None:
        async with running(store, body_timeout_s=1.5) as proxy, connected(proxy) as client:
            await client.send(HEAD + LENGTH + b"\r\n")
            for at in range(0, len(BODY), len(BODY) // 4):
                await client.send(BODY[at : at + len(BODY) // 4])
                await asyncio.sleep(0.5)
            assert (await client.answer())[0] == 200

    @pytest.mark.parametrize("rest", [b"5;" + b"a=b;" * 20, b"0\r\n" + b"X: y\r\n" * 40], ids=["chunk", "trailers"])
    async def test_what_is_no_body_buys_no_time(self, store: Store, rest: bytes) -> None:
        async with running(store, body_timeout_s=0.3) as proxy, connected(proxy) as client:

            async def drip() -> None:
                with contextlib.suppress(ConnectionError):
                    for byte in rest:
                        await client.send(bytes([byte]))
                        await asyncio.sleep(0.05)

            await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n5\r\n" + BODY[:5] + b"\r\n")
            dripping = asyncio.ensure_future(drip())
            assert (await client.answer())[0] == 408
            dripping.cancel()

    async def test_trailers_are_bounded_and_change_no_header(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            chunks = b"%x\r\n%b\r\n0\r\n" % (len(BODY), BODY)
            head = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
            await client.send(head + chunks + b"x-hone-trajectory: other\r\n\r\n")
            assert (await client.answer())[0] == 200
            assert (await proxy.call())["trajectory_id"] != "other"
            await client.send(head + chunks[:-3] + b"0\r\n" + b"a: b\r\n" * 5000)
            assert (await client.answer())[0] == 431

    async def test_the_body_of_a_refused_request_has_its_time_too(self, store: Store) -> None:
        async with running(store, body_timeout_s=0.3) as proxy, connected(proxy) as client:
            await client.send(b"POST /v1/nothing HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n\r\n")
            assert (await client.answer())[0] in (403, 404)
            with contextlib.suppress(ConnectionError):
                for _ in range(60):
                    await client.send(b"x")
                    await asyncio.sleep(0.05)
            assert await client.ended()

    @pytest.mark.parametrize("rest", [b"zz\r\n", b"5\r\nabcdefgh\r\n"])
    async def test_a_malformed_one_gets_400(self, store: Store, rest: bytes) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + rest)
            status, _, body = await client.answer()
            assert (status, json.loads(body)["error"]["code"]) == (400, "invalid_http")


class TestPipelining:
    async def test_all_are_answered_in_their_order(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            sending = asyncio.ensure_future(client.send((GET + HEAD + LENGTH + b"\r\n" + BODY) * 40))
            kinds = [json.loads((await client.answer())[2]).get("object") for _ in range(80)]
            assert kinds == [None, "chat.completion"] * 40
            await sending

    async def test_few_wait(self, store: Store) -> None:
        """What a client sends ahead stays unread while sixteen requests wait."""
        async with FakeEngine() as engine:
            gate = asyncio.Event()
            engine.default = Script(gate=gate)
            settings = ProxySettings(port=0, pages=False)
            async with serving(store, engine, settings=settings) as proxy, connected(proxy) as client:
                sending = asyncio.ensure_future(client.send(HEAD + LENGTH + b"\r\n" + BODY + GET * 600_000))
                await asyncio.sleep(1.5)
                assert not sending.done()
                waiting = [one for one in proxy.app.connections._open if one.pipeline]
                assert [len(one.pipeline) < 16 + connections.PIECE_BYTES // len(GET) + 1 for one in waiting] == [True]
                sending.cancel()
                gate.set()

    async def test_a_malformed_one_is_refused_after_the_answers_before_it(self, store: Store) -> None:
        async with running(store) as proxy, connected(proxy) as client:
            await client.send(HEAD + LENGTH + b"\r\n" + BODY + GET + b"no request at all\r\n\r\n")
            assert [(await client.answer())[0] for _ in range(3)] == [200, 200, 400]
            assert await client.ended()


class TestConnections:
    async def test_at_the_limit_an_idle_one_makes_room(self, store: Store) -> None:
        async with running(store, max_connections=4) as proxy, contextlib.AsyncExitStack() as stack:
            clients = [await stack.enter_async_context(connected(proxy)) for _ in range(8)]
            for client in clients[4:]:
                await client.send(GET)
                assert (await client.answer())[0] == 200
            assert await clients[0].ended()

    async def test_half_sent_heads_lock_nobody_out(self, store: Store) -> None:
        async with running(store, max_connections=4) as proxy, contextlib.AsyncExitStack() as stack:
            for _ in range(8):
                client = await stack.enter_async_context(connected(proxy))
                await client.send(b"GET / HTTP/1.1\r\n")
            await asyncio.sleep(connections._STALE_HEAD_S + 0.2)
            client = await stack.enter_async_context(connected(proxy))
            await client.send(GET)
            assert (await client.answer())[0] == 200

    async def test_requests_that_are_served_are_never_ended_for_others(self, store: Store) -> None:
        async with FakeEngine() as engine:
            gate = asyncio.Event()
            engine.default = Script(gate=gate)
            settings = ProxySettings(port=0, pages=False, max_connections=3)
            async with (
                serving(store, engine, settings=settings) as proxy,
                connected(proxy) as first,
                connected(proxy) as second,
                connected(proxy) as third,
            ):
                served = (first, second, third)
                for client in served:
                    await client.send(HEAD + LENGTH + b"\r\n" + BODY)
                await asyncio.sleep(0.5)
                async with connected(proxy) as fourth:
                    status, headers, body = await fourth.answer()
                    assert (status, headers["retry-after"]) == (503, "1")
                    assert b"connections" in body
                gate.set()
                assert [(await client.answer())[0] for client in served] == [200, 200, 200]

    async def test_reset_connections_leave_nothing(self, store: Store) -> None:
        async with running(store) as proxy:
            for data in (b"", b"GET /", HEAD + LENGTH + b"\r\n", GET):
                async with connected(proxy) as client:
                    await client.send(data)
                    await asyncio.sleep(0.05)
            await asyncio.sleep(0.2)
            table = proxy.app.connections
            assert len(table._open) == 1  # of the test's own client
            assert not table.heads
            assert ALIAS in (await proxy.http.get("/v1/models")).text
