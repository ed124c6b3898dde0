"""The judge over HTTP: what is sent, what comes back, how it fails, and that no key leaks."""

import asyncio
import logging
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable

import pytest

from judge.errors import JudgeDown
from judge.llm.judge_model import JudgeModel
from judge.settings import JudgeSettings
from recorder.llm.litellm_edge import mask_secrets
from tests.failing_servers import REASONS, failing, require_plain
from tests.judge.judge_server import JudgeServer, declines, fails, page, says, without_formats

ASKED = [{"role": "user", "content": "hello"}]
KEY = "sk-very-secret-key"

Make = Callable[..., JudgeModel]


@pytest.fixture
async def model(settings: Callable[..., JudgeSettings]) -> AsyncIterator[Make]:
    made: list[JudgeModel] = []

    def make(**more: object) -> JudgeModel:
        made.append(JudgeModel(settings(**more)))
        return made[-1]

    yield make
    for one in made:
        await one.close()


async def test_asks_once_with_temperature_zero_and_a_schema(server: JudgeServer, model: Make) -> None:
    server.behave(says("hi"))
    answer = await model().ask(ASKED)
    assert (answer.text, answer.finish_reason, answer.version) == ("hi", "stop", "judge-2026-11-01 fp_7")
    assert (answer.spent.tokens_in, answer.spent.tokens_cached, answer.spent.tokens_out) == (100, 64, 20)
    assert answer.spent.latency_s > 0
    assert answer.spent.cost_usd is None  # nobody knows this model's price
    (body,) = server.requests
    assert (body["model"], body["temperature"], body["max_tokens"]) == ("judge", 0, 4096)
    assert body["response_format"]["json_schema"]["strict"] is True


async def test_the_price_of_a_known_model_is_recorded(server: JudgeServer, model: Make) -> None:
    server.behave(says("hi"))
    answer = await model(model="openai/gpt-4o-mini").ask(ASKED)
    assert answer.spent.cost_usd == pytest.approx(36 * 0.15e-6 + 64 * 0.075e-6 + 20 * 0.6e-6)


async def test_goes_on_without_structured_output_where_there_is_none(server: JudgeServer, model: Make) -> None:
    server.behave(without_formats(says("hi")))
    judge = model()
    assert (await judge.ask(ASKED)).text == "hi"
    assert (await judge.ask(ASKED)).text == "hi"
    assert ["response_format" in body for body in server.requests] == [True, False, False]


async def test_requests_that_find_out_side_by_side_all_go_on_without_structured_output(
    server: JudgeServer, model: Make
) -> None:
    server.behave(without_formats(says("hi")))
    judge = model()
    answers = await asyncio.gather(*(judge.ask(ASKED) for _ in range(6)))
    assert [answer.text for answer in answers] == ["hi"] * 6


async def test_a_request_refused_for_another_reason_does_not_cost_the_schema(server: JudgeServer, model: Make) -> None:
    server.behave(fails(400, "no"), fails(400, "no"), says("hi"))
    judge = model()
    with pytest.raises(JudgeDown) as caught:
        await judge.ask(ASKED)
    assert caught.value.code == "judge_refused"
    await judge.ask(ASKED)
    assert "response_format" in server.requests[-1]


@pytest.mark.parametrize("status", [401, 403, 404])
async def test_a_final_refusal_is_not_sent_again(server: JudgeServer, model: Make, status: int) -> None:
    server.behave(fails(status, "no such thing"))
    with pytest.raises(JudgeDown, match="no such thing") as caught:
        await model().ask(ASKED)
    assert caught.value.code == "judge_refused"
    assert len(server.requests) == 1


@pytest.mark.parametrize("status", [429, 500, 502, 503])
async def test_an_overloaded_or_broken_judge_is_asked_again_then_given_up(
    server: JudgeServer, model: Make, status: int
) -> None:
    server.behave(fails(status), says("hi"))
    assert (await model().ask(ASKED)).text == "hi"
    server.behave(fails(status))
    with pytest.raises(JudgeDown) as caught:
        await model().ask(ASKED)
    assert caught.value.code == "judge_down"
    assert len(server.requests) == 2 + 3


@pytest.mark.parametrize("status", [429, 503])
async def test_a_judge_that_wants_to_be_left_alone_for_long_is_and_by_all_of_the_process(
    server: JudgeServer, model: Make, status: int
) -> None:
    server.behave(fails(status, retry_after="3600"))
    for judge in (model(), model()):
        with pytest.raises(JudgeDown, match="Retry-After") as caught:
            await judge.ask(ASKED)
        assert caught.value.code == "judge_busy"
        assert caught.value.wait_s is not None
        assert 3000 < caught.value.wait_s <= 3600
    assert len(server.requests) == 1


async def test_a_short_pause_is_waited_for(server: JudgeServer, model: Make) -> None:
    server.behave(fails(429, retry_after="0.01"), says("hi"))
    assert (await model().ask(ASKED)).text == "hi"
    assert len(server.requests) == 2


async def test_a_model_that_declines_is_told_apart(server: JudgeServer, model: Make) -> None:
    server.behave(declines("I cannot help with that."))
    answer = await model().ask(ASKED)
    assert (answer.text, answer.refusal) == ("", "I cannot help with that.")


async def test_a_prompt_that_the_providers_filter_refuses_is_not_sent_again(server: JudgeServer, model: Make) -> None:
    server.behave(fails(400, "invalid_request_error: content_policy_violation"))
    with pytest.raises(JudgeDown) as caught:
        await model().ask(ASKED)
    assert caught.value.code == "judge_filtered"
    assert len(server.requests) == 1


async def test_a_page_in_place_of_json_is_a_broken_judge(server: JudgeServer, model: Make) -> None:
    server.behave(page("<html>Bad gateway</html>"))
    with pytest.raises(JudgeDown) as caught:
        await model(retries=0).ask(ASKED)
    assert caught.value.code == "judge_down"


async def test_a_judge_that_hangs_is_cut_and_not_asked_again(server: JudgeServer, model: Make) -> None:
    server.behave(server.hang)
    with pytest.raises(JudgeDown, match=r"0\.2 s") as caught:
        await model(timeout_s=0.2).ask(ASKED)
    assert caught.value.code == "judge_timeout"
    assert len(server.requests) == 1


async def test_a_judge_that_is_not_there_is_named(server: JudgeServer, model: Make) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # bound, not listening: connections are refused
        url = f"http://127.0.0.1:{taken.getsockname()[1]}/v1"
        with pytest.raises(JudgeDown, match=f"openai/judge at {url}") as caught:
            await model(api_base=url, retries=1).ask(ASKED)
    assert caught.value.code == "judge_down"


@pytest.mark.parametrize("how", ["dead", "hangs", "certificate"])
@pytest.mark.parametrize("family", ["openai", "anthropic", "hosted_vllm"])
async def test_a_judge_that_cannot_be_called_is_told_in_plain_words(model: Make, how: str, family: str) -> None:
    async with failing(how) as url:
        judge = model(model=f"{family}/judge", api_base=url, timeout_s=1, retries=0)
        with pytest.raises(JudgeDown) as raised:
            await judge.ask(ASKED)
        message = require_plain(str(raised.value))
        assert message.startswith(f"the judge {family}/judge at {url} ")
        assert REASONS.get(how, "did not answer within 1 s") in message


async def test_an_answer_without_text_is_empty(server: JudgeServer, model: Make) -> None:
    server.behave(says(None, "length"))
    answer = await model().ask(ASKED)
    assert (answer.text, answer.finish_reason) == ("", "length")


@pytest.mark.parametrize("status", [400, 401, 500])
async def test_keys_stand_in_no_error_and_no_log(
    server: JudgeServer, model: Make, status: int, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG, "judge")
    server.behave(fails(status, f"Incorrect API key provided: Bearer {KEY}"))
    with pytest.raises(JudgeDown) as caught:
        await model(api_key=KEY, retries=0).ask(ASKED)
    assert server.headers[0]["Authorization"] == f"Bearer {KEY}"
    assert "***" in str(caught.value)
    printed = capfd.readouterr()
    for text in (str(caught.value), repr(caught.value), caplog.text, printed.out, printed.err):
        assert KEY not in text
    assert caught.value.__suppress_context__


async def test_no_key_from_the_environment_is_sent_to_another_server(
    server: JudgeServer, model: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    server.behave(says("hi"))
    await model().ask(ASKED)
    await model(api_key="").ask(ASKED)
    assert len(server.headers) == 2
    assert KEY not in str(server.headers)


def test_secrets_are_taken_out_of_any_text(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_API_KEY", "key-of-the-environment")
    text = "abc key-of-the-environment http://user:pass@host/v1?api-key=ghi&n=1 def"
    assert mask_secrets(text, "abc", None) == "*** *** http://***@host/v1?api-key=***&n=1 def"


def test_litellm_is_not_imported_before_it_is_needed() -> None:
    modules = "judge.commands.score, judge.commands.judge, judge.scoring.worker, judge.scoring.setup"
    program = f"import sys, {modules}; sys.exit('litellm' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0
