"""The page of a campaign: the report's results in the pages' layout, its charts, and the report as one file."""

from __future__ import annotations

import re
from dataclasses import replace

import httpx
import pytest

from recorder.base.terminal import clean
from recorder.queue import campaigns
from recorder.queue.campaigns import CampaignView
from recorder.report.page import render_results
from recorder.report.page_fit import ROOM_BYTES, fit_report
from recorder.report.shapes import CampaignReport
from recorder.store import ledger
from recorder.store.ledger import LedgerRow
from recorder.views.campaigns.events import BEGUN, STEP, CampaignBegun, CampaignMeasure, StepDone, encode_event
from tests.proxy.dashboard.reading import Page, opened
from tests.proxy.dashboard.xss import CORPUS
from tests.proxy.running import PROJECT, Proxy
from tests.proxy.until import until
from tests.recorder.learning import Learned
from tests.recorder.report.test_page import report

STEP_DONE = StepDone(1, "helpdesk@1", "helpdesk@0", 0.5, 0.4, None, None, None, 32, 16, 10)
PAGE_BYTES = 150_000


@pytest.fixture
async def campaign(proxy: Proxy) -> CampaignView:
    id_ = await Learned(proxy.store, proxy.alias.id).campaign(target=0.9)
    rows = [
        LedgerRow(PROJECT, "campaign", id_, BEGUN, encode_event(CampaignBegun(0, measure=CampaignMeasure.SUCCESS))),
        LedgerRow(PROJECT, "campaign", id_, STEP, encode_event(STEP_DONE)),
    ]
    async with proxy.store.write() as conn:
        await ledger.write_rows(conn, rows)
    return await campaigns.get_campaign(proxy.store, id_)


async def test_a_campaign_has_a_page_and_home_and_training_lead_to_it(proxy: Proxy, campaign: CampaignView) -> None:
    answer = await proxy.http.get(f"/hone/campaigns/{campaign.id}")
    [row] = [row for row in Page(answer.text).rows if row[:2] == ["1", "helpdesk@0"]]
    assert row[3:7] == ["50.0 %", "28.0 % to 72.0 %", "16", "16"]
    assert f"/hone/campaigns/{campaign.id}/report.html" in answer.text
    assert '<a href="/hone/versions/helpdesk@0">helpdesk@0</a>' in answer.text
    for path in ("/hone/", "/hone/training"):
        assert f'href="/hone/campaigns/{campaign.id}"' in (await proxy.http.get(path)).text
    by_name = await opened(proxy.http, f"/hone/campaigns/{campaign.name}")
    assert campaign.name in by_name.text


async def test_an_unknown_campaign_and_an_unknown_chart_are_refused(proxy: Proxy, campaign: CampaignView) -> None:
    for path in ("nothing", "nothing/report.html", f"{campaign.id}/charts/nothing.svg"):
        assert (await proxy.http.get(f"/hone/campaigns/{path}")).status_code == 404
    assert (await proxy.http.get("/hone/v1/campaigns/nothing/report")).status_code == 404


async def test_the_api_gives_what_the_command_prints(proxy: Proxy, campaign: CampaignView) -> None:
    found = (await proxy.http.get(f"/hone/v1/campaigns/{campaign.id}/report")).json()
    assert (found["name"], found["status"]["code"], found["own"][0]["value"]) == (campaign.name, "left", 0.5)


@pytest.mark.slow  # draws
async def test_the_downloaded_file_is_the_commands_and_asks_for_nothing(proxy: Proxy, campaign: CampaignView) -> None:
    address = f"/hone/campaigns/{campaign.id}/report.html"
    # The first chart starts a program, which a loaded machine may take too long to start: then the answer is 503.
    answer = await until(lambda: found(proxy.http, address), within_s=120.0)
    assert answer.headers["content-disposition"] == f'attachment; filename="{campaign.name}-report.html"'
    assert "<svg role=" in answer.text
    assert "/hone/" not in re.sub(r"Made by.*", "", answer.text)
    assert [row[:2] for row in Page(answer.text).rows if row[:2] == ["1", "helpdesk@0"]]
    image = await proxy.http.get(f"/hone/campaigns/{campaign.id}/charts/curve.svg?dark=1")
    assert (image.status_code, image.headers["content-type"]) == (200, "image/svg+xml")


async def found(http: httpx.AsyncClient, address: str) -> httpx.Response | None:
    answer = await http.get(address)
    return answer if answer.status_code == 200 else None


def shown(given: CampaignReport) -> str:
    return render_results(fit_report(given), {})


def test_hostile_transcripts_are_text() -> None:
    hostile = "<img src=x onerror=alert(1)>@1"
    html = shown(report(2, hostile, said=CORPUS[:16]))
    assert "<img" not in html
    assert "<script" not in html
    assert clean(hostile).replace("<", "&lt;").replace(">", "&gt;") in html


@pytest.mark.parametrize("text", ["&" * 1500, "word " * 300, "\u202e" * 1500], ids=["escaped", "words", "invisible"])
def test_the_longest_report_fits_on_a_page(text: str) -> None:
    """Three pairs and an alarm's conversations of sixteen long messages each."""
    long = report(400, "helpdesk@3", said=(text,) * 16)
    [alarm] = long.alarms
    long = replace(
        long,
        alarms=[
            *[replace(alarm, alarm=replace(alarm.alarm, detail=text), conversations=())] * 19,
            replace(alarm, conversations=list(alarm.conversations) * 3),
        ],
        pairs=list(long.pairs) * 3,
    )
    fit = fit_report(long)
    texts = [each.text for pair in fit.pairs for each in (*pair.before.messages, *pair.after.messages)]
    assert min(map(len, texts)) > 0
    assert sum(len(clean(each)) for each in texts) <= ROOM_BYTES
    assert len(shown(long).encode()) < PAGE_BYTES - 10_000
    assert "12 older alarms, which the downloaded file has" in fit.notes


def test_a_short_report_is_whole() -> None:
    given = report(2)
    assert fit_report(given) == given
