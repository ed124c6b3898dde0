"""A call through the whole proxy: what the engine is asked, what the client sees and when, what is recorded."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import httpx
import pytest

from proxy.settings.sections import ProxySettings
from recorder.registry.replicas import report_replica
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine, Script, prompt_ids, tool_call, words
from tests.proxy.running import BASE, Proxy, say, serving

ANSWER = words("It arrives on Monday")
FIND = {"type": "function", "function": {"name": "find_order", "parameters": {"type": "object"}}}


@pytest.fixture
async def engine() -> Any:
    async with FakeEngine() as running:
        running.default = Script([ANSWER])
        yield running


@pytest.fixture
async def proxy(store: Store, engine: FakeEngine) -> Any:
    async with serving(store, engine) as running:
        yield running


# --- what is served and recorded


async def test_a_plain_call_is_served_and_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await proxy.chat("Where is 4821?", path="/g/orders/t/first", temperature=0.7)
    assert answer.status_code == 200
    assert answer.json()["choices"][0]["message"]["content"] == "It arrives on Monday"
    assert engine.requests[0]["model"] == BASE
    call = await proxy.call()
    assert (call["status"], call["attribution"]) == ("complete", {"source": "path", "confidence": "stated"})
    assert call["prompt_token_ids"] == prompt_ids(say("Where is 4821?")["messages"])
    assert call["choices"][0]["token_ids"] == ANSWER.ids()
    assert call["choices"][0]["logprobs"] == pytest.approx(ANSWER.logprobs())
    assert call["choices"][0]["trainable"] is True
    assert (call["sampling"]["temperature"], call["version"]) == (0.7, "helpdesk@0")
    assert (call["trajectory_external_id"], call["purpose"], call["turn_kind"]) == ("first", "train", "main")
    assert answer.headers["x-hone-call"] == call["call_id"]
    assert answer.headers["x-hone-trajectory"] == call["trajectory_id"]
    assert answer.headers["x-hone-version"] == "helpdesk@0"


async def test_a_streamed_call_is_served_and_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    events = await proxy.events("Where is 4821?", path="/t/one")
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "It arrives on Monday"
    assert events[-1]["choices"][0]["finish_reason"] == "stop"
    call = await proxy.call()
    assert (call["status"], call["choices"][0]["token_ids"]) == ("complete", ANSWER.ids())
    assert call["timings"]["first_token_s"] is not None


async def test_nothing_of_the_engine_shows(proxy: Proxy, engine: FakeEngine) -> None:
    for answer in (await proxy.chat(), await proxy.chat(stream=True)):
        assert BASE not in answer.text
        assert "server" not in answer.headers


async def test_bytes_may_come_in_any_pieces(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("Größe 🚚 über")], cut_bytes=7)
    events = await proxy.events()
    assert "".join(event["choices"][0]["delta"].get("content", "") for event in events) == "Größe 🚚 über"


async def test_several_choices_are_all_recorded(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([words("Yes"), words("No it is not"), words("Perhaps")])
    events = await proxy.events(n=3)
    assert [event["choices"][0]["index"] for event in events if event["choices"][0]["finish_reason"]] == [0, 2, 1]
    assert (await proxy.chat(n=3)).json()["choices"][2]["message"]["content"] == "Perhaps"
    for call in await proxy.calls():
        assert [len(choice["token_ids"]) for choice in call["choices"]] == [2, 5, 2]


async def test_tool_calls_and_structured_outputs_pass(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([tool_call("find_order", {"order_id": 4821}, "chatcmpl-tool-abcdef")])
    form = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "object"}}}
    events = await proxy.events(tools=[FIND], response_format=form)
    calls = [call for event in events for call in event["choices"][0]["delta"].get("tool_calls", ())]
    assert "".join(call["function"].get("arguments", "") for call in calls) == '{"order_id": 4821}'
    assert len(events) == 4  # role, two parts of the call, the finish: what carried tokens alone is not shown
    assert (engine.requests[0]["tools"], engine.requests[0]["response_format"]) == ([FIND], form)
    call = await proxy.call()
    assert (call["request"]["tools"], call["choices"][0]["trainable"]) == ([FIND], False)
    assert len(call["choices"][0]["token_ids"]) == len(call["choices"][0]["logprobs"]) > 0


async def test_the_same_conversation_twice_is_recorded_twice(proxy: Proxy) -> None:
    await proxy.chat("Where is 4821?", path="/g/a/t/1")
    await proxy.chat("Where is 4821?", path="/g/a/t/2")
    await proxy.chat("Where is 4821?", path="/g/b/t/1")
    calls = await proxy.calls()
    assert len({call["trajectory_id"] for call in calls}) == 3
    assert len({call["group_id"] for call in calls}) == 2


async def test_unknown_fields_reach_the_engine_and_client_headers_do_not(proxy: Proxy, engine: FakeEngine) -> None:
    headers = {"x-request-id": "mine", "x-data-parallel-rank": "3", "cookie": "a=b", "authorization": "Bearer sk-none"}
    await proxy.chat(user="u", metadata={"a": "b"}, some_new_field=[1], headers=headers)
    assert engine.requests[0].items() >= {"user": "u", "metadata": {"a": "b"}, "some_new_field": [1]}.items()
    head = engine.heads[0].lower()
    assert not [name for name in ("x-request-id", "x-data-parallel-rank", "cookie", "authorization") if name in head]


# --- the end of an answer waits for its turn


class Held:
    """Keeps the store's only write lock, so that nothing can be committed."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def take(self) -> None:
        self._writing = self._store.write()
        await self._writing.__aenter__()

    async def release(self) -> None:
        await self._writing.__aexit__(None, None, None)

    async def __aenter__(self) -> None:
        await self.take()

    async def __aexit__(self, *_: object) -> None:
        await self.release()


async def test_the_last_event_waits_for_the_commit_and_the_others_do_not(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, recording=RecorderSettings(commit_timeout_s=30)) as proxy:
        await proxy.chat(path="/t/warm")  # so that placing the next call writes nothing
        held = Held(store)
        await held.take()
        async with proxy.http.stream("POST", "/t/warm/v1/chat/completions", json=say(stream=True)) as answer:
            seen: list[str] = []
            reading = asyncio.ensure_future(_read(answer, seen))
            await engine_done(proxy)
            assert any('" Monday"' in line for line in seen)
            assert not any('"finish_reason":"stop"' in line for line in seen)
            assert len(await proxy.calls()) == 1
            await held.release()
            await reading
        assert any('"finish_reason":"stop"' in line for line in seen)
        assert len(await proxy.calls()) == 2


async def engine_done(proxy: Proxy) -> None:
    """Wait until the engine's part of every call is over, and what was sent to clients by then has arrived."""
    async with asyncio.timeout(10):
        while any(proxy.versions.holding().values()):
            await asyncio.sleep(0)
    for _ in range(3):  # a round trip brings whatever was sent before
        await proxy.http.get("/healthz")


async def _read(answer: httpx.Response, seen: list[str]) -> None:
    async for line in answer.aiter_lines():
        seen.append(line)


async def test_a_plain_answer_waits_for_the_commit(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, recording=RecorderSettings(commit_timeout_s=30)) as proxy:
        await proxy.chat(path="/t/warm")
        held = Held(store)
        await held.take()
        asking = asyncio.ensure_future(proxy.chat(path="/t/warm"))
        await engine.until(lambda e: len(e.requests) == 2)
        await engine_done(proxy)
        assert not asking.done()
        await held.release()
        assert (await asking).status_code == 200


async def test_a_store_that_can_not_commit_in_time_is_not_waited_for(store: Store, engine: FakeEngine) -> None:
    recording = RecorderSettings(commit_timeout_s=0.1)
    async with serving(store, engine, recording=recording) as proxy:
        await proxy.chat(path="/t/warm")
        async with Held(store):
            assert (await proxy.chat(path="/t/warm")).status_code == 200
            events = await proxy.events(path="/t/warm")
            assert events[-1]["choices"][0]["finish_reason"] == "stop"
            assert await proxy.metric("hone_unrecorded_calls_total") == 2


async def test_a_call_that_can_not_be_recorded_is_refused_where_the_user_wants_that(
    store: Store, engine: FakeEngine
) -> None:
    recording = RecorderSettings(commit_timeout_s=0.1, on_failure="refuse")
    async with serving(store, engine, recording=recording) as proxy:
        await proxy.chat(path="/t/warm")
        async with Held(store):
            refused = await proxy.chat(path="/t/warm")
            assert (refused.status_code, refused.json()["error"]["code"]) == (503, "unrecorded")
            assert refused.headers["retry-after"] == "1"
            streamed = (await proxy.chat(path="/t/warm", stream=True)).text
            assert '"finish_reason":"stop"' not in streamed
            assert '"code":"unrecorded"' in streamed
            new = await proxy.chat(path="/t/new")
            assert (new.status_code, new.json()["error"]["code"]) == (503, "unrecorded")


async def test_a_store_that_can_not_be_written_never_reaches_the_agent(
    store: Store, engine: FakeEngine, tmp_path: Path
) -> None:
    async with serving(store, engine) as proxy:
        async with store.write() as conn:  # every later insert fails, as on a full disk
            for table in ("calls", "trajectories"):
                await conn.exec_driver_sql(
                    f"CREATE TRIGGER full_{table} BEFORE INSERT ON {table} "
                    "BEGIN SELECT RAISE(ABORT, 'database or disk is full'); END"
                )
        for path in ("", "/t/named", "/g/a/t/b"):
            answer = await proxy.chat(path=path)
            assert (answer.status_code, answer.json()["choices"][0]["finish_reason"]) == (200, "stop")
            assert (await proxy.events(path=path))[-1]["choices"][0]["finish_reason"] == "stop"
        assert await proxy.metric("hone_unrecorded_calls_total") == 6
        assert await proxy.calls() == []


# --- clients that hang up


async def test_the_engine_is_told_when_a_plain_client_hangs_up(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script(gate=asyncio.Event())
    asking = asyncio.ensure_future(proxy.chat(path="/t/gone"))
    await engine.until(lambda e: len(e.requests) == 1)
    asking.cancel()
    await engine.until(lambda e: e.aborted == [0])
    call = await recorded(proxy)
    assert (call["status"], call["choices"]) == ("aborted", [])


async def test_the_engine_is_told_when_a_streaming_client_hangs_up(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script([ANSWER], after_events=3, then="hang")
    async with proxy.http.stream("POST", "/t/gone/v1/chat/completions", json=say(stream=True)) as answer:
        lines = answer.aiter_lines()
        while "arrives" not in await anext(lines):
            pass
    await engine.until(lambda e: e.aborted == [0])
    call = await recorded(proxy)
    assert call["status"] == "aborted"
    assert call["choices"][0]["token_ids"] == ANSWER.ids()[:2]
    assert (call["choices"][0]["trainable"], call["choices"][0]["finish_reason"]) == (False, None)


async def test_a_call_that_the_engine_finished_is_complete_whoever_hung_up(proxy: Proxy) -> None:
    await proxy.chat(path="/t/warm")
    async with (
        Held(proxy.store),
        proxy.http.stream("POST", "/t/warm/v1/chat/completions", json=say(stream=True)) as answer,
    ):
        lines = answer.aiter_lines()
        while "Monday" not in await anext(lines):
            pass
    call = await recorded(proxy, count=2)
    assert (call["status"], call["choices"][0]["trainable"]) == ("complete", True)


async def recorded(proxy: Proxy, count: int = 1) -> dict[str, Any]:
    """The last call, when there are so many that have ended."""
    async with asyncio.timeout(10):
        while len(calls := [call for call in await proxy.calls() if call["status"] != "open"]) < count:
            await asyncio.sleep(0)
    return calls[-1]


# --- engines that fail


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


@pytest.mark.parametrize(("then", "words_"), [("end", "before it was finished"), ("garbage", "no chat completion")])
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
    for script, words_ in ((Script(hang_up=True), "without an answer"), (Script(body=b"{}"), "no chat completion")):
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
        await report_replica(proxy.store, "default", other.url, **up)  # type: ignore[arg-type]  # told by name
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


# --- requests that make no sense


@pytest.mark.parametrize("depth", [300, 1000, 5000])
@pytest.mark.parametrize("where", ["metadata", "content"])
async def test_a_body_that_is_nested_too_deeply_is_refused(
    proxy: Proxy, engine: FakeEngine, where: str, depth: int
) -> None:
    nested = '[{"content":' * (depth // 2) + "[]" + "}]" * (depth // 2)
    of_content, of_metadata = (nested, "{}") if where == "content" else ("[]", nested)
    body = (
        f'{{"model": "helpdesk", "metadata": {of_metadata}, "messages": [{{"role": "user", "content": {of_content}}}]}}'
    )
    headers = {"content-type": "application/json"}
    for path in ("/v1/chat/completions", "/v1/embeddings"):
        answer = await proxy.http.post(path, content=body.encode(), headers=headers)
        assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert engine.requests == []


async def test_a_fault_of_our_own_ends_the_call_and_is_told(
    proxy: Proxy, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(self: Any, data: bytes) -> bytes:
        raise RuntimeError("a bug")

    monkeypatch.setattr("proxy.dialects.chat.ChatAnswer.body", broken)
    answer = await proxy.chat()
    assert (answer.status_code, answer.json()["error"]["type"]) == (500, "server_error")
    assert "a bug" in caplog.text
    assert (await proxy.call())["status"] == "errored"


@pytest.mark.parametrize("body", [b"", b"{not json", b"[]", b"\xff\xfe"])
async def test_a_body_that_is_no_json_object_is_refused(proxy: Proxy, engine: FakeEngine, body: bytes) -> None:
    headers = {"content-type": "application/json"}
    answer = await proxy.http.post("/v1/chat/completions", content=body, headers=headers)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "the body is" in answer.json()["error"]["message"]
    assert engine.requests == []


@pytest.mark.parametrize(
    ("more", "param", "words_"),
    [
        ({"messages": "hello"}, "messages", "must be a list"),
        ({"n": "two"}, "n", "a whole number from 1 to 128"),
        ({"n": 100_000}, "n", "a whole number from 1 to 128"),
        ({"max_tokens": 10**18}, "max_tokens", "a whole number"),
        ({"temperature": "hot"}, "temperature", "give a number"),
        ({"logprobs": True, "top_logprobs": 1000}, "top_logprobs", "from 0 to 20"),
        ({"prompt_logprobs": 1}, "prompt_logprobs", "stop an engine"),
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params", "behind the recorder's back"),
        ({"extra_body": {"cache_salt": "s"}}, "extra_body.cache_salt", "prefix cache"),
        ({"priority": 5}, "priority", "queue"),
        ({"echo": True}, "echo", "prompt_logprobs"),
    ],
)
async def test_refused_requests_say_which_field_and_why(
    proxy: Proxy, engine: FakeEngine, more: dict[str, Any], param: str, words_: str
) -> None:
    answer = await proxy.chat(**more)
    fault = answer.json()["error"]
    assert (answer.status_code, fault["param"]) == (400, param)
    assert words_ in fault["message"]
    assert engine.requests == []
    assert await proxy.calls() == []


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(proxy: Proxy, engine: FakeEngine) -> None:
    answer = await proxy.chat("x" * 50_000_000)
    assert (answer.status_code, answer.json()["error"]["code"]) == (413, "request_too_large")
    assert "max_body_bytes" in answer.json()["error"]["message"]

    async def pieces() -> Any:  # a length that nobody declared
        for _ in range(50):
            yield b" " * 1_000_000

    headers = {"content-type": "application/json"}
    answer = await proxy.http.post("/v1/chat/completions", content=pieces(), headers=headers)
    assert answer.status_code == 413
    assert engine.requests == []
    assert (await proxy.chat()).status_code == 200


@pytest.mark.parametrize("model", ["nobody", "helpdesk@7", "helpdesk@", "nobody@0", BASE, ""])
async def test_an_unknown_model_is_told_the_known_ones(proxy: Proxy, engine: FakeEngine, model: str) -> None:
    answer = await proxy.chat(model=model)
    fault = answer.json()["error"]
    assert (answer.status_code, fault["param"], fault["code"]) == (404, "model", "model_not_found")
    assert "Known: helpdesk, helpdesk@0." in fault["message"]
    assert engine.requests == []


async def test_a_version_can_be_asked_for_by_name(proxy: Proxy) -> None:
    answer = await proxy.chat(model="helpdesk@0")
    assert (answer.json()["model"], answer.headers["x-hone-version"]) == ("helpdesk@0", "helpdesk@0")
    assert (await proxy.call())["model"] == "helpdesk@0"


async def test_other_methods_are_refused(proxy: Proxy) -> None:
    answer = await proxy.http.get("/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
