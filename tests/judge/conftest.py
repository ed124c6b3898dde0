"""What the judge's tests share: a judge server, and settings that point to it."""

from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from judge.settings import JudgeSettings
from tests.judge.judge_server import JudgeServer, serve


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
