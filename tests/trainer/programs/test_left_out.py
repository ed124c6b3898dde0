"""What is told of tools that were kept from a campaign's attempts."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from recorder.registry import writes
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.work import campaigns
from tests.recorder.rows import PROJECT, Rows
from tests.stores import Stores, opened
from trainer.programs.left_out import Teller, telling
from trainer.progress import Event, Said


@pytest.fixture
async def store(tmp_path: Path, stores: Stores) -> AsyncIterator[Store]:
    async with opened(stores, tmp_path) as made:
        yield made


class Heard:
    """Keeps what it is told."""

    def __init__(self) -> None:
        self.texts: list[str] = []

    def tell(self, event: Event) -> None:
        assert isinstance(event, Said)
        assert event.warning
        self.texts.append(event.text)


async def test_each_tool_is_told_once_with_the_flag(store: Store) -> None:
    alias = await Rows(store).alias()
    campaign = await campaigns.create(Project(store, PROJECT), alias.id, "mine", {})
    heard = Heard()
    teller = Teller(store, campaign.id, heard)
    await teller.look()
    assert heard.texts == []
    await writes.note(Project(store, PROJECT), campaign.id, ["refund"])
    await teller.look()
    await teller.look()
    await writes.note(Project(store, PROJECT), campaign.id, ["refund", "cancel"])
    await teller.end()
    assert len(heard.texts) == 2
    assert "read-only: refund. " in heard.texts[0]
    assert "--allow-writes" in heard.texts[0]
    assert "read-only: cancel. " in heard.texts[1]


async def test_what_was_left_out_last_is_told_at_the_end(store: Store) -> None:
    alias = await Rows(store).alias()
    campaign = await campaigns.create(Project(store, PROJECT), alias.id, "mine", {})
    heard = Heard()
    async with telling(store, campaign.id, heard):
        await writes.note(Project(store, PROJECT), campaign.id, ["refund"])
    assert len(heard.texts) == 1
