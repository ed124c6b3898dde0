"""The model that writes scenarios, over HTTP: it keeps the judge's pace, a pause that it asks for, and its key."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from judge.settings import JudgeSettings
from recorder.llm import rate_limiter
from recorder.llm.rate_limiter import RequestSlot
from tests.judge.judge_server import JudgeServer, fails, says, serve
from trainer.errors import GeneratorFailed
from trainer.scenario_generation.writer_model import WriterModel

pytestmark = pytest.mark.slow  # LiteLLM takes seconds to import

ASKED = [{"role": "user", "content": "Write 3 tasks"}]


@pytest.fixture
async def server() -> AsyncIterator[JudgeServer]:
    async with serve() as one:
        yield one


def settings(server: JudgeServer, **more: object) -> JudgeSettings:
    given = {"model": "openai/m", "api_base": server.url, "api_key": "a-very-secret-key", "retry_wait_s": 0.01, **more}
    return JudgeSettings.model_validate(given)


async def test_it_takes_its_turns_of_the_models_pace(server: JudgeServer) -> None:
    server.behave(says("hi"))
    model = WriterModel(settings(server, requests_per_minute=2))
    kept = rate_limiter.shared_limiter("openai/m", server.url, 2, None)
    await model.ask(ASKED)
    assert isinstance(kept.take(1), RequestSlot)  # the second of this minute
    assert isinstance(kept.take(1), float)
    await model.close()


async def test_a_long_pause_that_is_asked_for_is_told_and_kept(server: JudgeServer) -> None:
    server.behave(fails(429, retry_after="3600"))
    model = WriterModel(settings(server))
    for _ in range(2):
        with pytest.raises(GeneratorFailed, match=r"^the model openai/m at .* asked for a pause of .* s more"):
            await model.ask(ASKED)
    assert len(server.requests) == model.spent.requests == 1
    await model.close()


async def test_every_request_is_counted_and_the_key_is_told_nowhere(server: JudgeServer) -> None:
    server.behave(fails(503, "a-very-secret-key"), fails(503), says("hi"), fails(401, "no a-very-secret-key"))
    model = WriterModel(settings(server))
    assert await model.ask(ASKED) == "hi"
    assert "response_format" not in server.requests[0]
    with pytest.raises(GeneratorFailed, match="refused the request") as caught:
        await model.ask(ASKED)
    assert "a-very-secret-key" not in str(caught.value)
    assert (model.spent.requests, model.spent.tokens_in, model.spent.tokens_out) == (4, 100, 20)
    await model.close()
