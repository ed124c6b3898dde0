"""Engines that answer oddly: a finished answer reaches its client whatever stands beside it, anything else is told."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest

from recorder.store.database import Store
from tests.proxy.formats import CHAT, COMPLETIONS, MESSAGES, REQUESTS, RESPONSES, fault_in, request
from tests.proxy.raw_engine import CHUNKED, END, Raw, RawEngine, event, framed, sized
from tests.proxy.running import WITHOUT_PAGES, Proxy, serving

pytestmark = pytest.mark.slow  # faults: left out of `make check`

FORMATS = pytest.mark.parametrize("path", REQUESTS)
# The engine has two routes, and each is read both ways; what becomes of an answer is written for each format once.
ONCE = {(MESSAGES, True), (RESPONSES, False)}
WAYS = pytest.mark.parametrize(
    ("path", "stream"),
    [
        pytest.param(path, stream, marks=pytest.mark.long if (path, stream) in ONCE else ())
        for path in REQUESTS
        for stream in (True, False)
    ],
)
USAGES: list[Any] = [
    None,
    "7 tokens",
    [7],
    7,
    {"prompt_tokens": None, "completion_tokens": None, "total_tokens": None},
    {"prompt_tokens": "7", "completion_tokens": [2], "total_tokens": {}},
    {"prompt_tokens": -7, "completion_tokens": -2.5, "total_tokens": True},
    {"prompt_tokens": 10**30, "completion_tokens": 1e300},
    {"prompt_tokens": 2, "completion_tokens": 2, "prompt_tokens_details": [], "completion_tokens_details": "none"},
    {"prompt_tokens_details": {"cached_tokens": "all", "created_cache_tokens": -1}},
]
NO_IDS: list[Any] = [[7, -8], [7, 8.5], ["7", "8"], [True, False], [None], [[7]], [2**40], "78", 7, {"a": 7}]
# What an engine's status is to the caller.
STATUSES = {
    204: 502, 302: 502, 304: 502, 206: 502, 501: 502, 505: 502, 599: 502, 401: 502, 404: 404, 502: 503, 400: 400,
    429: 429, 500: 500,
}  # fmt: skip


def choice(**more: Any) -> dict[str, Any]:
    """A whole choice, or a delta with all of one, of either of the engine's routes."""
    said = {"message": {"content": "On its way"}, "delta": {"content": "On its way"}, "text": "On its way"}
    logprobs = {"content": [{"logprob": -0.5}] * 2, "token_logprobs": [-0.5] * 2}
    return {"index": 0, "token_ids": [7, 8], "finish_reason": "stop", "logprobs": logprobs} | said | more


NO_CHOICES: list[Any] = [
    *([choice(index=index)] for index in (1, -1, "0", 2**63, None)),
    *([choice(finish_reason=reason)] for reason in ({}, {"a": 1}, 5)),
    [choice(delta={"content": 5}, message={"content": 5}, text=5)],
    [choice(delta=5, message=5, text=[5])],
    *("choices", [None], [[]], 5),
]


@pytest.fixture
async def engine() -> AsyncIterator[RawEngine]:
    async with RawEngine() as running:
        yield running


@pytest.fixture
async def proxy(store: Store, engine: RawEngine) -> AsyncIterator[Proxy]:
    async with serving(store, engine, settings=WITHOUT_PAGES) as running:
        yield running


def answered(body: Any, *, stream: bool) -> Raw:
    """An engine's answer of one object, streamed or whole."""
    if not stream:
        return Raw((sized(json.dumps(body).encode()),))
    return Raw((CHUNKED + framed(event(body) + b"data: [DONE]\n\n") + END,))


async def ask(proxy: Proxy, path: str, *, stream: bool) -> httpx.Response:
    return await proxy.http.post(path, json=request(path, stream=stream))


@WAYS
async def test_what_is_no_answer_is_told_in_the_callers_words(
    proxy: Proxy, engine: RawEngine, path: str, stream: bool
) -> None:
    for status, says in STATUSES.items():
        fault = json.dumps({"error": {"message": "because"}}).encode() if status not in (204, 304) else b""
        head = b"HTTP/1.1 %d X\r\nlocation: http://elsewhere.example/\r\nset-cookie: a=b\r\n" % status
        engine.default = Raw((sized(fault, head),))
        answer = await ask(proxy, path, stream=stream)
        assert answer.status_code == says, status
        assert not {"location", "set-cookie"} & answer.headers.keys()
        told = fault_in(path, answer.status_code, answer.text, streamed=False)
        assert told is not None
        assert (f"answered {status}" in told["message"]) == (says == 502 and status != 401), status
    assert {call["status"] for call in await proxy.calls()} == {"errored"}


@pytest.mark.parametrize("status", [204, 302])
async def test_what_is_no_answer_is_not_passed_through_either(proxy: Proxy, engine: RawEngine, status: int) -> None:
    head = b"HTTP/1.1 %d X\r\nlocation: http://elsewhere.example/\r\n" % status
    engine.default = Raw((sized(b"", head),))
    answer = await proxy.http.post("/tokenize", json={"model": "helpdesk", "prompt": "x"})
    assert (answer.status_code, "location" in answer.headers) == (502, False)


@pytest.mark.parametrize("body", [b"null", b"3", b'"x"', b"[" * 300 + b"]" * 300, b"{"])
async def test_what_cannot_be_passed_on_is_a_bad_gateway(proxy: Proxy, engine: RawEngine, body: bytes) -> None:
    engine.default = Raw((sized(body),))
    answer = await proxy.http.post("/tokenize", json={"model": "helpdesk", "prompt": "x"})
    assert answer.status_code == 502
    assert fault_in(CHAT, 502, answer.text, streamed=False)


@WAYS
async def test_an_odd_usage_costs_no_answer(proxy: Proxy, engine: RawEngine, path: str, stream: bool) -> None:
    for usage in USAGES:
        body = {"id": "chatcmpl-1", "prompt_token_ids": [1, 2], "choices": [choice()], "usage": usage}
        engine.default = answered(body, stream=stream)
        if stream:
            rest = event({"choices": [], "usage": usage})
            engine.default = Raw((CHUNKED + framed(event(body) + rest + b"data: [DONE]\n\n") + END,))
        answer = await ask(proxy, path, stream=stream)
        assert fault_in(path, answer.status_code, answer.text, streamed=stream) is None, usage
        *_, call = await proxy.calls()
        assert (call["status"], call["choices"][0]["trainable"]) == ("complete", True), usage
    assert await proxy.metric("hone_unrecorded_calls_total") == 0


@pytest.mark.parametrize("stream", [True, False])
async def test_an_odd_usage_costs_no_answer_to_several_prompts(proxy: Proxy, engine: RawEngine, stream: bool) -> None:
    for usage in [*USAGES, "absent"]:
        body = {"choices": [choice()]} | ({} if usage == "absent" else {"usage": usage})
        engine.default = answered(body, stream=stream)
        asked = request(COMPLETIONS, prompt=["one", "two"], stream=stream, stream_options={"include_usage": True})
        answer = await proxy.http.post(COMPLETIONS, json=asked)
        assert fault_in(COMPLETIONS, answer.status_code, answer.text, streamed=stream) is None, usage


@WAYS
async def test_ids_that_are_none_are_not_trained_on(proxy: Proxy, engine: RawEngine, path: str, stream: bool) -> None:
    for ids in NO_IDS:
        for prompt, sampled in (([1, 2], ids), (ids, [7, 8])):
            if prompt == [True, False]:  # read as 1 and 0, and never trained on: they are context
                continue
            head = {"id": "chatcmpl-1", "prompt_token_ids": prompt}
            body = head | {"choices": [choice(token_ids=sampled, prompt_token_ids=prompt)]}
            engine.default = answered(body, stream=stream)
            answer = await ask(proxy, path, stream=stream)
            assert fault_in(path, answer.status_code, answer.text, streamed=stream) is None, ids
            *_, call = await proxy.calls()
            assert (call["status"], call["choices"][0]["trainable"]) == ("complete", False), ids
            assert call["response"]["choices"][0]["message"]["content"] == "On its way", ids
    assert await proxy.metric("hone_unrecorded_calls_total") == 0


@WAYS
async def test_odd_logprobs_are_not_trained_on(proxy: Proxy, engine: RawEngine, path: str, stream: bool) -> None:
    values: list[Any] = [None, "-0.5", [], True, 3.5, -9999.0]
    for one in [*({"logprob": value} for value in values), None, "x", 5, {}]:
        value: object = one.get("logprob") if isinstance(one, dict) else one
        logprobs: Any = {"content": [one] * 2, "token_logprobs": [value] * 2}
        body = {"id": "chatcmpl-1", "prompt_token_ids": [1], "choices": [choice(logprobs=logprobs)]}
        engine.default = answered(body, stream=stream)
        answer = await ask(proxy, path, stream=stream)
        assert fault_in(path, answer.status_code, answer.text, streamed=stream) is None, one
        *_, call = await proxy.calls()
        assert (call["status"], call["choices"][0]["trainable"]) == ("complete", False), one
    for logprobs in ("x", [1], 5, {"content": 5, "token_logprobs": 5}, {"content": "ab", "token_logprobs": "ab"}):
        body = {"id": "chatcmpl-1", "prompt_token_ids": [1], "choices": [choice(logprobs=logprobs)]}
        engine.default = answered(body, stream=stream)
        answer = await ask(proxy, path, stream=stream)
        assert fault_in(path, answer.status_code, answer.text, streamed=stream) is None, logprobs
        assert (await proxy.calls())[-1]["choices"][0]["trainable"] is False, logprobs
    assert await proxy.metric("hone_unrecorded_calls_total") == 0


@WAYS
async def test_choices_that_are_none_are_a_bad_gateway(
    proxy: Proxy, engine: RawEngine, path: str, stream: bool
) -> None:
    for choices in NO_CHOICES:
        engine.default = answered({"id": "chatcmpl-1", "choices": choices}, stream=stream)
        answer = await ask(proxy, path, stream=stream)
        told = fault_in(path, answer.status_code, answer.text, streamed=stream)
        assert told is not None, choices
        assert "the engine" in told["message"]
        assert (answer.status_code == 502) != stream, choices
    assert {call["status"] for call in await proxy.calls()} == {"errored"}


@pytest.mark.parametrize("path", [RESPONSES, MESSAGES])
@pytest.mark.parametrize("stream", [True, False])
async def test_what_breaks_with_its_finish_has_not_finished(
    proxy: Proxy, engine: RawEngine, path: str, stream: bool
) -> None:
    said = {"tool_calls": [{"index": 0, "function": {"name": "f", "arguments": "{}"}}]}
    whole = choice(message=said, delta=said, finish_reason="tool_calls")
    engine.default = answered({"id": "chatcmpl-1", "choices": [whole]}, stream=stream)
    answer = await ask(proxy, path, stream=stream)
    told = fault_in(path, answer.status_code, answer.text, streamed=stream)
    assert told is not None
    assert "without an id or a name" in told["message"]
    assert (await proxy.call())["status"] == "errored"


@FORMATS
async def test_a_whole_answer_has_each_choice_once(proxy: Proxy, engine: RawEngine, path: str) -> None:
    engine.default = answered({"id": "chatcmpl-1", "choices": [choice(), choice()]}, stream=False)
    assert (await ask(proxy, path, stream=False)).status_code == 502


@pytest.mark.parametrize("arguments", ['{"n": 99999999999999999999999}', '{"s": "\\ud800"}', "[" * 990 + "]" * 990])
@FORMATS
async def test_what_a_model_wrote_as_arguments_is_passed_on(
    proxy: Proxy, engine: RawEngine, path: str, arguments: str
) -> None:
    call = {"id": "chatcmpl-tool-1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    whole = choice(message={"content": None, "tool_calls": [call]}, finish_reason="tool_calls")
    engine.default = answered({"id": "chatcmpl-1", "choices": [whole]}, stream=False)
    answer = await ask(proxy, path, stream=False)
    assert fault_in(path, answer.status_code, answer.text, streamed=False) is None
    assert await proxy.metric("hone_unrecorded_calls_total") == 0


@WAYS
async def test_an_answer_that_is_nested_too_deeply_to_be_written_is_a_bad_gateway(
    proxy: Proxy, engine: RawEngine, path: str, stream: bool
) -> None:
    deep: Any = []
    for _ in range(400):
        deep = [deep]
    body = {"id": "chatcmpl-1", "choices": [choice()], "metrics": deep, "usage": {"prompt_tokens_details": deep}}
    engine.default = answered(body, stream=stream)
    answer = await ask(proxy, path, stream=stream)
    told = fault_in(path, answer.status_code, answer.text, streamed=stream)
    assert told is not None
    assert "a bug in Hone" not in told["message"]


@pytest.mark.parametrize("stream", [True, False])
async def test_an_error_that_is_null_is_none(proxy: Proxy, engine: RawEngine, stream: bool) -> None:
    engine.default = Raw(
        (CHUNKED + framed(event({"error": None}) + event({"choices": [choice()]}) + b"data: [DONE]\n\n") + END,)
    )
    if not stream:
        engine.default = answered({"error": None, "choices": [choice()]}, stream=False)
    answer = await ask(proxy, CHAT, stream=stream)
    assert fault_in(CHAT, answer.status_code, answer.text, streamed=stream) is None
