"""The stores that golden files are written from: the rich one that pages show, and one of a campaign's whole story.

Owns: making both in a folder. Refuses: what is asked about them (`tests.golden.faces`).
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorder.queue import campaigns
from recorder.registry.versions import get_version_by_name
from recorder.settings import RecorderSettings
from recorder.states import CampaignState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from recorder.views.campaigns import events
from recorder.views.campaigns.events import VALIDATION, Alarm, CampaignEnded, SettingChanged
from tests.browser import rich
from tests.browser.rich import Rich
from tests.recorder.report.played import Played, climbed, played, validated
from tests.recorder.talk import PROJECT


@dataclass(frozen=True)
class Stores:
    """Data folders, and what is in the rich one."""

    rich: Rich
    campaign: Path
    empty: Path


async def make(folder: Path) -> Stores:
    """All stores, each in a data folder of its own."""
    for name in ("rich", "campaign", "empty"):
        (folder / name).mkdir(mode=0o700)
    made = await rich.make(folder / "rich", long_turns=6)
    await (await open_store(folder / "empty", RecorderSettings(), migrate=True)).close()
    async with played(folder / "campaign") as world:
        await _told(world)
    return Stores(made, folder / "campaign", folder / "empty")


async def _told(world: Played) -> None:
    """A campaign that climbed, had alarms and a changed setting, and ended; scenarios attempted by two versions."""
    await climbed(world, steps=3)
    await world.wrote(VALIDATION, validated(4, 0.3))
    best = await get_version_by_name(Project(world.store, PROJECT), "helpdesk@3")
    for scenario, was, now in (("order-1", 0.5, 0.5), ("order-2", 0.0, 1.0), ("order-3", 0.0, 0.5)):
        runs = await world.attempted(scenario, 0, world.zero, [("no idea", was)])
        await world.attempted(scenario, 3, best, [("at the depot", now), ("hm", 0.0)])
    evidence: list[dict[str, Any]] = [
        {"trajectory": runs[0], "reward": 1.0, "part": "ruler"},
        {"trajectory": "gone", "reward": None},
    ]
    await world.wrote(events.ALARM, Alarm(2, "length_drift", "note", "answers grew"))
    await world.wrote(events.ALARM, Alarm(3, "reward_hacking", "pause", "success fell", evidence=evidence))
    await world.wrote(events.CHANGE, SettingChanged(3, "judge.recipe", "plain", "with rules"))
    await campaigns.finish_campaign(world.store, world.campaign.id, CampaignState.FINISHED, "steps")
    await world.wrote(events.ENDED, CampaignEnded("orders", "steps", "4 steps done", 4, "helpdesk@3", 100.0))
