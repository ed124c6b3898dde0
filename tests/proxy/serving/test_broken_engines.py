"""Engines whose answers break: each format's client is told in its own words, the row ends, and nothing hangs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from proxy.engine import client, context_lengths
from proxy.http.sse import KeepAliveStream
from proxy.settings.sections import ProxySettings
from recorder.store.database import Store
from tests.proxy.raw_engine import CHUNKED, END, HEAD, Raw, RawEngine, Then, event, framed, sized
from tests.proxy.running import ALIAS, NO_TLS, WITHOUT_PAGES, Proxy, serving
from tests.proxy.until import until

pytestmark = pytest.mark.slow  # faults: left out of `make check`

ASK = "Where is order 4821?"
REQUESTS: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": {"messages": [{"role": "user", "content": ASK}]},
    "/v1/completions": {"prompt": ASK},
    "/v1/responses": {"input": ASK},
    "/v1/messages": {"messages": [{"role": "user", "content": ASK}], "max_tokens": 9},
}
FORMATS = pytest.mark.parametrize("path", REQUESTS)
SAMPLED = {"index": 0, "delta": {"content": "On"}, "text": "On", "token_ids": [7, 8], "finish_reason": None}
FIRST = event({"id": "chatcmpl-1", "prompt_token_ids": [1, 2], "choices": [SAMPLED]})
BEGUN = CHUNKED + framed(FIRST)
BROKEN: dict[str, tuple[tuple[bytes, ...], Then, str]] = {
    "broken framing": ((BEGUN, b"zz\r\n"), "stall", "broke off"),
    "a stall": ((BEGUN,), "stall", "sent nothing for 0.3 s"),
    "a stall inside a chunk": ((BEGUN, b"ff\r\ndata: {"), "stall", "sent nothing for 0.3 s"),
    "an early end": ((BEGUN, END), "keep", "before it was finished"),
    "an early close": ((BEGUN,), "close", "broke off"),
    "a reset": ((BEGUN,), "abort", "broke off"),
    "trailers that are none": ((BEGUN, b"0\r\n\x00\x01\r\n\r\n"), "stall", "broke off"),
}
HEADLESS = {
    "no head": Raw((b"SMTP hello\r\n\r\n",), "stall"),
    "half a head": Raw((b"HTTP/1.1 200 OK\r\ncontent-ty",), "stall"),
    "a head without end": Raw((b"HTTP/1.1 200 OK\r\n" + b"x: y\r\n" * 10_000,), "stall"),
    "a size with rubbish": Raw((CHUNKED + b"5 x\r\n",), "stall"),
    "a close": Raw((), "close"),
    "a length that is none": Raw((HEAD + b"content-length: many\r\n\r\n",), "stall"),
    "a body that stalls": Raw((sized(b"{}")[:-1],), "stall"),
    "a body that is cut": Raw((sized(b"{}")[:-1],), "close"),
}


@pytest.fixture(autouse=True)
def often(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at waits more often than is needed."""
    monkeypatch.setattr(client, "LOOK_S", 0.02)


@pytest.fixture
async def engine() -> AsyncIterator[RawEngine]:
    async with RawEngine() as running:
        yield running


@pytest.fixture
async def proxy(store: Store, engine: RawEngine) -> AsyncIterator[Proxy]:
    settings = ProxySettings(port=0, pages=False, first_byte_timeout_s=0.3, connect_timeout_s=1)
    async with serving(store, engine, settings=settings) as running:
        yield running


def request(path: str, **more: Any) -> dict[str, Any]:
    return REQUESTS[path] | {"model": ALIAS} | more


def error_message(path: str, status: int, text: str, *, stream: bool) -> str:
    """The message of an error as the format's clients read it; asserts that they can."""
    if not stream:
        assert status >= 500
        return fault_of(path, json.loads(text))
    assert status == 200
    events = [block for block in text.split("\n\n") if block and not block.startswith(":")]
    if path in ("/v1/chat/completions", "/v1/completions"):
        assert events.pop() == "data: [DONE]"
    return fault_of(path, json.loads(events[-1].rpartition("data: ")[2]))


def fault_of(path: str, said: dict[str, Any]) -> str:
    if "response" in said:  # the end of a stream of the Responses API
        assert (said["type"], said["response"]["status"]) == ("response.failed", "failed")
        said = said["response"]
    elif path == "/v1/messages":
        assert (said["type"], said["error"]["type"]) in (("error", "api_error"), ("error", "overloaded_error"))
    else:
        assert said["error"].keys() == {"message", "type", "param", "code"}
    message: str = said["error"]["message"]
    return message


@FORMATS
@pytest.mark.parametrize("beating", [True, False], ids=["with comments", "without"])
async def test_a_stream_that_breaks_ends_in_the_callers_own_words(
    proxy: Proxy, engine: RawEngine, monkeypatch: pytest.MonkeyPatch, path: str, beating: bool
) -> None:
    if beating:
        monkeypatch.setattr(KeepAliveStream.__init__, "__defaults__", (0.01,))
    for at, (broken, (pieces, then, words)) in enumerate(BROKEN.items(), 1):
        gate = asyncio.Event()
        engine.default = Raw(pieces, then, gate if len(pieces) > 1 else None)
        text = ""
        async with proxy.http.stream("POST", path, json=request(path, stream=True)) as answer:
            async for more in answer.aiter_text():
                text += more
                if '"On"' in text:
                    gate.set()
        assert words in error_message(path, answer.status_code, text, stream=True), broken
        *earlier, call = await proxy.calls()
        assert (len(earlier), call["status"], words in call["response"]["error"]) == (at - 1, "errored", True), broken
        assert [(choice["token_ids"], choice["trainable"]) for choice in call["choices"]] == [([7, 8], False)]


@FORMATS
@pytest.mark.parametrize("stream", [True, False])
async def test_an_answer_that_never_begins_is_a_bad_gateway(
    proxy: Proxy, engine: RawEngine, path: str, stream: bool
) -> None:
    for at, (headless, raw) in enumerate(HEADLESS.items(), 1):
        engine.default = raw
        answer = await proxy.http.post(path, json=request(path, stream=stream))
        # a head that is there has begun the client's stream
        assert answer.status_code == 502 or (stream and headless.startswith("a body"))
        assert error_message(path, answer.status_code, answer.text, stream=answer.status_code == 200)
        *earlier, call = await proxy.calls()
        assert (len(earlier), call["status"], call["choices"]) == (at - 1, "errored", []), headless


@FORMATS
@pytest.mark.parametrize("stream", [True, False])
async def test_a_server_that_stops_does_not_wait_for_a_silent_engine(
    store: Store, engine: RawEngine, path: str, stream: bool
) -> None:
    engine.default = Raw((BEGUN,), "stall")
    async with httpx.AsyncClient(timeout=20, verify=NO_TLS) as http:
        async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            asking = asyncio.ensure_future(http.post(proxy.url + path, json=request(path, stream=stream)))
            await engine.asked.wait()
        answer = await asking
    assert "this proxy is stopping" in error_message(path, answer.status_code, answer.text, stream=stream)
    call = await proxy.call()
    assert (call["status"], "this proxy is stopping" in call["response"]["error"]) == ("errored", True)
    assert [choice["token_ids"] for choice in call["choices"]] == ([[7, 8]] if stream else [])


async def test_no_response_waits_for_an_engine_to_tell_its_context_length(
    proxy: Proxy, engine: RawEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context_lengths, "TIMEOUT_S", 0.05)
    monkeypatch.setattr(context_lengths, "BELIEVED_S", 0.0)
    whole = {"index": 0, "message": {"content": "On its way"}, "finish_reason": "stop"}
    engine.default = Raw((sized(json.dumps({"choices": [whole]}).encode()),))
    for length in (Raw((), "stall"), Raw((sized(b'{"data": [{"max_model_len": "long"}, {}]}'),))):
        engine.models = length
        answer = await proxy.http.post("/v1/responses", json=request("/v1/responses"))
        assert (answer.status_code, answer.json()["status"]) == (200, "completed")


async def test_a_passed_stream_that_breaks_ends_in_words(store: Store, engine: RawEngine) -> None:
    path = "/v1/chat/completions/batch"
    head = CHUNKED.replace(b"application/json", b"text/event-stream")
    engine.default = Raw((head + framed(FIRST),), "abort")
    async with serving(store, engine, settings=ProxySettings(port=0, unrecorded=True)) as proxy:
        answer = await proxy.http.post(path, json={"model": ALIAS})
        assert "broke off" in error_message("/v1/chat/completions", answer.status_code, answer.text, stream=True)


async def test_a_server_that_stops_ends_each_of_several_prompts(store: Store, engine: RawEngine) -> None:
    engine.default = Raw((BEGUN,), "stall")
    async with httpx.AsyncClient(timeout=20, verify=NO_TLS) as http:
        async with serving(store, engine, settings=WITHOUT_PAGES) as proxy:
            body = {"model": ALIAS, "prompt": ["one", "two"]}
            asking = asyncio.ensure_future(http.post(f"{proxy.url}/v1/completions", json=body))
            await until(lambda: len(engine.requests) == 2)
        answer = await asking
    assert "this proxy is stopping" in error_message("/v1/completions", answer.status_code, answer.text, stream=False)
    assert [call["status"] for call in await proxy.calls()] == ["errored", "errored"]
