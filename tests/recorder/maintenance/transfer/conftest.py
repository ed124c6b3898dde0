"""A sound store to be copied, and a file to copy it to."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.maintenance.transfer.target import open_target
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.maintenance.integrity.sound import sound as made


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
