"""Lists of models, what is passed through, and what does not exist."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from proxy.settings.sections import ProxySettings
from recorder.registry.aliases import ensure_alias
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine, Script, words
from tests.proxy.running import BASE, PROJECT, Proxy, serving

pytestmark = pytest.mark.slow


async def test_models_are_listed_as_clients_know_them(proxy: Proxy) -> None:
    listed = (await proxy.http.get("/v1/models")).json()
    assert (listed["object"], [card["id"] for card in listed["data"]]) == ("list", ["helpdesk", "helpdesk@0"])
    assert (await proxy.http.get("/v1/models/helpdesk")).json()["object"] == "model"
    assert (await proxy.http.get("/v1/models/helpdesk%400")).json()["id"] == "helpdesk@0"
    assert (await proxy.http.get("/g/a/t/b/v1/models")).json() == listed
    unknown = await proxy.http.get(f"/v1/models/{BASE}")
    assert (unknown.status_code, unknown.json()["error"]["code"]) == (404, "model_not_found")
    assert (await proxy.http.get("/v1/modelsfoo")).status_code == 404


@pytest.mark.parametrize(("length", "told"), [(32768, {"max_model_len": 32768}), (None, {})])
async def test_models_have_the_context_length_of_their_engine_where_it_is_known(
    proxy: Proxy, engine: FakeEngine, length: int | None, told: dict[str, int]
) -> None:
    engine.context_length = length
    cards = (await proxy.http.get("/v1/models")).json()["data"]
    cards.append((await proxy.http.get("/v1/models/helpdesk")).json())
    assert [{name: card[name] for name in card if name == "max_model_len"} for card in cards] == [told] * 3


@pytest.mark.parametrize("path", ["/v1/embeddings", "/tokenize", "/detokenize"])
async def test_routes_that_generate_nothing_are_passed_through(proxy: Proxy, engine: FakeEngine, path: str) -> None:
    answer = await proxy.http.post(path, json={"model": "helpdesk", "input": "x"})
    assert (answer.status_code, answer.json()) == (200, {"object": "passed", "model": "helpdesk", "route": path})
    assert engine.requests == [{"model": BASE, "input": "x"}]
    assert await proxy.calls() == []


async def test_the_engines_version_is_passed_through(proxy: Proxy, engine: FakeEngine) -> None:
    assert (await proxy.http.get("/version")).json()["route"] == "/version"
    assert engine.heads[0].startswith("GET /version ")


async def test_with_one_alias_the_model_may_be_left_out(proxy: Proxy, engine: FakeEngine, store: Store) -> None:
    assert (await proxy.http.post("/tokenize", json={"prompt": "x"})).status_code == 200
    assert engine.requests[0]["model"] == BASE
    await ensure_alias(Project(store, PROJECT), "another", BASE, "fingerprint")
    await proxy.versions.refresh()
    answer = await proxy.http.post("/tokenize", json={"prompt": "x"})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "model")


@pytest.mark.parametrize(
    "path",
    [
        "/v1/chat/completions/batch", "/v1/chat/completions/%62atch", "/v1/chat/completions/batch/",
        "/t/run/v1/chat/completions/batch/",
    ],
)  # fmt: skip
async def test_generating_routes_that_are_not_recorded_are_not_served(
    proxy: Proxy, engine: FakeEngine, path: str
) -> None:
    answer = await proxy.http.post(path, json={"model": "helpdesk"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (501, "not_recorded")
    assert "unrecorded = true" in answer.json()["error"]["message"]
    assert engine.requests == []


async def test_they_are_served_where_the_user_wants_them_unrecorded(store: Store, engine: FakeEngine) -> None:
    async with serving(store, engine, settings=ProxySettings(port=0, unrecorded=True)) as proxy:
        answer = await proxy.http.post("/v1/chat/completions/batch", json={"model": "helpdesk", "prompt": "x"})
        assert answer.json() == {"object": "passed", "model": "helpdesk", "route": "/v1/chat/completions/batch"}
        for field in ("prompt_logprobs", "echo", "kv_transfer_params"):
            refused = await proxy.http.post("/v1/chat/completions/batch", json={"model": "helpdesk", field: 1})
            assert (refused.status_code, refused.json()["error"]["param"]) == (400, field)
        engine.default = Script([words("On Monday")])
        body = {"model": "helpdesk", "messages": [], "stream": True}
        streamed = await proxy.http.post("/v1/chat/completions/batch", json=body)
        assert streamed.headers["content-type"].startswith("text/event-stream")
        assert streamed.text.endswith("data: [DONE]\n\n")
        assert await proxy.calls() == []


@pytest.mark.parametrize(
    "path",
    [
        "/v1/load_lora_adapter",
        "/v1/unload_lora_adapter",
        "/pause",
        "/sleep",
        "/wake_up",
        "/collective_rpc",
        "/reset_prefix_cache",
        "/inference/v1/generate",
        "/v1/chat/completions/render",
        "/v1/completions/render",
        "/metrics/engine",
        "/tokenizer_info",
        "/start_profile",
        "/",
    ],
)
async def test_the_engines_own_switches_can_not_be_reached(store: Store, engine: FakeEngine, path: str) -> None:
    settings = ProxySettings(port=0, unrecorded=True, pages=False)  # with pages, `/` leads to them
    async with serving(store, engine, settings=settings) as proxy:
        for method in ("POST", "GET"):
            answer = await proxy.http.request(method, path, json={"lora_name": "x", "lora_path": "/y"})
            assert (answer.status_code, answer.json()["error"]["code"]) == (404, "not_found")
    assert engine.requests == []


@pytest.mark.parametrize(
    ("path", "body", "status", "param"),
    [
        ("/tokenize", {"model": "nobody"}, 404, "model"),
        ("/tokenize", {"model": 5}, 404, "model"),
        ("/v1/embeddings", {"model": "helpdesk", "truncate_prompt_tokens": 5}, 400, "truncate_prompt_tokens"),
        ("/v1/embeddings", {"model": "helpdesk", "extra_body": {"priority": 1}}, 400, "extra_body.priority"),
        (
            "/tokenize",
            {"model": "helpdesk", "messages": [{"content": [{"image_url": {"url": "http://evil.net/"}}]}]},
            400,
            "messages[0].content[0].image_url",
        ),
    ],
)
async def test_what_is_refused_in_calls_is_refused_here(
    proxy: Proxy, engine: FakeEngine, path: str, body: dict[str, Any], status: int, param: str
) -> None:
    answer = await proxy.http.post(path, json=body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (status, param)
    assert engine.requests == []


async def test_an_engine_that_fails_is_told_here_too(proxy: Proxy, engine: FakeEngine) -> None:
    ask = {"model": "helpdesk"}
    engine.default = Script(status=400, error={"error": {"message": f"{BASE} has no embeddings", "type": "E"}})
    refused = await proxy.http.post("/v1/embeddings", json=ask)
    assert (refused.status_code, refused.json()["error"]["message"]) == (400, "helpdesk has no embeddings")
    engine.default = Script(body=b"not json")
    assert (await proxy.http.post("/v1/embeddings", json=ask)).status_code == 502
    await engine.stop()
    down = await proxy.http.post("/v1/embeddings", json=ask)
    assert (down.status_code, down.headers["retry-after"]) == (503, "1")


async def test_the_engine_is_told_when_a_client_hangs_up_here_too(proxy: Proxy, engine: FakeEngine) -> None:
    engine.default = Script(gate=asyncio.Event())
    asking = asyncio.ensure_future(proxy.http.post("/v1/embeddings", json={"model": "helpdesk"}))
    await engine.until(lambda e: len(e.requests) == 1)
    asking.cancel()
    await engine.until(lambda e: e.aborted == [0])


async def test_other_methods_are_refused(proxy: Proxy) -> None:
    for method, path in (("GET", "/tokenize"), ("POST", "/version"), ("POST", "/v1/models")):
        answer = await proxy.http.request(method, path, json={})
        assert (answer.status_code, answer.json()["error"]["code"]) == (405, "method_not_allowed")


async def test_health_and_metrics(proxy: Proxy) -> None:
    healthy = {"status": "ok", "engines_up": 1, "aliases": ["helpdesk"], "recording": True}
    assert (await proxy.http.get("/healthz")).json() == healthy
    await proxy.chat()
    await proxy.chat(model="nobody")
    text = (await proxy.http.get("/metrics")).text
    assert 'hone_calls_total{dialect="chat",state="complete",version="helpdesk@0"} 1.0' in text
    assert 'hone_refused_requests_total{status="404"} 1.0' in text
    assert "hone_committed_calls_total 1.0" in text
    assert "hone_queue_calls 0.0" in text
