"""A real store for every test: a SQLite file of its own, or the database that HONE_TEST_STORE_URL names."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.settings import RecorderSettings
from recorder.store import migrate
from recorder.store.database import Store
from recorder.store.lanes import StoreLane
from recorder.store.schema import metadata
from tests.recorder.rows import Rows
from tests.recorder.talk import Talk


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, made once and copied for each test."""
    folder = tmp_path_factory.mktemp("empty")

    async def make() -> None:
        await (await migrate.open_store(folder, RecorderSettings(), migrate=True)).close()

    asyncio.run(make())
    return folder / "hone.db"


@pytest.fixture
async def store(tmp_path: Path, empty_database: Path) -> AsyncIterator[Store]:
    url = os.environ.get("HONE_TEST_STORE_URL")
    if url:
        await _wipe(url)
    else:
        shutil.copy(empty_database, tmp_path / "hone.db")
    opened = await migrate.open_store(tmp_path, RecorderSettings(url=url), migrate=True)
    yield opened
    await opened.close()


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


@pytest.fixture(params=["fastest lane", "store lane"])
async def recorder(store: Store, request: pytest.FixtureRequest) -> AsyncIterator[Recorder]:
    started = Recorder(store, RecorderSettings(), StoreLane(store) if request.param == "store lane" else None)
    await started.start()
    yield started
    await started.stop()


@pytest.fixture
def talk(recorder: Recorder) -> Talk:
    return Talk(recorder)


async def _wipe(url: str) -> None:
    store = Store(url)
    async with store.write() as conn:
        await conn.run_sync(metadata.drop_all)
        await conn.exec_driver_sql("drop table if exists alembic_version")
    await store.close()
