"""A page whose reading takes too long ends as a page that says so; calls and other pages go on meanwhile."""

from __future__ import annotations

import asyncio

import pytest
from sqlalchemy import text

from proxy.dashboard import live
from proxy.settings.sections import ProxySettings
from recorder.store.database import Project, Store
from recorder.views.lists.filters import TrajectoryFilter
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import serving

ENDLESS = text("WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT 1 FROM n) SELECT count(*) FROM n")


async def never_ends(project: Project, wanted: TrajectoryFilter, *, limit: int) -> None:
    async with project.store.read() as conn:
        await conn.execute(ENDLESS)


async def test_the_page_says_what_took_too_long_and_calls_are_answered_meanwhile(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = ProxySettings(port=0, pages_timeout_s=1)
    async with FakeEngine() as engine, serving(store, engine, settings=settings) as proxy:
        assert (await proxy.http.get("/hone/")).status_code == 200
        monkeypatch.setattr(live, "list_trajectories", never_ends)
        pages = [asyncio.ensure_future(proxy.http.get("/hone/")) for _ in range(6)]
        assert (await proxy.chat("Where is order 4821?")).status_code == 200
        for answer in await asyncio.gather(*pages):
            assert answer.status_code == 503
            assert answer.headers["content-type"].startswith("text/html")
            assert int(answer.headers["retry-after"]) >= 1
            assert "GET /hone/: a read of the store was cancelled after 1 s" in answer.text
            assert "pages_timeout_s" in answer.text
        monkeypatch.undo()
        assert (await proxy.http.get("/hone/")).status_code == 200
