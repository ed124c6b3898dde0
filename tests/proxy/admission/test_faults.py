"""Faults of Hone itself: whoever is hit by one is told so in the format of its route."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from proxy.admission.auth import Guard
from proxy.serving import calls
from proxy.versions.routing import ServiceRouter
from recorder.errors import StoreUnavailable
from recorder.store.database import Store
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.formats import REQUESTS, fault_in, request
from tests.proxy.running import Proxy, serving

pytestmark = pytest.mark.slow


class Broken(Exception):
    """What nobody thought of."""


def broken(*_: Any, **__: Any) -> Any:
    raise Broken("as a test wants it")


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_fault_before_a_call_runs_is_told_in_its_format(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, path: str
) -> None:
    monkeypatch.setattr(calls, "read_hints", broken)
    answer = await proxy.http.post(path, json=request(path))
    told = fault_in(path, answer.status_code, answer.text, streamed=False)
    assert told is not None
    assert (answer.status_code, told["message"].split(".")[0]) == (500, "a bug in Hone: Broken: as a test wants it")
    assert "Broken" in caplog.text


async def test_a_fault_of_other_routes_is_told_too(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServiceRouter, "models", broken)
    monkeypatch.setattr(ServiceRouter, "resolve", broken)
    for path in ("/v1/models", "/v1/messages/count_tokens"):
        method = "GET" if path == "/v1/models" else "POST"
        answer = await proxy.http.request(method, path, json={"model": "helpdesk"})
        assert answer.status_code == 500
        assert "a bug in Hone" in answer.json()["error"]["message"]
    monkeypatch.setattr(Store, "read", broken)
    answer = await proxy.http.get("/hone/v1/aliases")
    assert (answer.status_code, answer.headers["content-type"]) == (500, "application/problem+json")
    assert "a bug in Hone" in answer.json()["detail"]


@pytest.mark.parametrize("path", REQUESTS)
async def test_a_store_that_is_away_at_the_gate_is_no_fault(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, path: str
) -> None:
    async def away(*_: Any, **__: Any) -> None:
        raise StoreUnavailable("the store is away")

    monkeypatch.setattr(Guard, "admit", away)
    answer = await proxy.http.post(path, json=request(path))
    told = fault_in(path, answer.status_code, answer.text, streamed=False)
    assert told is not None
    assert (answer.status_code, told["message"]) == (503, "the store is away")
