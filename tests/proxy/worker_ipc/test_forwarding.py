"""MCP callers whose requests reach now this worker, now that: each meets the one that remembers it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import mcp_types as types
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client

from proxy.settings.mcp import McpServerSettings
from recorder.maintenance.export import tool_lines
from recorder.registry import keys
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import PROJECT, Proxy
from tests.proxy.until import until
from tests.proxy.worker_ipc.pair import both, worker

pytestmark = pytest.mark.slow

MODES = ["legacy", "2026-07-28"]
HELLO = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}},
}
BOTH = {"accept": "application/json, text/event-stream"}


class InTurn(httpx2.AsyncBaseTransport):
    """Gives each request to the next worker, as the kernel may."""

    def __init__(self, workers: Sequence[Proxy]) -> None:
        self._inner = httpx2.AsyncHTTPTransport()
        self._ports = itertools.cycle([httpx2.URL(proxy.url).port for proxy in workers])
        self.asked: Counter[int | None] = Counter()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        port = next(self._ports)
        self.asked[port] += 1
        request.url = request.url.copy_with(port=port)
        return await self._inner.handle_async_request(request)

    async def aclose(self) -> None:
        await self._inner.aclose()


@asynccontextmanager
async def caller(
    workers: Sequence[Proxy], mode: str, address: str = "", key: str | None = None, **more: Any
) -> AsyncIterator[Client]:
    turns = InTurn(workers)
    headers = {"authorization": f"Bearer {key}"} if key else {}
    async with httpx2.AsyncClient(transport=turns, headers=headers, timeout=httpx2.Timeout(30, read=60)) as http:
        transport = streamable_http_client(f"{workers[0].url}{address}/mcp", http_client=http)
        async with Client(transport, mode=mode, **more) as client:
            yield client
    assert len(turns.asked) == 2, "the requests reached one worker alone"


@asynccontextmanager
async def gateway(
    store: Store, engine: FakeEngine, meeting: Path
) -> AsyncIterator[tuple[tuple[Proxy, Proxy], Everything]]:
    """Two workers before a server of the handshake era."""
    old = Everything("old")
    async with served(old, era="handshake") as url:
        servers = {"old": McpServerSettings(url=url)}
        async with both(store, engine, meeting, mcp=servers) as workers:
            yield workers, old


def result_text(result: types.CallToolResult) -> str:
    content = result.content[0]
    assert isinstance(content, types.TextContent)
    return content.text


@pytest.mark.parametrize("mode", MODES)
async def test_a_servers_memory_and_its_questions_find_their_caller(
    store: Store, engine: FakeEngine, meeting: Path, mode: str
) -> None:
    async def one(workers: Sequence[Proxy], number: int) -> tuple[Any, str]:
        async def answer(context: Any, params: Any) -> types.ElicitResult:
            return types.ElicitResult(action="accept", content={"username": f"user-{number}", "email": "e"})

        async with caller(workers, mode, f"/g/crowd/t/{number}", elicitation_callback=answer) as client:
            for text in ("one", "two"):
                await client.call_tool("old__note", {"text": text})
            asked = result_text(await client.call_tool("old__test_elicitation", {"message": "who?"}))
            noted = await client.call_tool("old__note", {"text": "three"})
            assert noted.structured_content is not None
            return noted.structured_content["notes"], asked

    async with gateway(store, engine, meeting) as (workers, _):
        told = await asyncio.gather(*(one(workers, n) for n in range(4)))
        lines = [line async for line in tool_lines(Project(store, PROJECT))]
    assert [notes for notes, _ in told] == [["one", "two", "three"]] * 4
    assert [f"user-{n}" in asked for n, (_, asked) in enumerate(told)] == [True] * 4
    assert {line["joined"]["source"] for line in lines} == {"path"}, "the run stands in the path, and was passed on"
    of_runs = Counter(line["trajectory_id"] for line in lines)
    assert (len(of_runs), len(set(of_runs.values()))) == (4, 1), "each run has its own calls"


async def test_what_changes_is_heard_through_another_worker(store: Store, engine: FakeEngine, meeting: Path) -> None:
    heard: list[str] = []

    async def on_message(message: Any) -> None:
        heard.append(getattr(message, "method", "?"))

    uri = "test://old/own"
    async with gateway(store, engine, meeting) as (workers, old):
        for _ in range(2):  # so that each worker has the stream of news once and passes it on once
            heard.clear()
            async with caller(workers, "legacy", message_handler=on_message) as client:
                subscribe = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
                await client.session.send_request(subscribe, types.EmptyResult)
                await until(lambda: uri in old.subscribed)
                await old.updated(uri)
                await until(lambda: "notifications/resources/updated" in heard)
            await until(lambda: old.subscribed == [])


async def test_who_hangs_up_at_one_worker_is_given_up_at_the_other(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    async with (
        gateway(store, engine, meeting) as (workers, old),
        caller(workers, "2026-07-28", "/g/slow/t/1") as client,
    ):
        for _ in range(2):
            old.entered.clear()
            old.cancelled.clear()
            calling = asyncio.ensure_future(client.call_tool("old__slow"))
            await old.entered.wait()
            calling.cancel()
            await asyncio.gather(calling, return_exceptions=True)
            await until(lambda: old.cancelled == ["slow"])


async def opened(proxy: Proxy, **headers: str) -> str:
    """A session of the handshake era; its id."""
    answer = await proxy.http.post("/mcp", json=HELLO, headers=BOTH | headers)
    assert answer.status_code == 200, answer.text
    return str(answer.headers["mcp-session-id"])


async def ping(proxy: Proxy, session: str, **headers: str) -> httpx2.Response | Any:
    body = {"jsonrpc": "2.0", "id": 2, "method": "ping"}
    return await proxy.http.post("/mcp", json=body, headers=BOTH | {"mcp-session-id": session} | headers)


async def test_a_session_is_ended_at_any_worker_and_unknown_when_its_own_is_gone(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    async with served(Everything("old")) as url:
        servers = {"old": McpServerSettings(url=url)}
        async with worker(store, engine, meeting, 1, mcp=servers) as one:
            async with worker(store, engine, meeting, 2, mcp=servers) as two:
                session, kept = await opened(two), await opened(two)
                assert session.startswith("2-")
                assert (await ping(one, session)).status_code == 200
                gone = await one.http.delete("/mcp", headers={"mcp-session-id": session})
                assert gone.status_code == 200
                assert (await ping(two, session)).status_code == 404
                assert (await ping(one, kept)).status_code == 200
            assert (await ping(one, kept)).status_code == 404, "the protocol's word for: open a new one"
            for unknown in ("7-abc", "abc", "1-", "2-" + "x" * 64, "0-abc"):
                assert (await ping(one, unknown)).status_code == 404
            async with worker(store, engine, meeting, 2, mcp=servers):
                assert (await ping(one, kept)).status_code == 404, "the new one of that number does not know it"
                assert (await ping(one, await opened(one))).status_code == 200


async def test_a_run_whose_worker_is_not_there_is_told_to_come_again(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list", "params": {}}
    modern = {"mcp-protocol-version": "2026-07-28", "mcp-method": "tools/list", **BOTH}
    async with (
        served(Everything("old")) as url,
        worker(store, engine, meeting, 1, mcp={"old": McpServerSettings(url=url)}) as one,
    ):
        answers = [await one.http.post(f"/g/g/t/{n}/mcp", json=body, headers=modern) for n in range(16)]
    refused = [answer for answer in answers if answer.status_code == 503]
    assert 0 < len(refused) < 16, "each run has one worker"
    assert {answer.headers["retry-after"] for answer in refused} == {"1"}
    assert "worker 2 of this proxy is restarting" in refused[0].text


async def test_a_session_belongs_to_its_key_and_a_stranger_stays_one_when_passed_on(
    store: Store, engine: FakeEngine, meeting: Path
) -> None:
    async with gateway(store, engine, meeting) as ((one, two), _):
        session = await opened(two)
        strange = await ping(one, session, host="evil.example")
        assert strange.status_code == 403
        lying = await ping(one, session, **{"x-hone-client": "203.0.113.7"})
        assert lying.status_code == 200, "what a client says of itself is not passed on"
        secret = (await keys.create_key(Project(store, PROJECT), "a", ["infer"]))[1]
        other = (await keys.create_key(Project(store, PROJECT), "b", ["infer"]))[1]
        await until(lambda: refused(one))
        await until(lambda: refused(two))
        held = await opened(two, authorization=f"Bearer {secret}")
        assert (await ping(one, held, authorization=f"Bearer {secret}")).status_code == 200
        assert (await ping(one, held, authorization=f"Bearer {other}")).status_code == 404
        assert (await ping(one, held)).status_code == 401


async def refused(proxy: Proxy) -> bool:
    """Whether it knows that there are keys now."""
    return (await proxy.http.get("/v1/models")).status_code == 401
