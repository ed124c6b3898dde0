"""Services found running, or started and stopped again: real `hone up` processes before a scripted engine."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import textwrap
from collections.abc import AsyncIterator, Collection
from pathlib import Path

import psutil
import pytest

from recorder.errors import StoreError
from recorder.queue import leases
from recorder.registry.aliases import ensure_alias
from recorder.registry.replicas import list_live_proxies
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from tests.proxy.scripted_engine import ScriptedEngine
from tests.trainer.ring import PROJECT, Ring, Script
from trainer.errors import ServiceUnavailable
from trainer.runtime.services import CampaignServices, ServiceRequest, is_healthy, running_proxy

pytestmark = pytest.mark.slow  # programs and whole campaigns: left out of `make check`

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def _from_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(ROOT))


@pytest.fixture
async def engine() -> AsyncIterator[ScriptedEngine]:
    engine = ScriptedEngine()
    await engine.start()
    yield engine
    await engine.stop()


def wanted(folder: Path, engine: ScriptedEngine, **fields: object) -> ServiceRequest:
    """Everything a campaign would need, with a reward function as the judge."""
    (folder / "rewards.py").write_text("def even(trajectory):\n    return 1.0\n")
    config = folder / "hone.toml"
    config.write_text(
        f'[engine]\nurls = ["{engine.url}"]\n[aliases.base]\nbase_model = "base"\n[proxy]\nport = 0\n'
        f'[judge]\nfolder = "."\n[[judge.rewards]]\nkind = "function"\nfunction = "rewards:even"\n'
    )
    data = folder / "data"
    options = ("--config", str(config), "--data", str(data))
    return ServiceRequest(data, "default", RecorderSettings(), options=options, **fields)  # type: ignore[arg-type]  # by tests


def below() -> set[psutil.Process]:
    """What runs below this process: another test's server of PostgreSQL as well, which stays."""
    return set(psutil.Process().children(recursive=True))


async def all_gone(processes: Collection[psutil.Process]) -> None:
    assert processes
    _, alive = await asyncio.to_thread(psutil.wait_procs, processes, 30)
    assert all(p.status() == psutil.STATUS_ZOMBIE for p in alive)


@pytest.mark.slow
async def test_what_is_missing_is_started_then_used_then_stopped(tmp_path: Path, engine: ScriptedEngine) -> None:
    asked = wanted(tmp_path, engine)
    said: list[str] = []
    before = below()
    async with CampaignServices(asked, said.append) as services:
        assert (await services.alias(None)).name == "base"
        url = await services.ready()
        assert await is_healthy(url)
        assert await services.judge_runs()
        started = below() - before
        async with CampaignServices(asked, said.append) as again:
            assert await again.ready() == url
            assert below() - before == started
        assert await is_healthy(url)  # what another started is left alone
    await all_gone(started)
    assert not await is_healthy(url)
    assert len(said) == 1
    assert "starting engine, proxy and judge" in said[0]


@pytest.mark.slow
@pytest.mark.long
async def test_a_proxy_that_runs_by_itself_is_used_with_a_judge_beside_it(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    asked = wanted(tmp_path, engine)
    argv = [sys.executable, "-m", "proxy.cli", "serve", *asked.options]
    serving = await asyncio.create_subprocess_exec(*argv, cwd=tmp_path, stderr=subprocess.DEVNULL)
    said: list[str] = []
    try:
        store = await _until_a_proxy_reports(asked)
        async with CampaignServices(asked, said.append) as services:
            url = await services.ready()
            assert [proxy.url for proxy in await list_live_proxies(Project(store, PROJECT), 60)] == [url]
        await store.close()
        assert said == ["no judge runs: starting one"]
        assert await is_healthy(url)  # it is not ours to stop
    finally:
        serving.terminate()
        await serving.wait()


async def _until_a_proxy_reports(asked: ServiceRequest) -> Store:
    store = await open_store(asked.data, RecorderSettings(), migrate=True)
    with store.watch.on(Topic.PROXIES) as news:
        while not await list_live_proxies(Project(store, PROJECT), 60):
            await news.wait()
    return store


@pytest.mark.slow
@pytest.mark.long
async def test_a_judge_that_runs_already_is_not_doubled(tmp_path: Path, engine: ScriptedEngine) -> None:
    asked = wanted(tmp_path, engine)
    store = await open_store(asked.data, RecorderSettings(), migrate=True)
    assert await leases.acquire_lease(Project(store, PROJECT), "judge:here", "here", 600) is not None
    said: list[str] = []
    async with CampaignServices(asked, said.append) as services:
        await services.ready()
        assert [lease.name for lease in await leases.list_holders(Project(store, PROJECT), "judge:")] == ["judge:here"]
    await store.close()
    assert len(said) == 1
    assert said[0].startswith("starting engine and proxy;")


@pytest.mark.slow
async def test_where_nothing_is_to_be_judged_no_judge_is_started(tmp_path: Path, engine: ScriptedEngine) -> None:
    asked = wanted(tmp_path, engine, judge=False)
    config = tmp_path / "hone.toml"
    config.write_text(config.read_text().partition("[judge]")[0])  # and none is set
    said: list[str] = []
    async with CampaignServices(asked, said.append) as services:
        assert await is_healthy(await services.ready())
        assert not await services.judge_runs()
    assert len(said) == 1
    assert said[0].startswith("starting engine and proxy;")


@pytest.mark.slow
async def test_where_a_judge_is_needed_and_none_is_set_the_settings_to_give_are_named(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    asked = wanted(tmp_path, engine, judge_is_set=False)
    config = tmp_path / "hone.toml"
    config.write_text(config.read_text().partition("[judge]")[0])
    async with CampaignServices(asked, lambda text: None) as services:
        with pytest.raises(ServiceUnavailable, match="no judge is set: set judge"):
            await services.ready()


@pytest.mark.slow
async def test_when_hone_train_is_killed_what_it_started_ends(tmp_path: Path, engine: ScriptedEngine) -> None:
    asked = wanted(tmp_path, engine)
    program = f"""
        import asyncio
        from pathlib import Path
        from recorder.settings import RecorderSettings
        from trainer.runtime.services import CampaignServices, ServiceRequest

        async def main():
            asked = ServiceRequest(Path({str(asked.data)!r}), "default", RecorderSettings(), options={asked.options!r})
            async with CampaignServices(asked, lambda text: None) as services:
                print(await services.ready(), flush=True)
                await asyncio.Event().wait()

        asyncio.run(main())
    """
    process = subprocess.Popen([sys.executable, "-c", textwrap.dedent(program)], stdout=subprocess.PIPE)
    assert process.stdout is not None
    url = (await asyncio.to_thread(process.stdout.readline)).decode().strip()
    children = psutil.Process(process.pid).children(recursive=True)
    process.kill()
    process.wait()
    process.stdout.close()
    await all_gone(children)
    assert not await is_healthy(url)


async def test_a_service_that_does_not_start_is_told_with_its_last_words(
    tmp_path: Path, engine: ScriptedEngine
) -> None:
    asked = wanted(tmp_path, engine)
    (tmp_path / "hone.toml").write_text("[engine]\nurls = 3\n")
    with pytest.raises(ServiceUnavailable, match=r"`hone up` ended with status 2\. .*\n.*engine\.urls"):
        async with CampaignServices(asked, lambda text: None) as services:
            await services.store()


async def test_a_proxy_that_was_named_must_be_there(tmp_path: Path, engine: ScriptedEngine) -> None:
    with pytest.raises(ServiceUnavailable, match="no proxy answers"):
        async with CampaignServices(wanted(tmp_path, engine, proxy_url="http://127.0.0.1:9"), lambda text: None):
            pass


async def test_a_named_proxy_of_another_store_is_refused(tmp_path: Path, engine: ScriptedEngine) -> None:
    async with Ring.running(tmp_path / "other", Script()) as ring:
        await (await open_store(tmp_path / "data", RecorderSettings(), migrate=True)).close()
        asked = wanted(tmp_path, engine, proxy_url=ring.url, found_timeout_s=0.2)
        async with CampaignServices(asked, lambda text: None) as services:
            with pytest.raises(ServiceUnavailable, match="a proxy that serves this store did not become ready"):
                await services.ready()


async def test_without_a_store_a_named_proxy_is_no_help(tmp_path: Path, engine: ScriptedEngine) -> None:
    async with (
        Ring.running(tmp_path / "other", Script()) as ring,
        CampaignServices(wanted(tmp_path, engine, proxy_url=ring.url), lambda text: None) as services,
    ):
        with pytest.raises(StoreError, match="there is no store"):
            await services.store()


async def test_an_alias_that_is_not_there_is_told_with_those_that_are(tmp_path: Path, engine: ScriptedEngine) -> None:
    async with Ring.running(tmp_path / "data", Script()) as ring:
        asked = wanted(tmp_path, engine, proxy_url=ring.url, found_timeout_s=0.2)
        async with CampaignServices(asked, lambda text: None) as services:
            with pytest.raises(ServiceUnavailable, match="serves no alias 'other'; there is: helpdesk"):
                await services.alias("other")
            await ensure_alias(Project(ring.store, PROJECT), "second", "base", None)
            with pytest.raises(ServiceUnavailable, match=r"several aliases \(helpdesk, second\): name the one"):
                await services.alias(None)


async def test_where_only_the_judge_is_missing_only_it_is_started(tmp_path: Path, engine: ScriptedEngine) -> None:
    said: list[str] = []
    before = below()
    async with Ring.running(tmp_path / "data", Script(judge=False)) as ring:
        async with CampaignServices(wanted(tmp_path, engine, proxy_url=ring.url), said.append) as services:
            assert not await services.judge_runs()
            assert await services.ready() == ring.url
            assert await services.judge_runs()
            started = below() - before
        await all_gone(started)
    assert said == ["no judge runs: starting one"]


@pytest.mark.parametrize("noted", ["", "[]", "{}", '{"proxy_url": 3}', "{", "\x00"])
def test_a_broken_note_of_a_running_proxy_is_none(tmp_path: Path, noted: str) -> None:
    (tmp_path / "run.json").write_text(noted)
    assert running_proxy(tmp_path) is None


def test_a_note_names_the_proxy(tmp_path: Path) -> None:
    assert running_proxy(tmp_path) is None
    (tmp_path / "run.json").write_text(json.dumps({"proxy_url": "http://127.0.0.1:8700/", "pids": {"up": os.getpid()}}))
    assert running_proxy(tmp_path) == "http://127.0.0.1:8700"
