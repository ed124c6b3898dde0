"""Engines that die, refuse, fall silent or cannot be reached: what the client is told, and what is recorded."""

from __future__ import annotations

import json
from typing import Any

import pytest

from proxy.settings.sections import ProxySettings
from recorder.registry.replicas import report_replica
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, Proxy, serving

pytestmark = pytest.mark.slow

ANSWER = words("It arrives on Monday")


async def test_an_engine_that_dies_in_a_stream_ends_it_with_an_error(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=3, then="die")
    answer = await proxy.chat(path="/t/cut", stream=True)
    *events, error, done, _ = answer.text.split("\n\n")
    assert (len(events), done) == (3, "data: [DONE]")
    fault = json.loads(error.removeprefix("data: "))["error"]
    assert fault.keys() == {"message", "type", "param", "code"}
    assert (fault["type"], fault["code"]) == ("server_error", "engine_broke")
    assert "broke off in the middle" in fault["message"]
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["trainable"]) == ("errored", False)
    assert call["choices"][0]["token_ids"] == ANSWER.ids()[:2]


@pytest.mark.parametrize(("then", "words_"), [("end", "before it was finished"), ("garbage", "not a chat completion")])
async def test_a_stream_that_ends_wrongly_is_an_error(proxy: Proxy, engine: FakeEngine, then: str, words_: str) -> None:
    engine.default = Script([ANSWER], after_events=2, then=then)
    assert words_ in (await proxy.chat(stream=True)).text
    assert (await proxy.call())["status"] == "errored"


async def test_an_error_inside_a_stream_is_passed_on_and_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=2, then="error")
    text = (await proxy.chat(stream=True)).text
    assert '"error"' in text
    assert text.endswith("data: [DONE]\n\n")
    assert BASE not in text
    assert (await proxy.call())["status"] == "errored"


async def test_an_engine_that_dies_after_the_last_finish_has_finished(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=6, then="die")  # the usage and [DONE] do not come
    events = await proxy.events(stream_options={"include_usage": True})
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["trainable"]) == ("complete", True)
    assert call["usage"]["completion_tokens"] == len(ANSWER.ids())


async def test_an_engine_that_breaks_off_a_plain_answer_is_an_error(proxy: Proxy, engine: FakeEngine) -> None:
    for script, words_ in ((Script(hang_up=True), "without an answer"), (Script(body=b"{}"), "not a chat completion")):
        engine.default = script
        answer = await proxy.chat()
        assert (answer.status_code, answer.json()["error"]["code"]) == (502, "engine_broke")
        assert words_ in answer.json()["error"]["message"]
    assert [call["status"] for call in await proxy.calls()] == ["errored", "errored"]


@pytest.mark.parametrize("stream", [False, True])
async def test_an_engine_that_is_down_is_a_503_with_retry_after(proxy: Proxy, engine: FakeEngine, stream: bool) -> None:
    await engine.stop()
    answer = await proxy.chat(path="/t/down", stream=stream)
    assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
    fault = answer.json()["error"]
    assert (fault["type"], fault["code"]) == ("server_error", "engine_unavailable")
    assert "cannot be reached" in fault["message"]
    assert (await proxy.call())["status"] == "errored"
    await engine.start()
    assert (await proxy.chat(path="/t/down")).status_code == 200


async def test_a_request_goes_to_another_engine_when_one_is_down(proxy: Proxy, engine: FakeEngine) -> None:
    async with FakeEngine() as other:
        up = {"base_model": BASE, "base_fingerprint": "fingerprint", "state": "up", "detail": None, "loaded": [BASE]}
        await report_replica(Project(proxy.store, "default"), other.url, **up)  # type: ignore[arg-type]  # told by name
        await proxy.versions.refresh()
        await engine.stop()
        for _ in range(4):
            assert (await proxy.chat()).status_code == 200
        assert len(other.requests) == 4
    assert [call["status"] for call in await proxy.calls()] == ["complete"] * 4


@pytest.mark.parametrize("stream", [False, True])
async def test_what_the_engine_refuses_is_told_in_its_words_and_our_names(
    proxy: Proxy, engine: FakeEngine, stream: bool
) -> None:
    fault = {
        "message": f"{BASE} has a context of 64 tokens",
        "type": "BadRequestError",
        "param": "messages",
        "code": 400,
    }
    engine.default = Script(status=400, error={"error": fault})
    answer = await proxy.chat(stream=stream)
    assert (answer.status_code, answer.headers["content-type"]) == (400, "application/json")
    said = answer.json()["error"]
    assert (said["message"], said["param"], said["type"]) == (
        "helpdesk has a context of 64 tokens",
        "messages",
        "BadRequestError",
    )
    call = await proxy.call()
    assert (call["status"], call["response"]["http_status"]) == ("errored", 400)


@pytest.mark.parametrize(
    ("status", "error", "told", "code"),
    [
        (500, {"error": {"message": "boom", "type": "InternalServerError"}}, 500, "engine_error"),
        (500, "Internal Server Error", 500, "engine_error"),
        (503, {"detail": "warming up"}, 503, "engine_unavailable"),
        (401, {"error": "Unauthorized"}, 502, "engine_broke"),
        (404, {"error": {"message": f"The model `{BASE}` does not exist."}}, 503, "unavailable"),
        (404, {"error": {"message": "Not Found", "type": "NotFoundError", "code": 404}}, 404, "not_found"),
        (404, "", 404, "not_found"),
        (422, {"detail": [{"loc": ["body"]}]}, 422, None),
    ],
)
async def test_other_refusals_of_the_engine(
    proxy: Proxy, engine: FakeEngine, status: int, error: Any, told: int, code: str | None
) -> None:
    engine.default = Script(status=status, error=error)
    answer = await proxy.chat()
    assert (answer.status_code, answer.json()["error"]["code"]) == (told, code)
    assert BASE not in answer.text
    assert ("retry-after" in answer.headers) == (told == 503)


async def test_a_silent_engine_is_given_up(store: Store, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=2, then="hang")
    async with serving(store, engine, settings=ProxySettings(port=0, first_byte_timeout_s=0.2)) as proxy:
        assert "sent nothing for 0.2 s" in (await proxy.chat(stream=True)).text
        assert (await proxy.call())["status"] == "errored"
