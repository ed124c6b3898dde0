"""What the tests of whole campaigns share: a ring around a store, the user's folder, and what is told."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.stores import Stores
from tests.trainer.ring import RecordedProgress, Ring, Script, write_user_folder

RingOf = Callable[[Script], AbstractAsyncContextManager[Ring]]


@pytest.fixture(autouse=True)
def _charts_stay_undrawn(monkeypatch: pytest.MonkeyPatch) -> None:
    """A campaign ends with a page. Nothing here looks at its charts, and drawing them takes a third of the CPU."""
    monkeypatch.setattr("recorder.report.page.draw_svg", lambda chart: "<svg ></svg>")


@pytest.fixture
def data(tmp_path: Path) -> Path:
    return tmp_path / "data"


@pytest.fixture
def user(tmp_path: Path) -> dict[str, Any]:
    return write_user_folder(tmp_path / "user")


@pytest.fixture
async def script() -> Script:
    return Script()


@pytest.fixture
def ring_of(data: Path, stores: Stores) -> RingOf:
    """Runs a ring by a script, around a new store in the data folder."""

    @asynccontextmanager
    async def running(script: Script) -> AsyncIterator[Ring]:
        with stores.made(data) as settings:
            async with Ring.running(data, script, settings) as found:
                yield found

    return running


@pytest.fixture
async def ring(script: Script, ring_of: RingOf) -> AsyncIterator[Ring]:
    async with ring_of(script) as running:
        yield running


@pytest.fixture
def told() -> RecordedProgress:
    return RecordedProgress()
