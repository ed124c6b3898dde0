"""The page Traffic: figures of a range, split by what was asked for, each point and value a link to its list."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from recorder.store.database import Project, Store
from recorder.views.charts.traffic import traffic_charts
from recorder.views.lists.filters import parse_traffic_filter
from recorder.views.status.traffic import load_traffic
from tests.proxy.dashboard.listed import Listed
from tests.proxy.dashboard.reading import opened
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.running import PROJECT, Proxy, serving
from tests.recorder.totals.facts import count_all

pytestmark = pytest.mark.slow


@pytest.fixture
async def proxy(store: Store) -> AsyncIterator[Proxy]:
    async with FakeEngine() as engine, serving(store, engine) as running:
        yield running


async def test_without_a_call_it_says_what_to_do(proxy: Proxy) -> None:
    page = await opened(proxy.http, "/hone/traffic")
    assert "No call in this range" in page.text
    assert f"{proxy.url}/v1" in page.text


async def test_points_values_and_errors_lead_to_their_trajectories(proxy: Proxy) -> None:
    for number in range(3):
        agent = {"user-agent": f"agent{number % 2}/1.0", "x-hone-tags": "team=blue"}
        await proxy.chat(path=f"/t/run-{number}", headers=agent)
    await count_all(Project(proxy.store, PROJECT))
    page = await opened(proxy.http, "/hone/traffic?range=1h&split=client")
    assert "By client" in page.text
    assert any("agent0" in cell for row in page.rows for cell in row)
    addresses = [link for link in page.links if link.startswith("/hone/trajectories?")]
    lists = {link: await proxy.http.get(link) for link in addresses}
    assert all(answer.status_code == 200 for answer in lists.values())
    [of_client] = [link for link in addresses if "client=agent1" in link]
    assert len(Listed(lists[of_client].text).lines) == 1
    points = [link for link in addresses if link.startswith("/hone/trajectories?active_since=")]
    assert all(len(Listed(lists[link].text).lines) == 3 for link in points)
    answer = await proxy.http.get("/hone/v1/traffic?range=1h&split=tag")
    assert [(one["value"], one["total"]["calls"]) for one in answer.json()["values"]] == [("team=blue", 3)]


async def test_the_form_keeps_what_was_asked_and_sends_nothing_empty(proxy: Proxy) -> None:
    answer = await proxy.http.get("/hone/traffic?range=7d&since=&until=&split=version&tag=")
    assert (answer.status_code, answer.headers["location"]) == (303, "/hone/traffic?range=7d&split=version")
    found = Listed((await proxy.http.get(answer.headers["location"])).text)
    assert dict(found.sent)["range"] == "7d"
    assert dict(found.sent)["split"] == "version"
    assert (await proxy.http.get("/hone/traffic?range=2h")).status_code == 400
    assert (await proxy.http.get("/hone/traffic/charts/none.svg?range=1h")).status_code == 404


async def test_charts_are_those_of_the_page_and_only_of_what_there_is(proxy: Proxy) -> None:
    await proxy.chat(path="/t/run-1")
    project = Project(proxy.store, PROJECT)
    await count_all(project)
    whole = await load_traffic(project, parse_traffic_filter([]))
    drawn = traffic_charts(whole)
    assert {"calls", "duration", "tokens"} <= drawn.keys()
    assert not {"errors", "cost"} & drawn.keys()
    assert sum(value or 0 for value in drawn["calls"].series[0].values) == 1
    assert [one.name for one in drawn["duration"].series] == ["p50", "p95", "p99"]
    split = traffic_charts(await load_traffic(project, parse_traffic_filter([("split", "version")])))
    assert [one.name for one in split["calls"].series] == ["helpdesk@0"]
    assert all(len(chart.places) == len(whole.points) for chart in drawn.values())
