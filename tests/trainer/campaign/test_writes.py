"""A campaign whose agent uses tools of a real gateway: those that may write are kept from it, and it says so."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from proxy.settings.mcp import McpServerSettings
from recorder.queue import campaigns
from recorder.report.contents import find_campaign, gather_report
from recorder.store.database import Project
from tests.proxy.fake_engine import FakeEngine
from tests.proxy.mcp_everything import Everything, served
from tests.proxy.running import serving
from tests.trainer.ring import PROJECT, RecordedProgress, Ring
from trainer.errors import CampaignError

pytestmark = pytest.mark.slow

# Lists its tools at its own address, calls two of them, and then asks its model.
AGENT = """
import os
from urllib.parse import urlsplit

from mcp.client import Client

import my_agent

async def run(task):
    address = urlsplit(task.base_url).path.removesuffix("/v1")
    async with Client(os.environ["GATEWAY"] + address + "/mcp") as tools:
        names = [tool.name for tool in (await tools.list_tools()).tools]
        assert "desk__find_order" in names
        await tools.call_tool("desk__find_order", {"order_id": "1"})
        written = await tools.call_tool("desk__slow", {})
        assert written.is_error == ("desk__slow" not in names)
    return await my_agent.run(task)

async def broken(task):
    raise ValueError("it never gets that far")
"""


async def test_tools_that_may_write_are_kept_from_attempts_until_the_campaign_allows_them(
    ring: Ring, data: Path, user: dict[str, Any], told: RecordedProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    (user["cwd"] / "with_tools.py").write_text(AGENT)
    everything = Everything("desk")
    everything.gate.set()
    given = user | {"agent": "with_tools:run", "agent_env": ["GATEWAY"], "steps": 1, "val_scenarios": None}
    async with (
        served(everything) as url,
        FakeEngine() as engine,
        serving(ring.store, engine, base="base", mcp={"desk": McpServerSettings(url=url)}) as proxy,
    ):
        monkeypatch.setenv("GATEWAY", proxy.url)
        await ring.train(given, told)
        assert {sent["name"] for sent in everything.seen} == {"find_order"}
        [left_out] = [text for text in told.warnings() if "read-only: " in text]
        assert "desk__slow" in left_out
        assert "desk__find_order" not in left_out
        assert "--allow-writes" in left_out
        assert "8 calls of such tools were refused in this campaign's attempts" in told.warnings()
        report = await gather_report(ring.store, await find_campaign(Project(ring.store, PROJECT), None))
        assert "desk__slow" in report.withheld.tools
        assert report.withheld.refused_calls == 8

        # another is begun without them, breaks, and is gone on with: its second step has them
        with pytest.raises(CampaignError):
            await ring.train(given | {"agent": "with_tools:broken"}, RecordedProgress(), fresh=True)
        again = RecordedProgress()
        changed = {"agent": "with_tools:run", "allow_writes": True, "steps": 2}
        await ring.train(changed, again, resume="train")
    assert [text for text in again.warnings() if "read-only" in text or "refused" in text] == []
    assert [sent["name"] for sent in everything.seen].count("slow") > 0
    newest = await campaigns.find_campaign(Project(ring.store, PROJECT), "train")
    assert newest is not None
    assert newest.settings["allow_writes"] is True
