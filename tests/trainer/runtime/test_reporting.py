"""A campaign that ends leaves its report behind; one that cannot be written changes nothing about its end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from recorder.views.campaigns.events import CampaignEnded
from tests.recorder.report.played import climbed, played
from tests.stores import Stores
from tests.trainer.ring import RecordedProgress, Ring, Script, write_user_folder
from trainer.errors import CampaignError
from trainer.progress import Notice
from trainer.runtime.train import PAGE, leave_report, report_on_failure

pytestmark = pytest.mark.slow  # whole campaigns, and pages


@pytest.fixture
def user(tmp_path: Path) -> dict[str, Any]:
    return write_user_folder(tmp_path / "user")


async def test_a_campaign_tells_what_it_came_to_and_leaves_its_page_behind(
    tmp_path: Path, user: dict[str, Any], stores: Stores
) -> None:
    told, data = RecordedProgress(), tmp_path / "data"
    with stores.made(data) as settings:
        async with Ring.running(data, Script(), settings) as ring:
            await ring.train(user | {"steps": 2}, told)
    page = data / "campaigns" / "train" / PAGE
    assert page.stat().st_mode & 0o777 == 0o600
    html = page.read_text("utf-8")
    assert "all its steps are done" in html
    assert "helpdesk@2" in html
    assert "Before and after" in html  # runs of the first version and of the best, at one scenario
    said, last = told.events[-2:]
    assert isinstance(said, Notice)
    assert str(page) in said.text
    assert isinstance(last, CampaignEnded)  # scripts read it last


async def test_a_failed_campaign_has_its_report_too_and_fails_all_the_same(tmp_path: Path, stores: Stores) -> None:
    told, data = RecordedProgress(), tmp_path / "data"
    (data / "campaigns" / "orders").mkdir(parents=True)
    with stores.made(data) as settings:
        async with played(data, settings) as world:
            await climbed(world, steps=1)
            with pytest.raises(CampaignError):
                async with report_on_failure(world.store, world.campaign, data, told):
                    raise CampaignError("all attempts failed")
    assert (data / "campaigns" / "orders" / PAGE).exists()


async def test_where_the_page_cannot_be_written_that_is_told_and_nothing_is_raised(
    tmp_path: Path, stores: Stores
) -> None:
    told, data = RecordedProgress(), tmp_path / "data"
    with stores.made(data) as settings:
        async with played(data, settings) as world:
            await climbed(world, steps=1)
            await leave_report(world.store, world.campaign, data, told)
    (said,) = told.warnings()
    assert "hone report orders" in said


async def test_what_fails_before_it_began_leaves_nothing(tmp_path: Path, stores: Stores) -> None:
    told, data = RecordedProgress(), tmp_path / "data"
    with stores.made(data) as settings:
        async with played(data, settings) as world:
            with pytest.raises(CampaignError):
                async with report_on_failure(world.store, world.campaign, data, told):
                    raise CampaignError("no base model is known")
    assert told.events == []
    assert not list(data.rglob(PAGE))
