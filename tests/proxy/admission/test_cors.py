"""Pages of other origins: only those in settings, never with credentials, and what they may read."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from proxy.errors import ConfigError
from proxy.settings.sections import ProxySettings
from recorder.registry.keys import create_key
from recorder.store.database import Project, Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving

pytestmark = pytest.mark.slow

APP = "https://app.example.com"
OTHER = "https://app.example.com.evil.test"
CHAT = "/v1/chat/completions"
PREFLIGHT = {
    "access-control-request-method": "POST",
    "access-control-request-headers": "authorization,content-type,x-stainless-os",
}


def allowing(*origins: str, pages: bool = False) -> ProxySettings:
    return ProxySettings(port=0, cors_origins=list(origins), pages=pages)


async def preflight(proxy: Proxy, path: str = CHAT, origin: str = APP) -> Mapping[str, str]:
    answer = await proxy.http.options(path, headers={"origin": origin} | PREFLIGHT)
    allowed = "access-control-allow-origin" in answer.headers
    assert (answer.status_code == 204) >= allowed
    return answer.headers if allowed else {}


async def a_key(store: Store) -> dict[str, str]:
    _, secret = await create_key(Project(store, PROJECT), "app", ["infer"])
    return {"authorization": f"Bearer {secret}"}


async def test_a_preflight_of_a_named_origin_needs_no_key(store: Store) -> None:
    await a_key(store)
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP)) as proxy:
        for path in (CHAT, "/v1/messages", "/t/run-1/v1/chat/completions", "/hone/v1/trajectories"):
            headers = await preflight(proxy, path)
            assert headers["access-control-allow-origin"] == APP
            assert "POST" in headers["access-control-allow-methods"]
            assert headers["access-control-allow-headers"] == PREFLIGHT["access-control-request-headers"]
            assert headers["vary"] == "Origin"
            assert "access-control-allow-credentials" not in headers


async def test_another_origin_gets_nothing(store: Store) -> None:
    key = await a_key(store)
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP)) as proxy:
        for origin in (OTHER, "http://app.example.com", "https://app.example.com:8443", "null", ""):
            assert not await preflight(proxy, origin=origin)
            answer = await proxy.chat(headers=key | {"origin": origin})
            assert not any(name.startswith("access-control") for name in answer.headers)


async def test_pages_and_other_routes_are_closed_to_every_origin(store: Store) -> None:
    key = await a_key(store)
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP, "*", pages=True)) as proxy:
        for path in ("/hone/", "/hone/sign-in", "/hone/keys", "/metrics", "/healthz", "/mcp", "/hone/mcp"):
            assert not await preflight(proxy, path)
            async with proxy.http.stream("GET", path, headers=key | {"origin": APP}) as answer:
                assert "access-control-allow-origin" not in answer.headers


async def test_a_call_can_be_read_with_its_ids(store: Store) -> None:
    key = await a_key(store)
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP)) as proxy:
        answer = await proxy.chat(headers=key | {"origin": APP})
        assert answer.status_code == 200
        assert answer.headers["access-control-allow-origin"] == APP
        exposed = answer.headers["access-control-expose-headers"].split(", ")
        assert {"x-hone-call", "x-hone-trajectory"} <= set(exposed)
        assert {name for name in answer.headers if name.startswith("x-hone-")} <= set(exposed)
        streamed = await proxy.chat(headers=key | {"origin": APP}, stream=True)
        assert streamed.headers["access-control-allow-origin"] == APP


async def test_errors_can_be_read(store: Store) -> None:
    await a_key(store)
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP)) as proxy:
        answer = await proxy.chat(headers={"origin": APP})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, APP)


async def test_without_keys_a_named_origin_may_call(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine, settings=allowing(APP, pages=True)) as proxy:
        assert (await proxy.chat(headers={"origin": APP})).status_code == 200
        assert (await proxy.chat(headers={"origin": OTHER})).status_code == 403
        form = await proxy.http.post(CHAT, content="{}", headers={"origin": APP, "content-type": "text/plain"})
        assert form.status_code == 415
        rebound = await proxy.chat(headers={"origin": APP, "host": "app.example.com"})
        assert rebound.status_code == 403
        assert (await proxy.http.get("/hone/", headers={"origin": APP})).status_code == 403


async def test_any_origin_needs_keys(store: Store) -> None:
    async with FakeEngine() as engine:
        with pytest.raises(ConfigError, match="cors_origins"):
            async with serving(store, engine, settings=allowing("*")):
                pass
        key = await a_key(store)
        async with serving(store, engine, settings=allowing("*")) as proxy:
            answer = await proxy.chat(headers=key | {"origin": OTHER})
            assert answer.headers["access-control-allow-origin"] == OTHER


async def test_by_default_no_origin_is_allowed(store: Store) -> None:
    await a_key(store)
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        answer = await proxy.http.options(CHAT, headers={"origin": APP} | PREFLIGHT)
        assert answer.status_code == 401
        assert not any(name.startswith("access-control") for name in answer.headers)


@pytest.mark.parametrize("origin", ["app.example.com", "https://app.example.com/", "https://*.example.com", "null"])
def test_what_is_no_origin_is_refused(origin: str) -> None:
    with pytest.raises(ValidationError, match="scheme://host"):
        ProxySettings(cors_origins=[origin])


def test_origins_of_apps_are_origins() -> None:
    origins = ["vscode-webview://abc", "chrome-extension://abcdef", "tauri://localhost", "http://localhost:3000"]
    assert ProxySettings(cors_origins=origins).cors_origins == origins
