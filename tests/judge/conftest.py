"""What the judge's tests share: a judge server, and settings that point to it."""

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from judge.settings import JudgeSettings
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from recorder.store.migrate import open_store
from tests.judge.judge_server import JudgeServer, serve
from tests.judge.recorded import Recorded


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serve() as running:
        yield running


@pytest.fixture
def settings(server: JudgeServer) -> Callable[..., JudgeSettings]:
    """Settings under which the judge server judges, and failures cost no time."""

    def make(**more: Any) -> JudgeSettings:
        base = {"model": "openai/judge", "api_base": server.url, "retry_wait_s": 0.001, "backoff_s": 0.001}
        return JudgeSettings.model_validate(base | more)

    return make


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path / "data", RecorderSettings(), migrate=True)
    yield opened
    await opened.close()


@pytest.fixture
async def recorded(store: Store) -> AsyncIterator[Recorded]:
    made = await Recorded.start(store)
    yield made
    await made.stop()
