"""Bodies to Hone's own API: small ones are read, hostile ones are refused before they are parsed."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from proxy.settings.sections import ProxySettings
from recorder.store.database import Store
from tests.event_loop import GAP_S, loop_gaps
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import Proxy, serving

JSON = {"content-type": "application/json"}
HOSTILE = {
    "lists": b'{"tags":[' + b"[]," * 10_000_000 + b"[]]}",
    "a megabyte of lists": b'{"tags":[' + b"[]," * 300_000 + b"[]]}",
    "a megabyte of keys": b'{"tags":{' + b",".join(b'"%d":""' % n for n in range(90_000)) + b"}}",
    "deep": b'{"tags":' + b"[" * 10_000,
    "deep and closed": b'{"tags":' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    "rather deep": b'{"tags":' + b"[" * 900 + b"]" * 900 + b"}",
    "text": b'{"tags":"' + b"\\n" * 15_000_000 + b'"}',
}


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine, settings=ProxySettings(port=0)) as running:
        yield running


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE)
async def test_a_hostile_body_is_refused_meanwhile_others_are_served(proxy: Proxy, body: bytes) -> None:
    async with loop_gaps() as gaps:
        answer = await proxy.http.post("/hone/v1/trajectories", content=body, headers=JSON)
    assert answer.status_code in (400, 413)
    assert "bug" not in answer.text
    assert gaps.busy_s <= GAP_S


async def test_a_form_with_too_many_fields_is_refused(proxy: Proxy) -> None:
    form = {"content-type": "application/x-www-form-urlencoded"}
    async with loop_gaps() as gaps:
        answer = await proxy.http.post("/hone/trajectories/x/tags", content=b"a=1&" * 200_000, headers=form)
    assert answer.status_code in (400, 403, 404)
    assert gaps.busy_s <= GAP_S


async def test_an_ordinary_body_is_read(proxy: Proxy) -> None:
    assert (await proxy.chat("hi", path="/t/one")).status_code == 200
    noted = {"name": "good", "value": True, "comment": "Word, and {more}. [1, 2] " * 2000}
    answer = await proxy.http.post("/t/one/hone/v1/feedback", json=noted)
    assert answer.status_code == 201, answer.text
