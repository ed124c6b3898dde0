"""A sound store for every test of the checks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.capture.recorder import Recorder
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.maintenance.integrity.sound import sound as made


@pytest.fixture
async def sound(store: Store, tmp_path: Path) -> AsyncIterator[Sound]:
    recorder = Recorder(store, RecorderSettings())
    await recorder.start()
    yield await made(store, recorder, tmp_path)
    await recorder.stop()
