"""The store's own trouble is told without the store, once by the workers of one proxy, and listed afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from proxy.notifications.store_trouble import MARK, StoreTroubleReporter, TroubleWatch, may_send
from proxy.notifications.target import Target
from recorder.queue.notifications import list_notifications
from recorder.store.database import Project, Store
from tests.proxy.notifications.receiver import Receiver
from tests.proxy.until import until
from tests.recorder.rows import PROJECT


@dataclass
class Health:
    """What a process observes."""

    why: str | None = None
    unrecorded: int = 0

    def watch(self) -> TroubleWatch:
        return TroubleWatch(lambda: self.why, lambda: self.unrecorded)


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store, PROJECT)


def reporter(
    project: Project, target: Target, health: Health, folder: Path | None = None, interval_s: float = 0.0
) -> StoreTroubleReporter:
    return StoreTroubleReporter(project, target, "http://p:8700", health.watch(), folder, 0.01, interval_s)


async def test_trouble_and_its_end_are_told_from_memory_and_listed_afterwards(
    project: Project, receiver: Receiver, target: Target
) -> None:
    health = Health()
    async with reporter(project, target, health).running():
        health.why = "the disk of 5 Elm Street is full"
        await until(lambda: receiver.requests)
        assert await list_notifications(project) == []  # the store is away
        health.why, health.unrecorded = None, 7
        await until(lambda: len(receiver.requests) == 2)

        async def listed() -> bool:
            return len(await list_notifications(project)) == 2

        await until(listed)
    first, second = receiver.messages
    assert first["kind"] == second["kind"] == "store_trouble"
    assert first["what"].startswith("http://p:8700: Calls cannot be recorded")
    assert second["what"] == "http://p:8700: Calls are recorded again."
    assert second["figures"]["unrecorded_calls"] == 7
    assert "Elm" not in repr(receiver.messages)
    assert [one.state for one in await list_notifications(project)] == ["sent", "sent"]


async def test_a_short_trouble_whose_message_waits_becomes_one_message(
    project: Project, receiver: Receiver, target: Target
) -> None:
    health = Health()
    one = reporter(project, target, health, interval_s=3600.0)
    async with one.running():
        health.why = "gone"
        await until(lambda: receiver.requests)
        health.why = None
        await until(lambda: one._episode is None)
        health.why = "gone again"
        await until(lambda: one._episode is not None)
        health.why = None

        async def listed() -> bool:
            return len(await list_notifications(project)) == 3

        await until(listed)
    assert len(receiver.requests) == 1  # the others wait for their minute
    assert sorted(row.state for row in await list_notifications(project)) == ["counted", "counted", "sent"]


async def test_a_receiver_that_is_down_gets_it_later(project: Project, receiver: Receiver, target: Target) -> None:
    receiver.answers = [503, 200]
    health = Health("gone")
    one = reporter(project, target, health)
    async with one.running():
        await until(lambda: receiver.requests)
        await until(lambda: one._waiting and one._waiting[0].row.error)
        one._waiting[0].due = 0.0
        await until(lambda: len(receiver.requests) == 2)
    assert receiver.messages[0]["id"] == receiver.messages[1]["id"]


async def test_workers_that_share_a_folder_send_once(
    project: Project, receiver: Receiver, target: Target, tmp_path: Path
) -> None:
    health = Health("gone")
    first, second = (reporter(project, target, health, tmp_path, 60.0) for _ in range(2))
    async with first.running(), second.running():
        await until(lambda: receiver.requests)
        await until(lambda: first._episode is not None and second._episode is not None)
    assert len(receiver.requests) == 1


def test_a_mark_holds_for_a_minute_and_an_unusable_folder_stops_nobody(tmp_path: Path) -> None:
    assert may_send(tmp_path, 60.0)
    assert not may_send(tmp_path, 60.0)
    (tmp_path / MARK).write_text("12.5")  # long ago
    assert may_send(tmp_path, 60.0)
    (tmp_path / MARK).write_text("torn")
    assert may_send(tmp_path, 60.0)
    assert may_send(tmp_path / "missing", 60.0)
    assert may_send(None, 60.0)
