"""One campaign on every face: report, API, pages, status and trackers show the same attempts, mean and interval."""

from __future__ import annotations

import io
import json
from dataclasses import asdict, dataclass
from typing import Any

import pytest
from rich.console import Console

from proxy.commands.status import _learning
from recorder.queue import campaigns
from recorder.queue.campaigns import CampaignView
from recorder.queue.training import steps
from recorder.report import terminal
from recorder.report.contents import gather_report
from recorder.report.page import render_page
from recorder.store import ledger
from recorder.store.ledger import LedgerRow
from recorder.views.campaigns.events import BEGUN, STEP, CampaignBegun, CampaignMeasure, StepDone, encode_event
from tests.proxy.dashboard.reading import Page, opened
from tests.proxy.running import PROJECT, Proxy
from tests.recorder.learning import Learned
from trainer.progress import event_text
from trainer.trackers.event_figures import event_entry

pytestmark = pytest.mark.slow

# 8 of the 16 attempts that ended by themselves succeeded, and 16 more errored.
STEP_DONE = StepDone(1, "helpdesk@1", "helpdesk@0", 0.5, 0.4, None, None, None, 32, 16, 10)
INTERVAL = {"low": 0.280, "high": 0.720}


@dataclass
class RunningCampaign:
    """The campaign, whose first step is done."""

    proxy: Proxy
    campaign: CampaignView


@pytest.fixture
async def run_campaign(proxy: Proxy) -> RunningCampaign:
    learned = Learned(proxy.store, proxy.alias.id)
    id_ = await learned.campaign(target=0.9)
    rows = [
        LedgerRow(PROJECT, "campaign", id_, BEGUN, encode_event(CampaignBegun(0, measure=CampaignMeasure.SUCCESS))),
        LedgerRow(PROJECT, "campaign", id_, STEP, encode_event(STEP_DONE)),
    ]
    async with proxy.store.write() as conn:
        await ledger.write_rows(conn, rows)
    return RunningCampaign(proxy, await campaigns.get_campaign(proxy.store, id_))


def rounded(ends: dict[str, float]) -> dict[str, float]:
    return {name: round(ends[name], 3) for name in ("low", "high")}


def assert_api(measure: dict[str, Any]) -> None:
    """A measure as the API gives it."""
    assert (measure["kind"], measure["value"], measure["of"], measure["errored"]) == ("success", 0.5, 16, 16)
    assert rounded(measure["interval"]) == INTERVAL


async def test_the_report_as_json_as_text_and_as_a_page(run_campaign: RunningCampaign) -> None:
    report = await gather_report(run_campaign.proxy.store, run_campaign.campaign)
    [point] = json.loads(json.dumps(asdict(report)))["own"]
    assert (point["value"], point["attempts"], point["errored"]) == (0.5, 16, 16)
    assert rounded(point) == INTERVAL
    out = io.StringIO()
    Console(file=out, width=200).print(terminal.report_text(report))
    assert "1 helpdesk@0 50.0 % 28.0 % to 72.0 % 16 16" in " ".join(out.getvalue().split())
    [row] = [row for row in Page(render_page(report)).rows if row[:2] == ["1", "helpdesk@0"]]
    assert row[3:7] == ["50.0 %", "28.0 % to 72.0 %", "16", "16"]


async def test_the_api_and_its_status(run_campaign: RunningCampaign) -> None:
    [campaign] = (await run_campaign.proxy.http.get("/hone/v1/training")).json()["campaigns"]
    [measured] = campaign["measured"]
    assert measured["version"] == "helpdesk@0"
    assert_api(measured["measure"])
    [running] = (await run_campaign.proxy.http.get("/hone/v1/status")).json()["campaigns"]
    assert running == campaign


async def test_the_pages(run_campaign: RunningCampaign) -> None:
    training = await opened(run_campaign.proxy.http, "/hone/training")
    assert "after step 1: 50% 28% to 72% of 16, errored 16" in " ".join(training.text.split())
    home = await opened(run_campaign.proxy.http, "/hone/")
    assert "success 50% 28% to 72% of 16, errored 16, by helpdesk@0" in " ".join(home.text.split())


async def test_the_status_in_a_terminal(run_campaign: RunningCampaign) -> None:
    found = (await run_campaign.proxy.http.get("/hone/v1/status")).json()
    [row] = [row for row in _learning(found) if row[0] == "campaign"]
    assert row[1] == (
        "orders (helpdesk): 0 of at most 20 steps",
        "success 50.0 % (28.0 % to 72.0 %) of 16 attempts, 16 errored by helpdesk@0",
    )


def test_a_tracker_and_the_line_of_a_running_campaign() -> None:
    sent = event_entry(STEP_DONE)
    assert sent is not None
    figures = {name.removeprefix("step/"): value for name, value in sent.figures.items()}
    assert (figures["success"], figures["measured"], figures["errored"]) == (0.5, 16, 16)
    assert rounded({"low": figures["success_low"], "high": figures["success_high"]}) == INTERVAL
    assert event_text(STEP_DONE).plain.endswith("success 28.0 % to 72.0 % of 16 attempts; 16 of 32 attempts errored")


async def test_a_step_of_the_trainer_is_told_with_what_its_campaign_writes_of_it_when_it_is_over(
    run_campaign: RunningCampaign,
) -> None:
    learned = Learned(run_campaign.proxy.store, run_campaign.proxy.alias.id)
    await steps.begin_step(
        run_campaign.proxy.store, run_campaign.proxy.alias.id, await learned.live(), run_campaign.campaign.id
    )
    [step] = (await run_campaign.proxy.http.get("/hone/v1/steps")).json()
    assert step["measure"] is None
    row = LedgerRow(PROJECT, "campaign", run_campaign.campaign.id, STEP, encode_event(STEP_DONE))
    async with run_campaign.proxy.store.write() as conn:
        await ledger.write_rows(conn, [row])
    [step] = (await run_campaign.proxy.http.get("/hone/v1/steps")).json()
    assert_api(step["measure"])
    page = await opened(run_campaign.proxy.http, "/hone/training")
    [cells] = [cells for cells in page.rows if cells[:2] == ["1", "running"]]
    assert cells[11] == "success 50% 28% to 72% of 16, errored 16"
