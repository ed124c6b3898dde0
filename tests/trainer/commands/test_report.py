"""`hone report` as people and scripts call it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from recorder.queue import campaigns
from recorder.settings import RecorderSettings
from recorder.states import CampaignState
from recorder.store.bootstrap import open_store
from tests.proxy.hone_command import hone
from tests.recorder.report.played import climbed, played

pytestmark = pytest.mark.slow  # draws, and makes stores


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A data folder with one campaign, which climbed and is over."""

    async def play() -> None:
        async with played(tmp_path / "data") as world:
            await climbed(world, steps=3)
            await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.FINISHED, "target")

    asyncio.run(play())
    return tmp_path / "data"


def test_a_report_is_shown_and_written_where_it_is_wanted(data: Path, tmp_path: Path) -> None:
    status, out, _ = hone("report", "orders", "--html", str(tmp_path / "orders.html"), "--data", str(data))
    assert status == 0
    assert "the target was reached" in out
    assert out.splitlines()[-1] == f"Wrote {tmp_path / 'orders.html'}."
    assert "helpdesk@3" in (tmp_path / "orders.html").read_text("utf-8")


def test_without_a_name_it_is_the_newest_and_json_is_the_same_for_scripts(data: Path) -> None:
    status, out, _ = hone("report", "--json", "--data", str(data))
    told = json.loads(out)
    assert status == 0
    assert (told["name"], told["best"]["version"], told["status"]["code"]) == ("orders", "helpdesk@3", "target")
    assert [one["step"] for one in told["steps"]] == [1, 2, 3]


def test_where_there_is_no_campaign_that_is_said(tmp_path: Path) -> None:
    async def make() -> None:
        await (await open_store(tmp_path / "data", RecorderSettings(), migrate=True)).close()

    asyncio.run(make())
    status, _, err = hone("report", "--data", str(tmp_path / "data"))
    assert status == 1
    assert "no campaign yet" in err
