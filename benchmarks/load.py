"""Shared parts of the benchmarks: a static upstream, a load generator, and child processes with measured CPU time.

Owns: raw-socket HTTP/1.1 that costs as little as Python allows, so that only the program in between is measured.
Refuses: knowing what is measured.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import os
import socket
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from multiprocessing import get_context
from typing import Any, cast

import orjson
import psutil
import uvloop

from examples.running.programs import free_ports

REQUEST = orjson.dumps(
    {
        "model": "bench",
        "messages": [
            {"role": "system", "content": "You answer questions about orders. " * 40},
            {"role": "user", "content": "Where is my order 00004821? " * 20},
        ],
        "temperature": 1.0,
    }
)
NUMBER = b"00004821"  # in a body: each request has another one, of the same length
STREAM_REQUEST = REQUEST[:-1] + b',"stream":true}'
SAMPLED = 24  # tokens of a plain answer
STREAMED = 200  # events of a streamed one
LONG = 10_000  # events of a long one, requested by `max_tokens`
LONG_MARK = b"#long"  # the path of its answers at the upstream


def free_port() -> int:
    """Return a port that nothing listens on now."""
    return free_ports(1)[0]


def _logprobs(count: int) -> dict[str, Any]:
    entry = {"token": " order", "logprob": -0.25, "bytes": [32, 111, 114, 100, 101, 114], "top_logprobs": []}
    return {"content": [entry] * count}


def plain_answer() -> bytes:
    """Return a body in vLLM's format, with prompt ids, sampled ids and logprobs."""
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": " order" * SAMPLED, "reasoning": None},
        "logprobs": _logprobs(SAMPLED),
        "finish_reason": "stop",
        "stop_reason": None,
        "token_ids": [2000 + i for i in range(SAMPLED)],
    }
    return orjson.dumps(
        {
            "id": "chatcmpl-bench",
            "object": "chat.completion",
            "created": 1,
            "model": "bench",
            "choices": [choice],
            "usage": {"prompt_tokens": 300, "completion_tokens": SAMPLED, "total_tokens": 300 + SAMPLED},
            "prompt_token_ids": list(range(1000, 1300)),
        }
    )


def word(at: int) -> str:
    """Return the text of the event with this number: some gateways treat a repetitive stream as broken."""
    return f" order{at}"


def stream_events(count: int = STREAMED) -> list[bytes]:
    """Return a streamed answer's events in vLLM's format: role, `count` events of one token each, usage, [DONE]."""

    def event(**fields: Any) -> bytes:
        head = {"id": "chatcmpl-bench", "object": "chat.completion.chunk", "created": 1, "model": "bench"}
        return b"data: " + orjson.dumps(head | fields) + b"\n\n"

    def choice(delta: dict[str, Any], finish: str | None, ids: list[int]) -> list[dict[str, Any]]:
        return [
            {"index": 0, "delta": delta, "logprobs": _logprobs(len(ids)), "finish_reason": finish, "token_ids": ids}
        ]

    first = {"index": 0, "delta": {"role": "assistant", "content": ""}, "logprobs": None, "finish_reason": None}
    usage = {"prompt_tokens": 300, "completion_tokens": count, "total_tokens": 300 + count}
    return [
        event(choices=[first], prompt_token_ids=list(range(1000, 1300)), prompt_text=None),
        *[event(choices=choice({"content": word(i)}, None, [2000 + i])) for i in range(count - 1)],
        event(choices=choice({"content": "."}, "stop", [13])),
        event(choices=[], usage=usage),
        b"data: [DONE]\n\n",
    ]


@dataclass(frozen=True, slots=True)
class Answers:
    """The static upstream's answers on one path: a whole body, and the events of a stream."""

    plain: bytes
    events: list[bytes]


def _head(content_type: bytes, rest: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\ncontent-type: " + content_type + b"\r\n" + rest + b"\r\n\r\n"


class _Route:
    """One path's answers as bytes."""

    def __init__(self, answers: Answers) -> None:
        length = b"content-length: %d" % len(answers.plain)
        self.plain = _head(b"application/json", length) + answers.plain
        self.head = _head(b"text/event-stream; charset=utf-8", b"transfer-encoding: chunked")
        self.chunks = [b"%x\r\n" % len(e) + e + b"\r\n" for e in answers.events] + [b"0\r\n\r\n"]


def asks(body: bytes, name: bytes, value: bytes) -> bool:
    """Whether a JSON body has this field, with or without a space."""
    return b'"%b":%b' % (name, value) in body or b'"%b": %b' % (name, value) in body


class _StaticUpstream(asyncio.Protocol):
    """Answers a path with the same bytes each time; a stream's events are written one at a time."""

    def __init__(self, routes: dict[bytes, _Route]) -> None:
        self._routes = routes
        self._buffer = b""
        self._transport: asyncio.Transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        at = head.find(b"content-length:")
        length = int(head[at + 15 :].split(b"\r\n", 1)[0]) if at >= 0 else 0
        if len(self._buffer) < end + 4 + length:
            return
        body, self._buffer = self._buffer[end + 4 : end + 4 + length], self._buffer[end + 4 + length :]
        path = head.split(b" ", 2)[1].split(b"?", 1)[0]
        route = self._routes.get(path)
        if asks(body, b"max_tokens", b"%d" % LONG):
            route = self._routes.get(path + LONG_MARK, route)
        if route is None:  # health checks, lists of models
            self._transport.write(_head(b"application/json", b"content-length: 2") + b"{}")
        elif asks(body, b"stream", b"true"):
            self._transport.write(route.head)
            self._pump(route.chunks, 0)
        else:
            self._transport.write(route.plain)

    def _pump(self, chunks: list[bytes], at: int) -> None:
        if at < len(chunks) and not self._transport.is_closing():
            self._transport.write(chunks[at])
            asyncio.get_running_loop().call_soon(self._pump, chunks, at + 1)


def run_upstream(port: int, answers: dict[str, Answers] | None = None) -> None:
    """Serve the static upstream until killed (the target of a child process)."""
    given = answers or {"/v1/chat/completions": Answers(plain_answer(), stream_events())}
    routes = {path.encode(): _Route(one) for path, one in given.items()}

    async def main() -> None:
        server = await asyncio.get_running_loop().create_server(
            lambda: _StaticUpstream(routes), "127.0.0.1", port, backlog=1024
        )
        await server.serve_forever()

    uvloop.run(main())


_numbers = itertools.count(1)  # of all requests of this process


class _Client(asyncio.Protocol):
    """One keep-alive connection that sends the next request as soon as the answer is complete."""

    def __init__(self, request: bytes, until: float, latencies_s: list[float], failures: list[bytes]) -> None:
        self._request = request
        self._until = until
        self._latencies_s = latencies_s
        self._failures = failures
        self._first_s: float | None = None
        self.firsts_s: list[float] = []
        self._buffer = bytearray()
        self._transport: asyncio.Transport
        self.events = 0
        self.done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's does not inherit from asyncio's
        self._send()

    def _send(self) -> None:
        self._started = time.perf_counter()
        self._transport.write(self._request.replace(NUMBER, b"%08d" % next(_numbers), 1))

    def data_received(self, data: bytes) -> None:
        self._buffer += data
        if self._first_s is None and (b"\ndata: " in data or data.startswith(b"data: ")):
            self._first_s = time.perf_counter() - self._started
        if not self._whole():
            return
        if not self._buffer.startswith(b"HTTP/1.1 200"):
            self._failures.append(bytes(self._buffer[:300]))
        self._latencies_s.append(time.perf_counter() - self._started)
        self.events += self._buffer.count(b"\ndata: ")
        if self._first_s is not None:
            self.firsts_s.append(self._first_s)
        self._first_s = None
        self._buffer.clear()
        if time.perf_counter() < self._until:
            self._send()
        else:
            self._transport.close()

    def _whole(self) -> bool:
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return False
        head = bytes(self._buffer[:end]).lower()
        at = head.find(b"content-length:")
        if at < 0:
            return self._buffer.endswith(b"0\r\n\r\n")
        return len(self._buffer) >= end + 4 + int(head[at + 15 :].split(b"\r\n", 1)[0])

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.done.done():
            self.done.set_result(None)


@dataclass(frozen=True, slots=True)
class Load:
    """The clients' measurements."""

    requests: int
    events: int
    seconds: float
    p50_ms: float
    p99_ms: float
    first_p50_ms: float | None  # until the first event of a stream
    failures: int
    first_failure: str


def drive(port: int, path: str, body: bytes, connections: int, seconds: float) -> Load:
    """Send `body` to 127.0.0.1:`port` from `connections` keep-alive connections for `seconds`.

    Each request has another number in place of `NUMBER`: no conversation is a repetition of another.
    """
    head = f"POST {path} HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\ncontent-type: application/json\r\n"
    request = head.encode() + b"content-length: %d\r\n\r\n" % len(body) + body

    async def main() -> Load:
        loop = asyncio.get_running_loop()
        latencies_s: list[float] = []
        failures: list[bytes] = []
        began = time.perf_counter()
        clients = []
        for _ in range(connections):
            _, client = await loop.create_connection(
                lambda: _Client(request, began + seconds, latencies_s, failures), "127.0.0.1", port
            )
            clients.append(client)
        await asyncio.gather(*(client.done for client in clients))
        took_s = time.perf_counter() - began
        latencies_s.sort()
        firsts_s = sorted(first for client in clients for first in client.firsts_s)
        return Load(
            requests=len(latencies_s),
            events=sum(client.events for client in clients),
            seconds=took_s,
            p50_ms=1000 * latencies_s[len(latencies_s) // 2],
            p99_ms=1000 * latencies_s[int(len(latencies_s) * 0.99)],
            first_p50_ms=1000 * firsts_s[len(firsts_s) // 2] if firsts_s else None,
            failures=len(failures),
            first_failure=failures[0].decode(errors="replace") if failures else "",
        )

    return uvloop.run(main())


@contextlib.contextmanager
def child(target: Any, *args: Any) -> Iterator[psutil.Process]:
    """Run `target(*args)` in a process of its own, wait until it listens on its port (the first argument), stop it."""
    process = get_context("spawn").Process(target=target, args=args, daemon=True)
    process.start()
    try:
        wait_for_port(int(args[0]), process)
        assert process.pid is not None
        yield psutil.Process(process.pid)
    finally:
        process.terminate()
        process.join(10)


def wait_for_port(port: int, process: Any = None) -> None:
    """Wait until 127.0.0.1:`port` listens. Raises RuntimeError after a minute, or when `process` has died."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if process is not None and not process.is_alive():
            raise RuntimeError(f"the process for port {port} died while starting")
        with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 1):
            return
        time.sleep(0.05)
    raise RuntimeError(f"nothing listens on port {port} after 60 s")


def wait_until_listening(process: psutil.Process, port: int) -> None:
    """Wait for one of several processes that share a port: a connection to the port does not identify the process."""
    deadline = time.monotonic() + 120
    while not any(c.status == psutil.CONN_LISTEN and c.laddr.port == port for c in process.net_connections("tcp")):
        if time.monotonic() > deadline:
            raise RuntimeError(f"process {process.pid} does not listen on port {port} after 120 s")
        time.sleep(0.05)


def cpu_s(process: psutil.Process) -> float:
    """Return the CPU seconds of a process."""
    times = process.cpu_times()
    return float(times.user + times.system)


def machine() -> dict[str, Any]:
    """Return the facts about the machine that readers need for the figures."""
    return {"cores": os.cpu_count(), "python": sys.version.split()[0], "load_before": round(os.getloadavg()[0], 1)}
