"""Home: what is in service, what is wrong, the newest runs; on an empty store what to do next."""

from __future__ import annotations

import asyncio

import pytest

from proxy.api import standing
from recorder.registry.replicas import report_replica
from recorder.store.database import Store
from recorder.telling.status import Status, status
from tests.proxy.dashboard.sending import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, serving


async def test_on_an_empty_store_it_says_the_very_lines_that_record_something(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
        assert "No run is recorded yet" in page.text
        assert f"export OPENAI_BASE_URL={proxy.url}/v1" in page.text
        assert '"model": "helpdesk"' in page.text
        assert "/hone/versions/helpdesk%400" in page.links


async def test_it_shows_what_is_in_service_what_is_wrong_and_the_newest_runs(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        await report_replica(
            store, PROJECT, "http://gone", state="down", loaded=[], detail="refused <script>x</script>"
        )
        await proxy.chat("Where is <b>order</b> 4821?", path="/g/refunds/t/one")
        page = await opened(proxy.http, "/hone/")
        assert "engine http://gone is down: refused <script>x</script>" in page.text
        assert "Where is <b>order</b> 4821?" in page.text
        assert '<div id="live-none" hidden>' in (await proxy.http.get("/hone/")).text
        assert any(link.startswith("/hone/runs/") for link in page.links)
        assert page.tags.count("script") == 2  # of our own files
        assert "b" not in page.tags


async def test_a_status_that_takes_long_is_shown_as_it_was_and_asked_for_once(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        assert (await proxy.http.get("/hone/")).status_code == 200
        asked, let_go = [], asyncio.Event()

        async def slow(*of: object) -> Status:
            asked.append(of)
            await let_go.wait()
            return await status(*of)  # type: ignore[arg-type]  # what the real one was given

        monkeypatch.setattr(standing, "status", slow)
        answers = await asyncio.gather(*(proxy.http.get("/hone/") for _ in range(3)))
        assert [answer.status_code for answer in answers] == [200, 200, 200]
        assert len(asked) == 1
        let_go.set()
        assert (await proxy.http.get("/hone/v1/status")).status_code == 200
