"""Calls across a pause of their engine: streams continue byte for byte, rows are exact, and no time limit runs."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from proxy.engine import client
from proxy.http.sse import KEEP_ALIVE, KeepAliveStream
from proxy.settings.sections import ProxySettings
from recorder.registry.replicas import ReplicaState, report_replica
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, events_of, words
from tests.proxy.formats import CHAT, REQUESTS, request
from tests.proxy.running import BASE, PROJECT, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow

LIMIT_S = 0.4
RAW = "/v1/chat/completions/batch"  # passed through as it comes
TEXT = "It arrives on Monday at noon"
# What differs between two calls of the same content: ids and times.
_OWN = re.compile(rb'(?<=")(?:resp|msg|rs|fc|call|chatcmpl|cmpl)[_-][\w-]+(?=")|(?<="created": )\d+|(?<="created":)\d+')
_TIMES = re.compile(rb'(?<=_at":)[\d.]+')


@pytest.fixture(autouse=True)
def _hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "LOOK_S", 0.02)
    monkeypatch.setattr(KeepAliveStream.__init__, "__defaults__", (0.05,))


@asynccontextmanager
async def sharing(store: Store, engine: FakeEngine) -> AsyncIterator[Proxy]:
    settings = ProxySettings(port=0, pages=False, first_byte_timeout_s=LIMIT_S, unrecorded=True)
    async with serving(store, engine, settings=settings, share="sleep") as proxy:
        yield proxy


async def become(proxy: Proxy, engine: FakeEngine, state: ReplicaState) -> None:
    """What the controller reports; return when the proxy knows it."""
    await report_replica(
        Project(proxy.store, PROJECT), engine.url, base_model=BASE, base_fingerprint="fingerprint", state=state,
        loaded=[BASE],
    )  # fmt: skip
    await until(lambda: proxy.versions.is_asleep(engine.url) is (state == "asleep"))


async def read_stream(proxy: Proxy, path: str, received: bytearray) -> bytes:
    async with proxy.http.stream("POST", path, json=body_of(path)) as answer:
        assert answer.status_code == 200
        async for chunk in answer.aiter_raw():
            received += chunk
    return bytes(received)


def body_of(path: str) -> dict[str, Any]:
    return request(CHAT if path == RAW else path, stream=True)


def without_own(stream: bytes) -> bytes:
    return _TIMES.sub(b"", _OWN.sub(b"", stream))


@pytest.mark.parametrize("pause_at", [0, 3])
@pytest.mark.parametrize("path", [*REQUESTS, RAW])
async def test_a_stream_continues_after_a_pause_as_if_there_were_none(
    store: Store, engine: FakeEngine, path: str, pause_at: int
) -> None:
    resume = asyncio.Event()
    async with sharing(store, engine) as proxy:
        engine.next = [Script([words(TEXT)]), Script([words(TEXT)], pause_at=pause_at, resume=resume)]
        expected = await read_stream(proxy, path, bytearray())
        received = bytearray()
        await become(proxy, engine, "asleep")
        reading = asyncio.ensure_future(read_stream(proxy, path, received))
        await until(lambda: received.count(KEEP_ALIVE) > 2 * LIMIT_S / 0.05)  # twice the limit has passed
        assert not reading.done()
        await become(proxy, engine, "up")
        resume.set()
        continued = (await reading).replace(KEEP_ALIVE, b"")
        assert without_own(continued) == without_own(expected.replace(KEEP_ALIVE, b""))
        if path == RAW:
            assert continued == b"".join(events_of(engine.requests[1], [words(TEXT)]))
            return
        first, second = await proxy.calls()
        assert (first["status"], second["status"]) == ("complete", "complete")
        assert [exact(choice) for choice in first["choices"]] == [exact(choice) for choice in second["choices"]]
        assert second["choices"][0]["token_ids"] == words(TEXT).ids()
        assert second["choices"][0]["trainable"]


def exact(choice: dict[str, Any]) -> tuple[Any, ...]:
    return choice["token_ids"], choice["logprobs"], choice["finish_reason"], choice["trainable"]


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_whole_answer_is_waited_for_while_its_engine_is_asleep(
    store: Store, engine: FakeEngine, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = asyncio.Event()
    async with sharing(store, engine) as proxy:
        looks = count_looks(proxy, monkeypatch)
        await become(proxy, engine, "asleep")
        engine.next = [Script([words(TEXT)], gate=gate)]
        asking = asyncio.ensure_future(proxy.http.post(path, json=request(path)))  # queued in the engine
        await until(lambda: len(looks) > 2 * LIMIT_S / 0.02)
        assert not asking.done()
        await become(proxy, engine, "up")
        gate.set()
        answer = await asking
        assert answer.status_code == 200, answer.text
        assert "Monday" in json.dumps(answer.json())


async def test_the_limit_runs_again_after_the_pause(store: Store, engine: FakeEngine) -> None:
    async with sharing(store, engine) as proxy:
        await become(proxy, engine, "asleep")
        never = asyncio.Event()
        engine.next = [Script([words(TEXT)], pause_at=3, resume=never), Script(gate=never)]
        received = bytearray()
        reading = asyncio.ensure_future(read_stream(proxy, CHAT, received))
        asking = asyncio.ensure_future(proxy.chat("x"))
        await until(lambda: received.count(KEEP_ALIVE) > 2 * LIMIT_S / 0.05)
        await become(proxy, engine, "up")
        assert b"sent nothing for 0.4 s" in await reading
        assert (await asking).status_code == 502


async def test_a_call_whose_engine_dies_asleep_ends(store: Store, engine: FakeEngine) -> None:
    async with sharing(store, engine) as proxy:
        engine.next = [Script([words(TEXT)], pause_at=3, resume=asyncio.Event())]
        received = bytearray()
        await become(proxy, engine, "asleep")
        reading = asyncio.ensure_future(read_stream(proxy, CHAT, received))
        await until(lambda: received.count(KEEP_ALIVE) > 1)
        await engine.stop()
        ended = await reading
        assert b"broke off" in ended, ended[-260:].decode()


@pytest.mark.parametrize("path", ["/sleep", "/wake_up", "/is_sleeping", "/release_kv_cache_memory", "/pause"])
async def test_no_client_reaches_the_routes_for_sleeping(store: Store, engine: FakeEngine, path: str) -> None:
    async with sharing(store, engine) as proxy:
        for method in ("GET", "POST"):
            for prefix in ("", "/v1", "/t/a", "/g/a/t/b"):
                assert (await proxy.http.request(method, f"{prefix}{path}?level=2", json={})).status_code == 404
        assert engine.requests == []


def count_looks(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """How often a waiting call asks whether its engine is asleep."""
    looks: list[str] = []
    client_of_app: Any = proxy.app._client
    ask = client_of_app._is_paused

    def counted(url: str) -> bool:
        looks.append(url)
        return bool(ask(url))

    monkeypatch.setattr(client_of_app, "_is_paused", counted)
    return looks
