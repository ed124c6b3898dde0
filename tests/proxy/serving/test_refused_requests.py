"""Requests that make no sense: refused with the field and the reason, before any engine is asked."""

from __future__ import annotations

from typing import Any

import pytest

from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import BASE, Proxy

pytestmark = pytest.mark.slow


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
        ({"kv_transfer_params": {"prompt_token_ids": [1]}}, "kv_transfer_params", "without the recorder seeing it"),
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


async def test_other_methods_are_refused(proxy: Proxy) -> None:
    answer = await proxy.http.get("/v1/chat/completions")
    assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")
