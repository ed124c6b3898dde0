"""HTTP clients and servers for the hot path, compared in one process run before the same static upstream.

Each row is a Litestar app with one raw ASGI route that forwards a chat completion. Writes results/upstream.json.
Wall-clock figures vary with the machine's other load; `cpu_us_per_*` (CPU time of the proxy's process) varies less.

    python benchmarks/upstream.py [--seconds 3] [--connections 32]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import gc
import importlib.util
import sys
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager
from datetime import timedelta
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import orjson

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import load

RESULTS = Path(__file__).parent / "results" / "upstream.json"
JSON = {"content-type": "application/json"}


class _AiohttpClient:
    """aiohttp through its own API."""

    async def open(self) -> None:
        import aiohttp

        self._session = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0), auto_decompress=False, cookie_jar=aiohttp.DummyCookieJar()
        )

    async def post(self, url: str, body: bytes) -> bytes:
        async with self._session.post(url, data=body, headers=JSON) as response:
            return await response.read()

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._session.post(url, data=body, headers=JSON) as response:
            async for chunk in response.content.iter_any():
                yield chunk


class _PyreqwestClient:
    """pyreqwest through its own API."""

    async def open(self) -> None:
        from pyreqwest.client import ClientBuilder

        self._client = await ClientBuilder().pool_idle_timeout(timedelta(seconds=4)).build().__aenter__()

    async def post(self, url: str, body: bytes) -> bytes:
        response = await self._client.post(url).headers(JSON).body_bytes(body).build().send()
        return bytes(await response.bytes())

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._client.post(url).headers(JSON).body_bytes(body).build_streamed() as response:
            while (chunk := await response.body_reader.read_chunk()) is not None:
                yield bytes(chunk)


class _HttpxClient:
    """httpx with its default transport."""

    async def open(self) -> None:
        import httpx

        self._client = httpx.AsyncClient(limits=httpx.Limits(max_connections=None, max_keepalive_connections=None))

    async def post(self, url: str, body: bytes) -> bytes:
        response = await self._client.post(url, content=body, headers=JSON)
        return response.content

    async def stream(self, url: str, body: bytes) -> AsyncIterator[bytes]:
        async with self._client.stream("POST", url, content=body, headers=JSON) as response:
            async for chunk in response.aiter_raw():
                yield chunk


CLIENTS: dict[str, tuple[str, Callable[[], Any]]] = {
    "aiohttp": ("aiohttp", _AiohttpClient),
    "pyreqwest": ("pyreqwest", _PyreqwestClient),
    "httpx": ("httpx", _HttpxClient),
}


def run_proxy(port: int, server: str, client_name: str, upstream_port: int) -> None:
    """Serve the forwarding app until killed (the target of a child process)."""
    from litestar import Litestar, asgi

    url = f"http://127.0.0.1:{upstream_port}/v1/chat/completions"
    client = CLIENTS[client_name][1]()

    @asgi("/v1/chat/completions")
    async def pass_on(scope: Any, receive: Any, send: Any) -> None:
        body = (await receive())["body"]
        if b'"stream":true' in body:
            headers = [(b"content-type", b"text/event-stream")]
            await send({"type": "http.response.start", "status": 200, "headers": headers})
            async for chunk in client.stream(url, body):
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})
            return
        answer = await client.post(url, body)
        length = str(len(answer)).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", length)]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncIterator[None]:
        await client.open()
        gc.collect()
        gc.freeze()  # as Hone's server does: the garbage collector skips imported objects
        yield

    SERVERS[server](Litestar([pass_on], lifespan=[lifespan], openapi_config=None, logging_config=None), port)


def _uvicorn(app: Any, port: int) -> None:
    import uvicorn

    uvicorn.run(app, port=port, loop="uvloop", http="httptools", access_log=False, log_level="warning")


def _granian(app: Any, port: int) -> None:
    import asyncio

    import uvloop
    from granian.constants import HTTPModes, Interfaces
    from granian.server.embed import Server

    asyncio.set_event_loop_policy(uvloop.EventLoopPolicy())
    server = Server(app, port=port, interface=Interfaces.ASGI, http=HTTPModes.http1)
    asyncio.run(server.serve())


SERVERS: dict[str, Callable[[Any, int], None]] = {"uvicorn": _uvicorn, "granian": _granian}


async def aborts(client: Any) -> bool:
    """Whether cancelling a request before its answer begins also cancels it at the engine, within a second."""
    arrived, closed = asyncio.Event(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        arrived.set()
        while await reader.read(4096):
            pass
        closed.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    await client.open()
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat/completions"
    asking = asyncio.ensure_future(client.post(url, load.REQUEST))
    await arrived.wait()
    asking.cancel()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(closed.wait(), 1.0)
    server.close()
    return closed.is_set()


def run_aborts(name: str) -> bool:
    """Run `aborts` for one client in a process of its own, so that its open connections end with it."""
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        return pool.submit(_aborts, name).result()


def _aborts(name: str) -> bool:
    return asyncio.run(aborts(CLIENTS[name][1]()))


def measure(process: Any, port: int, connections: int, seconds: float) -> dict[str, Any]:
    """Return requests/s without streaming, events/s with streaming, and the CPU time of each in `process`."""
    load.drive(port, "/v1/chat/completions", load.REQUEST, connections, 0.5)
    before_s = load.cpu_s(process)
    plain = load.drive(port, "/v1/chat/completions", load.REQUEST, connections, seconds)
    between_s = load.cpu_s(process)
    stream = load.drive(port, "/v1/chat/completions", load.STREAM_REQUEST, connections, seconds)
    after_s = load.cpu_s(process)
    return {
        "requests_per_s": round(plain.requests / plain.seconds),
        "p50_ms": round(plain.p50_ms, 2),
        "p99_ms": round(plain.p99_ms, 2),
        "cpu_us_per_request": round(1e6 * (between_s - before_s) / plain.requests),
        "events_per_s": round(stream.events / stream.seconds),
        "cpu_us_per_event": round(1e6 * (after_s - between_s) / max(1, stream.events), 1),
        "failures": plain.failures + stream.failures,
    }


def main() -> None:
    """Measure every pair that is installed and write the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--connections", type=int, default=32)
    args = parser.parse_args()
    rows: list[dict[str, Any]] = []
    upstream_port = load.free_port()
    with load.child(load.run_upstream, upstream_port) as upstream:
        rows.append({"what": "upstream alone"} | measure(upstream, upstream_port, args.connections, args.seconds))
        for server in SERVERS:
            for name, (module, _) in CLIENTS.items():
                if importlib.util.find_spec(module) is None or importlib.util.find_spec(server) is None:
                    print(f"{server} + {name}: not installed, omitted")
                    continue
                port = load.free_port()
                with load.child(run_proxy, port, server, name, upstream_port) as proxy:
                    figures = measure(proxy, port, args.connections, args.seconds)
                rows.append({"what": f"{server} + {name}"} | figures | {"aborts_when_given_up": run_aborts(name)})
    for row in rows:
        print("  ".join(f"{key} {value}" for key, value in row.items()))
    setup = load.machine() | {"connections": args.connections, "request_bytes": len(load.REQUEST)}
    RESULTS.write_bytes(orjson.dumps({"setup": setup, "rows": rows}, option=orjson.OPT_INDENT_2) + b"\n")


if __name__ == "__main__":
    main()
