"""What happens in a real store is told as it happens, by whoever writes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest

from proxy.programs.news import News
from proxy.programs.telling import ProgramLine
from recorder.settings import RecorderSettings
from recorder.store.database import Store
from recorder.store.project import Project
from recorder.telling.waiting import Waiting
from tests.proxy.until import until
from tests.recorder.rows import PROJECT, Rows


class Heard:
    """What was told."""

    refresh_s: float | None = None

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.waiting: Waiting | None = None

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = {}) -> None:
        self.told.append((event, text))

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        raise AssertionError("no program changed")

    def waits(self, waiting: Waiting, at: float) -> None:
        self.waiting = waiting

    def close(self) -> None:
        pass


@pytest.fixture
async def heard(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heard]:
    monkeypatch.setattr("proxy.programs.news.BREATH_S", 0.01)
    heard = Heard()
    task = asyncio.create_task(News(Project(store, PROJECT), RecorderSettings(), heard).run())
    await until(lambda: heard.waiting)
    yield heard
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_judged_group_is_told_and_what_is_waited_for_with_it(store: Store, heard: Heard) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id)
    await until(lambda: heard.told)
    assert heard.told == [("judged", "helpdesk: 1 group judged, 2 runs, reward 0.50 (0.00 to 1.00)")]
    await until(lambda: heard.waiting is not None and heard.waiting.groups == {"scored": 1})
