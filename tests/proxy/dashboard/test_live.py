"""The live list: rows come as they are written, a bounded number of pages listens, and each ends with whoever ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proxy.api.status import StatusService
from proxy.dashboard import live
from proxy.dashboard.renderer import PageContext
from proxy.http.sse import Parser
from recorder.errors import StoreUnavailable
from recorder.ids import new_id
from recorder.store.database import Store
from recorder.views.lists.trajectories import TrajectoryLine
from recorder.views.status.project import Status
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import NO_TLS, Proxy, serving
from tests.proxy.until import until
from tests.recorder.rows import Rows

pytestmark = pytest.mark.slow


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


@asynccontextmanager
async def listening(proxy: Proxy) -> AsyncIterator[AsyncIterator[str]]:
    """The fragments that one page is sent."""
    async with proxy.http.stream("GET", "/hone/live") as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        yield fragments(answer)


async def fragments(answer: httpx.Response) -> AsyncIterator[str]:
    parser = Parser()
    async for chunk in answer.aiter_bytes():
        for data in parser.feed(chunk):
            yield data.decode()


async def until_said(fragments: AsyncIterator[str], words: str) -> str:
    async for fragment in fragments:
        if words in fragment:
            return fragment
    raise AssertionError(f"the stream ended without {words!r}")


async def test_a_run_that_begins_and_goes_on_is_pushed_to_all_who_listen(proxy: Proxy) -> None:
    await proxy.chat("Where is order 1?", path="/t/one")
    async with listening(proxy) as first, listening(proxy) as second:
        assert "order 2" not in await until_said(first, "Where is order 1?")
        await proxy.chat("Where is <b>order</b> 2?", path="/t/two")
        for page in (first, second):
            fragment = await until_said(page, "&lt;b&gt;order&lt;/b&gt; 2?")
            assert fragment.startswith("<tr data-line>")


async def test_the_figures_move_with_the_list(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "FIGURES_S", 0.0)
    assert "<dt>open trajectories</dt><dd>0</dd>" in (await proxy.http.get("/hone/")).text
    async with listening(proxy) as page:
        assert "<dt>open trajectories</dt><dd>0</dd>" in await until_said(page, 'id="live-figures"')
        await proxy.chat("Where is order 1?", path="/t/one")
        assert 'id="live-groups"' in await until_said(page, "<dt>open trajectories</dt><dd>1</dd>")


async def test_figures_that_cannot_be_had_stop_neither_the_list_nor_the_figures_after_them(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing = [StoreUnavailable("the read took longer than its limit")] * 2

    async def status(
        _stands: StatusService, real: Callable[[StatusService], Awaitable[Status]] = StatusService.status
    ) -> Status:
        if failing:
            raise failing.pop()
        return await real(_stands)

    monkeypatch.setattr(live, "FIGURES_S", 0.0)
    monkeypatch.setattr(StatusService, "status", status)
    async with listening(proxy) as page:
        await proxy.chat("Where is order 1?", path="/t/one")
        await until_said(page, "Where is order 1?")
        await until_said(page, "<dt>open trajectories</dt><dd>1</dd>")
    assert not failing


async def test_a_page_that_cannot_be_made_ends_its_stream_so_that_the_browser_asks_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(_shown: PageContext) -> list[TrajectoryLine]:
        raise KeyError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(live, "newest_trajectories", broken)
        async with listening(proxy) as page, asyncio.timeout(20):
            assert [fragment async for fragment in page if fragment] == []
    assert "live updates of Home stopped" in caplog.text
    await proxy.chat("Where is order 1?", path="/t/one")
    async with listening(proxy) as page:
        await until_said(page, "Where is order 1?")


async def test_runs_that_hone_asks_for_itself_do_not_push_those_of_agents_out(
    proxy: Proxy, store: Store, rows: Rows
) -> None:
    await proxy.chat("Where is order 1?", path="/t/one")
    for _ in range(live.ROWS):
        await rows.trajectory(id=new_id("traj"), origin="shadow", purpose="eval")
    async with listening(proxy) as page:
        assert (await until_said(page, "Where is order 1?")).count("<tr data-line>") == 1
    assert "Where is order 1?" in (await proxy.http.get("/hone/")).text


async def test_one_more_than_may_listen_is_told_to_reload(proxy: Proxy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "MAX_LISTENERS", 1)
    await proxy.chat("Where is order 1?")
    async with listening(proxy) as page:
        await until_said(page, "order 1")
        refused = await proxy.http.get("/hone/live")
        assert (refused.status_code, refused.headers["retry-after"]) == (503, "30")
        assert "reload" in refused.text

    async def free() -> bool:
        async with proxy.http.stream("GET", "/hone/live") as answer:
            return answer.status_code == 200

    await until(free)  # its place is free once the page is gone


async def test_it_is_read_and_nothing_else(proxy: Proxy) -> None:
    assert (await proxy.http.post("/hone/live")).status_code == 405


async def test_a_stream_that_lasted_ends_so_that_the_browser_asks_again(
    proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "LASTS_S", 0.2)
    async with listening(proxy) as page:
        assert [fragment async for fragment in page if "live-figures" not in fragment] in ([], [""])


async def test_a_page_that_listens_does_not_keep_the_proxy_from_stopping(store: Store) -> None:
    ended: asyncio.Event = asyncio.Event()
    http = httpx.AsyncClient(timeout=20, verify=NO_TLS)

    async def listen(url: str, began: asyncio.Event) -> None:
        async with http.stream("GET", f"{url}/hone/live") as answer:
            began.set()
            async for _ in answer.aiter_bytes():
                pass
        ended.set()

    async with http:
        async with FakeEngine() as engine, serving(store, engine, stop_timeout_s=60) as proxy:
            began = asyncio.Event()
            task = asyncio.create_task(listen(proxy.url, began))
            await began.wait()
        await ended.wait()
        await task


@given(st.text())
def test_no_text_of_anybodys_is_a_field_of_the_stream(text: str) -> None:
    [data] = Parser().feed(live.encode_event(f"<td>{text}</td>"))
    whole = data.decode()
    assert whole.startswith("<td>")
    assert whole.endswith("</td>")
    ends = str.maketrans({"\r": "\n"})
    assert whole == f"<td>{text}</td>".replace("\r\n", "\n").translate(ends)
