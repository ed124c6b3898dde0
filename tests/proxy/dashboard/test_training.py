"""The page of training and its pictures: what is waited for, steps, campaigns, runs left out, each also as JSON."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import pytest

from recorder.queue import leases
from recorder.registry.drift_scores import DriftScores, record_drift_scores
from recorder.store.database import Project
from tests.proxy.dashboard.reading import opened
from tests.proxy.running import PROJECT, Proxy
from tests.recorder.learning import Learned

pytestmark = pytest.mark.slow


@pytest.fixture
def learned(proxy: Proxy) -> Learned:
    return Learned(proxy.store, proxy.alias.id)


async def test_before_the_first_step_the_page_says_what_leads_to_one(proxy: Proxy) -> None:
    page = await opened(proxy.http, "/hone/training")
    assert f"{proxy.url}/v1" in page.text
    assert page.images == {}


async def test_steps_are_shown_with_their_figures_and_each_picture_with_its_table(
    proxy: Proxy, learned: Learned
) -> None:
    await learned.accepted(1)
    await learned.gated(2)
    page = await opened(proxy.http, "/hone/training")
    [row] = [row for row in page.rows if row[:3] == ["2", "done", "helpdesk@2"]]
    assert row[3:11] == ["0.4 ± 0.2", "0.001", "1.5", "0.02", "1 234", "1", "1", "train 3.5 s, load 250 ms"]
    assert len(page.images) == 7
    tables = [row[1:] for row in page.rows if row[0] in ("1", "2") and row[1] != "done"]
    assert tables == [[v] for v in ("0.4", "0.4", "0.001", "0.001", "1.5", "1.5", "0.02", "0.02")] + [
        ["1.23e+03"], ["1.23e+03"], ["3.5", "0.25"], ["3.5", "0.25"],
    ]  # fmt: skip


async def test_the_drift_of_versions_is_a_curve_as_far_as_it_is_measured(proxy: Proxy, learned: Learned) -> None:
    await learned.gated(1, metrics={"drift.kl_base": 0.25, "drift.kl_parent": 0.125, "drift.entropy": 1.0})
    page = await opened(proxy.http, "/hone/training")
    assert [address for address in page.images if "/charts/drift.svg" in address]
    assert ["1", "0.25", "0.125"] in page.rows


async def test_what_versions_forget_is_a_curve_as_far_as_it_is_measured(proxy: Proxy, learned: Learned) -> None:
    first = await learned.accepted(1)
    await learned.gated(2)
    await record_drift_scores(proxy.store, first.id, DriftScores("win", {"a": 1.0, "b": 0.25}))
    page = await opened(proxy.http, "/hone/training")
    assert [address for address in page.images if "/charts/forgetting.svg" in address]
    assert ["1", "0.625"] in page.rows
    [newest, oldest] = (await proxy.http.get("/hone/v1/steps?alias=helpdesk")).json()
    assert (oldest["drift"], newest["drift"]) == ({"score": 0.625, "scored": 2.0}, {})


@pytest.mark.slow  # draws
async def test_every_picture_of_the_page_is_there_light_and_dark(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    for path in ("/hone/training", "/hone/versions"):
        for address in (await opened(proxy.http, path)).images:
            for dark in ("", "&dark=1"):
                answer = await proxy.http.get(address + dark)
                assert (answer.status_code, answer.headers["content-type"]) == (200, "image/svg+xml"), address
                assert "unsafe" not in answer.headers["content-security-policy"]
                assert ElementTree.fromstring(answer.text).tag == "{http://www.w3.org/2000/svg}svg"
    assert (await proxy.http.get("/hone/charts/nothing.svg")).status_code == 404
    assert (await proxy.http.get("/hone/charts/versions.svg?alias=nobody")).status_code == 404


async def test_the_json_of_a_chart_has_what_its_table_has(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    await learned.gated(2)
    page = await opened(proxy.http, "/hone/training?alias=helpdesk")
    charts = [told for tag, told in page.elements if tag == "hone-chart"]
    assert len(charts) == len(page.images)
    for told in charts:
        chart = (await proxy.http.get(str(told["data-charts"]))).json()[told["data-name"]]
        title = next(alt for address, alt in page.images.items() if f"/{told['data-name']}.svg" in address)
        assert title.startswith(f"{chart['title']}: chart.")
        assert len(chart["places"]) == len(chart["axis"]["at"]) > 0
    reward = (await proxy.http.get("/hone/v1/charts/steps?alias=helpdesk")).json()["reward"]
    assert (reward["places"], reward["axis"]["at"]) == (["1", "2"], [1.0, 2.0])
    assert [one["values"] for one in reward["series"]] == [[0.4, 0.4]]


async def test_two_campaigns_are_drawn_over_each_other(proxy: Proxy, learned: Learned) -> None:
    first = await learned.campaign()
    await learned.validated(first, 0, "helpdesk@0", 0.25, 8)
    second = await learned.campaign()
    await learned.validated(second, 2, "helpdesk@0", 0.75, 8)
    page = await opened(proxy.http, f"/hone/training?campaign={first}&campaign={second}")
    [address] = [str(told["data-charts"]) for _, told in page.elements if told.get("data-name") == "campaigns"]
    chart = (await proxy.http.get(address)).json()["campaigns"]
    assert [one["values"] for one in chart["series"]] == [[0.25, None], [None, 0.75]]
    assert all(
        low is None or 0 <= low <= value
        for one in chart["series"]
        for low, value in zip(one["low"], one["values"], strict=True)
    )
    alone = (await proxy.http.get("/hone/v1/charts/campaigns")).json()["campaigns"]
    assert [one["values"] for one in alone["series"]] == [[0.75]]


async def test_where_a_picture_cannot_be_drawn_an_image_in_its_place_says_so(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    host = proxy.app._drawer._host
    host.spec = replace(host.spec, command=("false",))  # a process that ends at once
    answer = await proxy.http.get("/hone/charts/reward.svg")
    assert (answer.status_code, answer.headers["content-type"]) == (503, "image/svg+xml")
    assert "The table below" in "".join(ElementTree.fromstring(answer.text).itertext())


async def test_a_running_learners_page_goes_on_by_itself(proxy: Proxy, learned: Learned) -> None:
    assert "data-live" not in (await proxy.http.get("/hone/training")).text
    await leases.acquire_lease(Project(proxy.store, PROJECT), leases.trainer_lease("helpdesk"), "learner", 60)
    assert 'data-live="10"' in (await proxy.http.get("/hone/training")).text


async def test_a_campaign_is_shown_with_how_far_it_is_and_when_it_ends(proxy: Proxy, learned: Learned) -> None:
    campaign = await learned.campaign(target=0.95, plateau_steps=3)
    await learned.validated(campaign, 0, "helpdesk@0", 0.25, 8)
    page = await opened(proxy.http, "/hone/training?alias=helpdesk")
    text = " ".join(page.text.split())
    assert "after step 0: 25% 7% to 59%" in text
    assert "at 0.95 nothing measured yet" in text


async def test_older_steps_are_a_page_further(proxy: Proxy, learned: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.views.status.training.STEPS", 1)
    monkeypatch.setattr("proxy.dashboard.pages.overviews.STEPS", 1)
    await learned.accepted(1)
    await learned.accepted(2)
    page = await opened(proxy.http, "/hone/training")
    older = await opened(proxy.http, next(link for link in page.links if "after=" in link))
    assert [row[2] for row in older.rows if row[1:2] == ["done"]] == ["helpdesk@1"]


async def test_the_same_is_given_as_json(proxy: Proxy, learned: Learned) -> None:
    await learned.accepted(1)
    stand = (await proxy.http.get("/hone/v1/training")).json()
    assert (stand["budgets"]["steps_last_hour"], stand["trainers"]) == ({"helpdesk": 1}, [])
    assert stand["outcomes"][0]["trajectories"] == {"trained": 1}
    [step] = (await proxy.http.get("/hone/v1/steps?alias=helpdesk")).json()
    assert (step["version"], step["seconds"]) == ("helpdesk@1", {"train": 3.5, "load": 0.25})
    assert (await proxy.http.get(f"/hone/v1/steps?after={step['id']}")).json() == []
