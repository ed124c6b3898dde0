"""What happens in a real store is told as it happens, by whoever writes it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

import pytest
from sqlalchemy import update

from proxy.settings.hone import HoneSettings
from proxy.supervision.console import EventPrinter, ProgramLine
from recorder.queue.training import steps
from recorder.queue.training.budgets import HOUR_S
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings
from recorder.store.database import Project, Store
from recorder.store.schema import steps as step_table
from recorder.store.sql import now
from recorder.views.status.stage_facts import GroupForecast
from recorder.views.status.stages import StageStatus
from tests.proxy.until import until
from tests.recorder.rows import PROJECT, Rows


class Heard:
    """What was told."""

    refresh_s: float | None = None

    def __init__(self) -> None:
        self.told: list[tuple[str, str]] = []
        self.waiting: GroupForecast | None = None
        self.stages: Sequence[StageStatus] = ()

    def tell(self, event: str, text: str, facts: Mapping[str, Any] = {}) -> None:
        self.told.append((event, text))

    def programs(self, shown: Sequence[ProgramLine], changed: ProgramLine) -> None:
        raise AssertionError("no program changed")

    def starting(self, shown: Sequence[ProgramLine]) -> None:
        raise AssertionError("no program starts here")

    def waits(self, waiting: GroupForecast, at: float, stages: Sequence[StageStatus] = ()) -> None:
        self.waiting, self.stages = waiting, stages

    def close(self) -> None:
        pass


def following(store: Store, **learn: int) -> SettingsFollower:
    return SettingsFollower(Project(store, PROJECT), HoneSettings(learn=LearnSettings(**learn)))


@pytest.fixture
async def printed_events(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Heard]:
    monkeypatch.setattr("proxy.supervision.console.BATCH_S", 0.01)
    printed_events = Heard()
    task = asyncio.create_task(EventPrinter(Project(store, PROJECT), following(store), printed_events).run())
    await until(lambda: printed_events.waiting)
    yield printed_events
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task


async def test_a_judged_group_is_told_and_what_is_waited_for_with_it(store: Store, printed_events: Heard) -> None:
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id)
    await until(lambda: printed_events.told)
    assert printed_events.told == [("judged", "helpdesk: 1 group judged, 2 trajectories, reward 0.50 (0.00 to 1.00)")]
    await until(lambda: printed_events.waiting is not None and printed_events.waiting.groups == {"scored": 1})


async def test_a_pause_that_ends_is_seen_though_nothing_changed(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxy.supervision.console.BATCH_S", 0.01)
    rows = Rows(store)
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id)
    step = await steps.begin_step(store, alias.id, str(alias.live_version_id))
    async with store.write() as conn:  # it began an hour ago but for a second
        began = update(step_table).where(step_table.c.id == step.id)
        await conn.execute(began.values(started_at=now() - HOUR_S + 1))
    printed_events, follower = Heard(), following(store, steps_per_hour=1)
    task = asyncio.create_task(EventPrinter(Project(store, PROJECT), follower, printed_events).run())
    await until(lambda: "steps_per_hour" in [one.code for one in printed_events.stages])
    await until(lambda: "too_few_groups" in [one.code for one in printed_events.stages])
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
