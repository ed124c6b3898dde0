"""A base_url with a /v1 too little or too much, or a slash too much, reaches the route that was meant."""

from __future__ import annotations

import pytest

from proxy.admission.address import complete_path
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import ALIAS, WITHOUT_PAGES, say, serving

ROUTES = frozenset({b"chat", b"completions", b"messages", b"responses", b"models", b"embeddings"})


@pytest.mark.parametrize(
    ("path", "meant"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/messages", "/v1/messages"),
        ("/v1/v1/v1/messages/", "/v1/messages"),
        ("/v1//chat/completions", "/v1/chat/completions"),
        ("//v1/models", "/v1/models"),
        ("/models/", "/v1/models"),
        ("/models/a/b", "/v1/models/a/b"),
        ("/responses/resp_1/cancel", "/v1/responses/resp_1/cancel"),
        ("/v1/models/", "/v1/models"),
        ("/hone/v1/status/", "/hone/v1/status"),
        ("//hone/v1/status", "//hone/v1/status"),
        ("//metrics", "//metrics"),
        ("/hone/", "/hone/"),
        ("/mcp/", "/mcp/"),
        ("/chats", "/chats"),
        ("/v1", "/v1"),
        ("/", "/"),
        ("/v1/keys/../x", "/v1/keys/../x"),
    ],
)
def test_paths(path: str, meant: str) -> None:
    assert complete_path(path.encode(), ROUTES).decode() == meant


@pytest.mark.slow
async def test_a_call_is_served_and_recorded(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        for before in ("", "/t/run-1", "/g/group-1/t/run-1"):
            for path in ("/chat", "/v1/v1/chat", "/v1/chat", "/v1//chat"):
                answer = await proxy.http.post(f"{before}{path}/completions/", json=say())
                assert answer.status_code == 200, answer.text
                assert ((await proxy.calls())[-1]["trajectory_external_id"] == "run-1") == bool(before)


@pytest.mark.slow
async def test_lists_and_own_routes(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        for path in ("/models", "/v1/models/", "/v1/v1/models"):
            assert ALIAS in (await proxy.http.get(path)).text
        for path in ("/hone/v1/status/", "/hone/v1/trajectories/"):
            assert (await proxy.http.get(path)).status_code == 200
        counted = await proxy.http.post("/messages/count_tokens", json={"model": ALIAS, "messages": []})
        assert counted.status_code != 404


@pytest.mark.slow
async def test_the_root_leads_to_the_pages(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        answer = await proxy.http.get("/")
        assert (answer.status_code, answer.headers["location"]) == (303, "/hone/")
        assert (await proxy.http.get("/", follow_redirects=True)).status_code == 200


@pytest.mark.slow
async def test_an_unknown_path_names_the_base_url(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine, settings=WITHOUT_PAGES) as proxy:
        for method, path in (("GET", "/"), ("POST", "/api/chat"), ("GET", "/v1"), ("POST", "/v1/chat/completion")):
            answer = await proxy.http.request(method, path, json={})
            assert answer.status_code == 404
            assert f"{proxy.url}/v1" in answer.text
