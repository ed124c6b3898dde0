"""Whether this process lives, records, and should be sent requests: as whoever watches it is told."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import shutil
import sqlite3
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from proxy.http.asgi import Message
from proxy.settings.sections import ProxySettings
from proxy.supervision.liveness import HealthRoutes
from proxy.versions.routing import ServiceRouter
from recorder.capture.recorder import Recorder
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import BASE, PROJECT, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow


@pytest.fixture
async def engine() -> AsyncIterator[FakeEngine]:
    async with FakeEngine() as engine:
        yield engine


def file_of(store: Store) -> Path:
    assert store.url.database is not None
    return Path(store.url.database)


async def ready(proxy: Proxy) -> bool:
    return (await proxy.http.get("/readyz")).status_code == 200


async def unready(proxy: Proxy) -> str | None:
    answer = await proxy.http.get("/readyz")
    return answer.text if answer.status_code == 503 and answer.headers["retry-after"] == "5" else None


async def test_one_that_serves_and_records_is_ready(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine) as proxy:
        for path in ("/healthz", "/health"):
            told = (await proxy.http.get(path)).json()
            assert (told["status"], told["recording"], told["engines_up"]) == ("ok", True, 1)
        assert await ready(proxy)
        assert await proxy.metric("hone_recording") == 1


async def test_without_an_engine_it_is_not_ready(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine) as proxy:
        await report_replica(
            Project(store, PROJECT),
            engine.url,
            base_model=BASE,
            base_fingerprint="fingerprint",
            state="down",
            detail="gone",
            loaded=[],
        )
        assert "no engine is up" in await until(lambda: unready(proxy))
        assert (await proxy.http.get("/healthz")).json()["recording"]


@pytest.mark.parametrize(("has_aliases", "status"), [(True, 503), (False, 200)])
async def test_before_the_store_knows_its_aliases_it_waits_for_an_engine(
    store: Store, has_aliases: bool, status: int
) -> None:
    recorder, versions = Recorder(store, RecorderSettings()), ServiceRouter(Project(store, PROJECT), ProxySettings())
    await recorder.start()
    await versions.start()
    told: list[Message] = []

    async def send(message: Message) -> None:
        told.append(message)

    await HealthRoutes(versions, recorder, has_aliases=has_aliases).ready({}, _says_nothing, send)
    await versions.stop()
    await recorder.stop()
    assert told[0]["status"] == status


async def _says_nothing() -> Message:
    raise AssertionError("nothing is read of the request")


@pytest.mark.sqlite_only("its file")
@pytest.mark.parametrize("fault", ["deleted", "replaced"])
async def test_a_store_that_went_away_under_it_is_noticed_counted_and_refused(
    store: Store, engine: FakeEngine, tmp_path: Path, fault: str, caplog: pytest.LogCaptureFixture
) -> None:
    file, aside = file_of(store), tmp_path / "aside.db"
    recording = RecorderSettings(on_failure="refuse")
    async with serving(store, engine, recording=recording) as proxy:
        assert (await proxy.chat(path="/t/one")).status_code == 200
        file.rename(aside)
        if fault == "replaced":
            shutil.copy(aside, file)
        with caplog.at_level(logging.ERROR):
            told = await until(lambda: unready(proxy))
            await until(lambda: _alarmed(proxy))
        assert "was deleted or replaced while this program had it open" in told
        assert "NOTHING CAN BE RECORDED" in caplog.text, "nobody had to call for it to be noticed"
        assert (await proxy.http.get("/healthz")).json()["recording"] is False
        refused = await proxy.chat(path="/t/one")
        assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unrecorded")
        assert file.exists() == (fault == "replaced"), "no empty store is made in its place"
        aside.rename(file)
        await until(lambda: ready(proxy))
        assert (await proxy.chat(path="/t/one")).status_code == 200


async def _alarmed(proxy: Proxy) -> bool:
    return await proxy.metric("hone_store_alarms_total") == 1


@pytest.mark.sqlite_only("its one write lock, taken by another connection")
async def test_a_store_that_somebody_else_holds_is_told_until_it_is_free(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, recording=RecorderSettings(commit_timeout_s=0.2)) as proxy:
        await proxy.chat(path="/t/one")
        with contextlib.closing(sqlite3.connect(file_of(store), isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert (await proxy.chat(path="/t/one")).status_code == 200
            assert "another program locks the store" in await until(lambda: unready(proxy))
            other.execute("ROLLBACK")
        await until(lambda: ready(proxy))


@pytest.mark.sqlite_only("how many pages its file may have")
async def test_a_full_store_is_told_until_there_is_room(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine) as proxy:
        await proxy.chat(path="/t/one")
        full(proxy, pages=1)
        await asyncio.gather(*(proxy.chat("x" * 100_000, path="/t/one") for _ in range(8)))
        assert "database or disk is full" in await until(lambda: unready(proxy))
        full(proxy, pages=1_000_000)
        await until(lambda: ready(proxy), within_s=30)


def full(proxy: Proxy, pages: int) -> None:
    """Let the recorder's writing connection hold no more pages than these, as a full disk would."""
    backend = proxy.recorder._backend
    backend._writer.execute(f"PRAGMA max_page_count={pages}")  # type: ignore[attr-defined]
