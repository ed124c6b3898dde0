"""A real store for every test: a migrated SQLite file of its own."""

from __future__ import annotations

import asyncio
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.migrate import open_store
from recorder.settings import RecorderSettings
from recorder.store import Store


@pytest.fixture(scope="session")
def migrated_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated SQLite file, made once and copied for each test."""
    folder = tmp_path_factory.mktemp("migrated")

    async def make() -> None:
        await (await open_store(folder, RecorderSettings(), migrate=True)).close()

    asyncio.run(make())
    return folder / "hone.db"


@pytest.fixture
async def store(tmp_path: Path, migrated_file: Path) -> AsyncIterator[Store]:
    data = tmp_path / "data"
    data.mkdir(mode=0o700)
    shutil.copy(migrated_file, data / "hone.db")
    opened = await open_store(data, RecorderSettings(), migrate=False)
    yield opened
    await opened.close()
