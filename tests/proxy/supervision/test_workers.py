"""`hone serve --workers N` as a program: one port, one page of figures, workers that die, and all of them ending."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import psutil
import pytest
from aiohttp import web
from prometheus_client.parser import text_string_to_metric_families
from sqlalchemy import func, select

from proxy.errors import ConfigError, PortInUse
from proxy.supervision.sockets import bind, listen
from proxy.supervision.workers import reserve_port
from recorder.queue import leases
from recorder.queue.leases import PROXY
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.store.schema import calls
from tests.proxy.running import NO_TLS
from tests.proxy.scripted_engine import ScriptedEngine
from tests.proxy.until import until
from tests.recorder.rows import PROJECT

linux = pytest.mark.skipif(sys.platform != "linux", reason="ports are shared on Linux")


# --- the port


@linux
def test_a_port_is_the_workers_and_nobody_elses() -> None:
    with reserve_port("127.0.0.1", 0) as port:
        with pytest.raises(PortInUse):
            listen("127.0.0.1", port)
        with listen("127.0.0.1", port, shared=True), listen("127.0.0.1", port, shared=True):
            with pytest.raises(PortInUse):
                listen("127.0.0.1", port)
            with pytest.raises(PortInUse), reserve_port("127.0.0.1", port):
                pass
    with listen("127.0.0.1", port):
        pass


@linux
def test_a_second_command_is_refused_before_the_first_ones_workers_listen() -> None:
    refused = pytest.raises(PortInUse, match="in use by another program")
    with reserve_port("127.0.0.1", 0) as port, refused, reserve_port("127.0.0.1", port):
        pass


@linux
def test_a_port_on_which_another_listens_is_not_reserved() -> None:
    with listen("127.0.0.1", 0) as other, pytest.raises(PortInUse), reserve_port("127.0.0.1", other.getsockname()[1]):
        pass


def test_an_address_that_is_not_ours_is_named() -> None:
    with pytest.raises(ConfigError, match=r"cannot listen on .*\[proxy\]"):
        bind("203.0.113.7", 0, shared=True)


# --- the program


@dataclass
class Command:
    """`hone serve --workers 2`, and what it wrote to the terminal when it has ended."""

    process: subprocess.Popen[str]
    port: int
    data: Path

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def request(self, path: str) -> httpx.Response | None:
        """An answer on a connection of its own, so that any worker may give it; None where nobody listens."""
        assert self.process.poll() is None, self.process.communicate()[0]
        with contextlib.suppress(httpx.TransportError):
            async with httpx.AsyncClient(base_url=self.url, timeout=60, verify=NO_TLS) as http:
                return await http.get(path)
        return None

    async def workers(self) -> dict[str, float]:
        """Which workers answer, by the page of figures."""
        answer = await self.request("/metrics")
        families = text_string_to_metric_families(answer.text) if answer is not None and answer.is_success else ()
        return {
            sample.labels["worker"]: sample.value
            for family in families
            if family.name == "hone_proxy_worker_up"
            for sample in family.samples
        }

    async def up(self) -> bool:
        return await self.workers() == {"1": 1.0, "2": 1.0} and await self.ready()

    async def ready(self) -> bool:
        """Whether eight requests in a row find a ready worker. All eight reach the same one only once in 128 times."""
        for _ in range(8):
            answer = await self.request("/readyz")
            if answer is None or not answer.is_success:
                return False
        return True

    def serving(self) -> list[psutil.Process]:
        """The processes that listen."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        return [one for one in below if _listens(one, self.port)]

    async def ended(self) -> tuple[int, str]:
        """Exit status and output."""
        out, _ = await asyncio.to_thread(self.process.communicate, timeout=90)
        return self.process.returncode, out


def _listens(process: psutil.Process, port: int) -> bool:
    with contextlib.suppress(psutil.NoSuchProcess):
        return any(
            one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in process.net_connections("tcp")
        )
    return False


@contextlib.asynccontextmanager
async def command(data: Path, *arguments: str, port: int | None = None) -> AsyncIterator[Command]:
    if port is None:
        with listen("127.0.0.1", 0) as free:
            port = free.getsockname()[1]
    argv = [sys.executable, "-m", "proxy.cli", "serve", "--workers", "2", "--data", str(data), "--port", str(port)]
    env = {name: value for name, value in os.environ.items() if not name.startswith("HONE_")}
    process = await asyncio.to_thread(
        lambda: subprocess.Popen(
            [*argv, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=env
        )
    )
    try:
        yield Command(process, port, data)
    finally:
        process.kill()  # what it started ends with it
        await asyncio.to_thread(process.communicate)


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    started = ScriptedEngine()
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
async def opened(tmp_path: Path) -> AsyncIterator[Store]:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    yield store
    await store.close()


async def recorded(store: Store, state: str) -> int:
    async with store.read() as conn:
        query = select(func.count()).select_from(calls).where(calls.c.state == state)
        return int((await conn.execute(query)).scalar_one())


def of(engine: ScriptedEngine) -> tuple[str, ...]:
    return "--engine", engine.url, "--model", "base"


CALLS = 16  # so many that the kernel does not give all to one worker
ANSWER = {
    "prompt_token_ids": [1, 2],
    "choices": [
        {
            "index": 0,
            "message": {"role": "assistant", "content": "On Monday"},
            "finish_reason": "stop",
            "token_ids": [5],
            "logprobs": {"content": [{"token": "x", "logprob": -0.5}]},
        }
    ],
}
BODY = {"model": "base", "messages": [{"role": "user", "content": "hello"}]}


@linux
@pytest.mark.slow
async def test_one_port_one_store_and_a_worker_that_is_killed_comes_back(
    tmp_path: Path, opened: Store, engine: ScriptedEngine
) -> None:
    async with command(tmp_path, *of(engine)) as hone:
        await until(hone.up, within_s=90)
        killed, stays = hone.serving()
        assert len(await leases.list_holders(Project(opened, PROJECT), PROXY)) == 2
        killed.kill()
        assert await until(lambda: restarted(hone, killed), within_s=60)
        assert stays in hone.serving(), "its sibling was left alone"
        await until(hone.up, within_s=60)
        for asked in range(8):  # on connections of their own
            async with httpx.AsyncClient(base_url=hone.url, timeout=60, verify=NO_TLS) as http:
                answer = await http.post("/v1/chat/completions", json=BODY)
            assert answer.status_code == 200, answer.text
            assert await recorded(opened, "complete") == asked + 1
        hone.process.send_signal(signal.SIGTERM)
        assert (await hone.ended())[0] == 0
    assert not await leases.list_holders(Project(opened, PROJECT), PROXY)
    assert {path.name for path in (tmp_path / "logs").iterdir()} == {"proxy-1.log", "proxy-2.log"}


def restarted(hone: Command, killed: psutil.Process) -> bool:
    serving = hone.serving()
    return len(serving) == 2 and killed not in serving


@linux
@pytest.mark.slow
async def test_a_stop_waits_for_the_calls_of_all_workers(tmp_path: Path, opened: Store) -> None:
    over, engine = asyncio.Event(), ScriptedEngine()

    async def takes_long(_request: web.Request) -> web.Response:
        await over.wait()
        return web.json_response(ANSWER)

    engine.more = {"/v1/chat/completions": takes_long}
    await engine.start()
    async with command(tmp_path, *of(engine)) as hone:
        await until(hone.up, within_s=90)
        asking = [asyncio.create_task(ask(hone)) for _ in range(CALLS)]
        await until(lambda: at_both(opened), within_s=60)
        hone.process.send_signal(signal.SIGTERM)
        await until(lambda: told_to_come_again(hone), within_s=30)
        over.set()
        assert [await one for one in asking] == [200] * CALLS
        status, out = await hone.ended()
    assert status == 0, out
    assert await recorded(opened, "complete") == CALLS
    await engine.stop()


async def ask(hone: Command) -> int:
    async with httpx.AsyncClient(base_url=hone.url, timeout=90, verify=NO_TLS) as http:
        return (await http.post("/v1/chat/completions", json=BODY)).status_code


async def at_both(store: Store) -> bool:
    """Whether all are under way, and each worker has some: each shows its own."""
    async with store.read() as conn:
        query = select(calls.c.process, func.count()).where(calls.c.state == "open").group_by(calls.c.process)
        rows = (await conn.execute(query)).all()
    return len(rows) == 2 and sum(count for _, count in rows) == CALLS


async def told_to_come_again(hone: Command) -> bool:
    answer = await hone.request("/readyz")
    return answer is not None and answer.status_code == 503


@linux
@pytest.mark.slow
async def test_what_is_set_wrongly_ends_all_with_status_2_and_the_workers_words(tmp_path: Path) -> None:
    async with command(tmp_path, "--engine", "http://127.0.0.1:9", "--model", "base", "--host", "0.0.0.0") as hone:
        status, out = await hone.ended()
    assert status == 2, out
    assert "worker 1 ended while starting (exit status 2)" in out or "worker 2 ended while starting" in out
    assert "create a key first" in out


@linux
@pytest.mark.long
async def test_what_lacks_a_model_ends_all_with_status_2(tmp_path: Path) -> None:
    async with command(tmp_path) as hone:
        status, out = await hone.ended()
    assert (status, "no model is named" in out) == (2, True), out


@linux
@pytest.mark.slow
async def test_a_port_of_another_program_is_refused_before_anything_starts(tmp_path: Path) -> None:
    with listen("127.0.0.1", 0) as other:
        port = other.getsockname()[1]
        async with command(tmp_path, "--model", "base", "--engine", "http://127.0.0.1:9", port=port) as hone:
            status, out = await hone.ended()
    assert status == 1
    assert f"port {port} on 127.0.0.1 is in use by another program" in out
    assert not (tmp_path / "logs").exists()


@linux
@pytest.mark.slow
@pytest.mark.long
async def test_the_workers_of_a_killed_command_end_too(tmp_path: Path, engine: ScriptedEngine) -> None:
    async with command(tmp_path, *of(engine)) as hone:
        await until(hone.up, within_s=90)
        serving = hone.serving()
        hone.process.kill()
        await until(lambda: not any(one.is_running() for one in serving), within_s=60)
