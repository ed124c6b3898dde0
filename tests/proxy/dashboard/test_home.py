"""Home: what is in service, what is wrong, the newest runs; on an empty store what to do next."""

from __future__ import annotations

from recorder.registry.replicas import report_replica
from recorder.store.database import Project, Store
from tests.proxy.dashboard.reading import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, serving


async def test_on_an_empty_store_it_says_the_very_lines_that_record_something(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        page = await opened(proxy.http, "/hone/")
        assert f"export OPENAI_BASE_URL={proxy.url}/v1" in page.text
        assert '"model": "helpdesk"' in page.text
        assert "/hone/versions/helpdesk%400" in page.links


async def test_it_shows_what_is_in_service_what_is_wrong_and_the_newest_runs(store: Store) -> None:
    async with FakeEngine() as engine, serving(store, engine) as proxy:
        await report_replica(
            Project(store, PROJECT), "http://gone", state="down", loaded=[], detail="refused <script>x</script>"
        )
        await proxy.chat("Where is <b>order</b> 4821?", path="/g/refunds/t/one")
        page = await opened(proxy.http, "/hone/")
        assert "engine http://gone is down: refused <script>x</script>" in page.text
        assert "Where is <b>order</b> 4821?" in page.text
        assert '<div id="live-none" hidden>' in (await proxy.http.get("/hone/")).text
        assert any(link.startswith("/hone/trajectories/") for link in page.links)
        assert page.tags.count("script") == 2  # of our own files
        assert "b" not in page.tags
