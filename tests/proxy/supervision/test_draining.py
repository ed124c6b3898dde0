"""A stop as clients and the record see it: a real process, SIGTERM, calls of every format that do not end in time."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from examples.running.programs import free_ports
from recorder.maintenance.export import raw_lines
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import ALIAS, NO_TLS, PROJECT, say
from tests.proxy.until import until

CALLS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": say(),
    "/v1/completions": {"model": ALIAS, "prompt": "Where is order 4821?"},
    "/v1/responses": {"model": ALIAS, "input": "Where is order 4821?"},
    "/v1/messages": say() | {"max_tokens": 100},
}
SEVERAL = {"model": ALIAS, "prompt": ["Where is order 1?", "Where is order 2?"]}


@dataclass
class Child:
    """The proxy as a process."""

    http: httpx.AsyncClient
    process: subprocess.Popen[bytes]
    data: Path

    async def ended(self) -> int:
        """Its exit status, when it has ended."""
        return await asyncio.to_thread(self.process.wait, 60)

    async def recorded(self) -> list[dict[str, Any]]:
        """What is on record."""
        store = await open_store(self.data, RecorderSettings(), migrate=False)
        try:
            return [line async for line in raw_lines(Project(store, PROJECT))]
        finally:
            await store.close()


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        yield engine


@contextlib.asynccontextmanager
async def child(data: Path, engine: FakeEngine, stop_timeout_s: float) -> AsyncIterator[Child]:
    [port] = free_ports(1)
    argv = [sys.executable, "-m", "tests.proxy.proxy_child", str(port), engine.url, str(data), str(stop_timeout_s)]
    process = subprocess.Popen(argv)
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=NO_TLS) as http:
            await until(lambda: _answers(http, process), within_s=60)
            yield Child(http, process, data)
    finally:
        process.kill()
        await asyncio.to_thread(process.wait)


async def _answers(http: httpx.AsyncClient, process: subprocess.Popen[bytes]) -> bool:
    assert process.poll() is None, "the proxy died while starting"
    try:
        return (await http.get("/healthz")).is_success
    except httpx.ConnectError:
        return False


def hung(body: dict[str, Any]) -> Script:
    """An answer that never comes to its end: a stream begins, a whole one does not."""
    gate = None if body.get("stream") else asyncio.Event()
    return Script([words("It arrives on Monday")], after_events=4, then="hang", gate=gate)


@pytest.mark.slow
async def test_calls_that_a_stop_cuts_end_in_words_with_what_was_sampled(tmp_path: Path, engine: FakeEngine) -> None:
    engine.default = hung
    async with child(tmp_path / "data", engine, 1.0) as proxy:
        bodies = [(path, body | more) for path, body in CALLS.items() for more in ({}, {"stream": True})]
        asked = [*bodies, ("/v1/completions", SEVERAL), ("/v1/completions", SEVERAL | {"stream": True})]
        asking = [asyncio.ensure_future(proxy.http.post(path, json=body)) for path, body in asked]
        await until(lambda: len(engine.requests) == 12 and engine.sent_events == 6 * 4)
        proxy.process.send_signal(signal.SIGTERM)
        answers = await asyncio.gather(*asking)
        assert await proxy.ended() == 0
        rows = await proxy.recorded()
    for (path, body), answer in zip(asked, answers, strict=True):
        _assert_reason_given(path, bool(body.get("stream")), answer)
    assert Counter(row["status"] for row in rows) == {"errored": 12}
    kept = [row for row in rows if row["choices"] and row["choices"][0].get("token_ids")]
    assert len(kept) == 6, "what was sampled of the streams is kept"


def _assert_reason_given(path: str, streamed: bool, answer: httpx.Response) -> None:
    """That a client of this format was told why its answer ended."""
    if not streamed:
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "5"), (path, answer.text)
        error = answer.json()["error"]
        assert "this proxy is stopping" in error["message"], path
        return
    assert answer.status_code == 200, path
    events = [json.loads(line[6:]) for line in answer.text.splitlines() if line.startswith("data: {")]
    told = [event for event in events if "this proxy is stopping" in json.dumps(event)]
    assert told, (path, answer.text)
    assert ("type" in told[0]) == (path in ("/v1/responses", "/v1/messages")), told[0]


@pytest.mark.slow
async def test_a_stream_that_ends_in_time_is_whole_and_nobody_is_sent_here_meanwhile(
    tmp_path: Path, engine: FakeEngine
) -> None:
    gate = asyncio.Event()
    engine.default = Script([words("It arrives on Monday")], gate=gate)
    async with child(tmp_path / "data", engine, 30) as proxy:
        assert (await proxy.http.get("/readyz")).status_code == 200
        running = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=say(stream=True)))
        await engine.until(lambda e: len(e.requests) == 1)
        proxy.process.send_signal(signal.SIGTERM)
        unready = await until(lambda: _unready(proxy.http), within_s=20)
        assert unready.headers["retry-after"] == "5"
        gate.set()
        answer = await running
        assert await proxy.ended() == 0
        [row] = await proxy.recorded()
    assert answer.text.endswith("data: [DONE]\n\n")
    assert (row["status"], row["choices"][0]["finish_reason"]) == ("complete", "stop")


@pytest.mark.slow
async def test_of_two_streams_the_one_that_does_not_end_in_time_is_errored(tmp_path: Path, engine: FakeEngine) -> None:
    gate = asyncio.Event()
    engine.next = [
        Script([words("It arrives on Monday")], gate=gate),
        Script([words("It arrives on Monday")], after_events=4, then="hang"),
    ]
    async with child(tmp_path / "data", engine, 5.0) as proxy:
        in_time = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=say("One?", stream=True)))
        await engine.until(lambda e: len(e.requests) == 1)
        too_long = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=say("Two?", stream=True)))
        await until(lambda: engine.sent_events == 4)
        proxy.process.send_signal(signal.SIGTERM)
        await until(lambda: _unready(proxy.http), within_s=20)
        gate.set()
        assert (await in_time).text.endswith("data: [DONE]\n\n")
        assert "this proxy is stopping" in (await too_long).text
        assert await proxy.ended() == 0
        rows = {row["request"]["messages"][0]["content"]: row for row in await proxy.recorded()}
    assert {question: row["status"] for question, row in rows.items()} == {"One?": "complete", "Two?": "errored"}
    assert rows["Two?"]["choices"][0]["token_ids"], "what was sampled is kept"


@pytest.mark.slow
async def test_while_a_call_ends_who_comes_is_told_to_come_again(tmp_path: Path, engine: FakeEngine) -> None:
    gate = asyncio.Event()
    engine.default = Script([words("It arrives on Monday")], gate=gate)
    async with child(tmp_path / "data", engine, 30) as proxy:
        running = asyncio.ensure_future(proxy.http.post("/v1/chat/completions", json=say()))
        await engine.until(lambda e: len(e.requests) == 1)
        proxy.process.send_signal(signal.SIGTERM)
        refused = await until(lambda: _refused(proxy.http), within_s=20)
        assert refused.headers["retry-after"] == "5"
        assert refused.json()["error"]["code"] == "stopping"
        comers = [asyncio.ensure_future(_come(str(proxy.http.base_url))) for _ in range(8)]
        await asyncio.wait(comers, timeout=0.2)
        gate.set()
        answer = await running
        assert (answer.status_code, answer.headers["connection"]) == (200, "close")
        met = sum(await asyncio.gather(*comers), Counter())
        assert await proxy.ended() == 0
        assert [row["status"] for row in await proxy.recorded()] == ["complete"]
    assert set(met) == {"503", "refused"}, met


@pytest.mark.slow
async def test_who_connected_before_the_end_is_answered_after_it(tmp_path: Path, engine: FakeEngine) -> None:
    async with child(tmp_path / "data", engine, 30) as proxy:
        reader, writer = await asyncio.open_connection("127.0.0.1", proxy.http.base_url.port)
        proxy.process.send_signal(signal.SIGTERM)
        await until(lambda: not _listening(proxy.process.pid), within_s=20)
        writer.write(b"GET /v1/models HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n")
        assert (await reader.readline()).split()[1] == b"503"
        writer.close()
        assert await proxy.ended() == 0


def _listening(pid: int) -> bool:
    return any(one.status == psutil.CONN_LISTEN for one in psutil.Process(pid).net_connections())


async def _refused(http: httpx.AsyncClient) -> httpx.Response | None:
    answer = await http.post("/v1/chat/completions", json={})
    return answer if answer.status_code == 503 else None


async def _unready(http: httpx.AsyncClient) -> httpx.Response | None:
    answer = await http.get("/readyz")
    return answer if answer.status_code == 503 else None


async def _come(url: str) -> Counter[str]:
    """Ask on one new connection after another until nobody listens any more; what was met."""
    met: Counter[str] = Counter()
    while not met["refused"]:
        try:
            async with httpx.AsyncClient(base_url=url, timeout=20, verify=NO_TLS) as http:
                met[str((await http.post("/v1/chat/completions", json=say())).status_code)] += 1
        except httpx.ConnectError:
            met["refused"] += 1
        except httpx.HTTPError as e:
            met[repr(e)] += 1
    return met
