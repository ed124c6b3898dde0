"""What is told of tools that were kept from a campaign's attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.queue import campaigns
from recorder.registry import tool_permissions
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT, Rows
from tests.stores import Stores, opened
from trainer.progress import Event, Notice
from trainer.runtime.train import WithheldToolsNotifier, notify_withheld


@pytest.fixture
async def store(tmp_path: Path, stores: Stores) -> AsyncIterator[Store]:
    async with opened(stores, tmp_path) as made:
        yield made


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, event: Event) -> None:
        assert isinstance(event, Notice)
        assert event.warning
        self.texts.append(event.text)


async def test_each_tool_is_told_once_with_the_flag(store: Store) -> None:
    alias = await Rows(store).alias()
    campaign = await campaigns.create_campaign(Project(store, PROJECT), alias.id, "mine", {})
    heard = Heard()
    teller = WithheldToolsNotifier(store, campaign.id, heard)
    await teller.look()
    assert heard.texts == []
    await tool_permissions.note_withheld_tools(Project(store, PROJECT), campaign.id, ["refund"])
    await teller.look()
    await teller.look()
    await tool_permissions.note_withheld_tools(Project(store, PROJECT), campaign.id, ["refund", "cancel"])
    await teller.end()
    assert len(heard.texts) == 2
    assert "read-only: refund. " in heard.texts[0]
    assert "--allow-writes" in heard.texts[0]
    assert "read-only: cancel. " in heard.texts[1]


async def test_what_was_left_out_last_is_told_at_the_end(store: Store) -> None:
    alias = await Rows(store).alias()
    campaign = await campaigns.create_campaign(Project(store, PROJECT), alias.id, "mine", {})
    heard = Heard()
    async with notify_withheld(store, campaign.id, heard):
        await tool_permissions.note_withheld_tools(Project(store, PROJECT), campaign.id, ["refund"])
    assert len(heard.texts) == 1
