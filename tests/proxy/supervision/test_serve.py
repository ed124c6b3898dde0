"""`hone serve` alone: what time changes is changed without a judge, and what a killed one left open is closed."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from aiohttp import web
from pydantic import ValidationError
from sqlalchemy import select

from proxy.settings.hone import HoneSettings
from proxy.settings.sections import ProxySettings
from proxy.supervision import serve
from proxy.supervision.serve import proxy_url
from proxy.supervision.sockets import listen
from recorder.queue import leases
from recorder.queue.leases import PROXY
from recorder.queue.notifications import NOTIFIER
from recorder.registry.aliases import get_alias
from recorder.registry.learning_health import LearningHealth, RuleSignal, write_health
from recorder.registry.replicas import list_live_proxies
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import calls, notification_cursors, trajectories
from recorder.store.sql import now
from tests.proxy.notifications.receiver import SECRET, receiving
from tests.proxy.running import NO_TLS
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    yield store
    await store.close()


@asynccontextmanager
async def served(
    folder: Path,
    engine: ScriptedEngine,
    *,
    url: str | None = None,
    notify: dict[str, str] | None = None,
    **recording: Any,
) -> AsyncIterator[None]:
    """`hone serve` in this process."""
    settings = HoneSettings.model_validate(
        {
            "data": folder,
            "engine": {"urls": [engine.url]},
            "aliases": {"helpdesk": {"base_model": "base"}},
            "proxy": {"port": 0, "url": url},
            "recorder": recording,
            "notify": notify or {},
        }
    )
    task = asyncio.create_task(serve.run(settings, origin={"proxy.port": "flag"}))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    started = ScriptedEngine()
    await started.start()
    yield started
    await started.stop()


async def test_idle_runs_end_without_a_judge(tmp_path: Path, opened: Store, engine: ScriptedEngine) -> None:
    rows = Rows(opened)
    run = await rows.trajectory(await rows.group(), last_call_at=now() - 60)

    async def ended() -> bool:
        return await rows.state(trajectories, run) == "completed"

    async with served(tmp_path, engine, idle_timeout_s=60):
        await until(ended)


async def test_it_sends_notifications_where_an_address_is_set(
    tmp_path: Path, opened: Store, engine: ScriptedEngine, caplog: pytest.LogCaptureFixture
) -> None:
    project = Project(opened, PROJECT)

    async def follows() -> int:
        return len(await leases.list_holders(project, NOTIFIER)) * len(await Rows(opened).all(notification_cursors))

    async with receiving() as receiver:
        notify = {"url": receiver.url, "secret": SECRET}
        async with served(tmp_path, engine, url="http://hone.example.com", notify=notify):
            await until(follows)
            signal = RuleSignal("entropy", "note", "", {})
            alias = await get_alias(project, "helpdesk")
            await write_health(opened, alias, LearningHealth(alias.name, 3, [signal]))
            await until(lambda: receiver.requests)
    assert receiver.messages[0]["kind"] == "alarm"
    assert receiver.messages[0]["link"] == "http://hone.example.com/hone/training"
    assert "private-path" not in caplog.text
    assert not await follows()


async def test_a_proxy_shows_that_it_runs(tmp_path: Path, opened: Store, engine: ScriptedEngine) -> None:
    async def count_holders() -> int:
        return len(await leases.list_holders(Project(opened, PROJECT), PROXY))

    async with served(tmp_path, engine):
        await until(count_holders)
    assert not await count_holders()


async def test_it_tells_its_settings_and_where_they_came_from(
    tmp_path: Path, opened: Store, engine: ScriptedEngine
) -> None:
    async def reported() -> str | None:
        there = await list_live_proxies(Project(opened, PROJECT), 60)
        return there[0].url if there else None

    async with served(tmp_path, engine), httpx.AsyncClient(timeout=20, verify=NO_TLS) as http:
        url = await until(reported)
        told = {one["key"]: one for one in (await http.get(f"{url}/hone/v1/settings")).json()}
        assert (told["proxy.port"]["value"], told["proxy.port"]["origin"]) == (0, "flag")
        assert told["engine.urls"]["value"] == [engine.url]
        assert told["proxy.host"]["origin"] == "default"
        assert "proxy.host" in (await http.get(f"{url}/hone/settings")).text


async def test_it_tells_others_where_it_is_told_that_they_reach_it(
    tmp_path: Path, opened: Store, engine: ScriptedEngine
) -> None:
    """On `0.0.0.0` in a container of its own a proxy cannot know: a judge would ask its own container."""

    async def reported() -> str | None:
        there = await list_live_proxies(Project(opened, PROJECT), 60)
        return there[0].url if there else None

    async with served(tmp_path, engine, url="http://proxy:8700/v1/"):
        assert await until(reported) == "http://proxy:8700"


def test_it_is_reached_where_it_listens() -> None:
    assert proxy_url(ProxySettings(), "127.0.0.1", 9000) == "http://127.0.0.1:9000"
    assert proxy_url(ProxySettings(), "::1", 9000) == "http://[::1]:9000"


@pytest.mark.parametrize("url", ["proxy:8700", "ftp://proxy", "http://key@proxy:8700", "http://proxy/hone", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ValidationError, match="write it as http://host:port"):
        ProxySettings(url=url)


@asynccontextmanager
async def a_process(folder: Path, engine: ScriptedEngine, port: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """`hone serve` as a program of its own, killed at the end."""
    command = (sys.executable, "-m", "proxy.cli", "serve", "--data", str(folder), "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command, "--engine", engine.url, "--model", "base", cwd=folder)
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.wait()


async def test_calls_that_a_killed_proxy_left_open_are_closed_by_the_next(tmp_path: Path, opened: Store) -> None:
    over = asyncio.Event()

    async def takes_long(_request: web.Request) -> web.Response:
        await over.wait()
        return web.Response()

    rows, engine = Rows(opened), ScriptedEngine()
    engine.more = {"/v1/chat/completions": takes_long}
    await engine.start()

    async def state(wanted: str) -> str | None:
        async with opened.read() as conn:
            return (await conn.execute(select(calls.c.id).where(calls.c.state == wanted))).scalars().first()

    with listen("127.0.0.1", 0) as free:
        port = free.getsockname()[1]
    async with a_process(tmp_path, engine, port) as process:
        talking = asyncio.create_task(ask(port, process))
        call = await until(lambda: state("open"), within_s=60)
        assert f":{process.pid}:" in (await rows.get(calls, call))["process"]
    await asyncio.gather(talking, return_exceptions=True)
    async with served(tmp_path, engine):
        assert await until(lambda: state("errored")) == call
    assert "died" in (await rows.get(calls, call))["error"]
    over.set()
    await engine.stop()


async def ask(port: int, proxy: asyncio.subprocess.Process) -> None:
    """A chat completion, once the proxy is up."""
    body = {"model": "base", "messages": [{"role": "user", "content": "hello"}]}
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", timeout=60, verify=NO_TLS) as http:

        async def up() -> bool:
            assert proxy.returncode is None
            try:
                return bool((await http.get("/healthz")).json()["engines_up"])
            except httpx.HTTPError:
                return False

        await until(up, within_s=60)
        await http.post("/v1/chat/completions", json=body)
