"""The program that sends: from a decision in the store to a receiver, by one of several proxies, over restarts."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from sqlalchemy import update

from proxy.notifications.notifier import Notifier, Pace
from proxy.notifications.target import Target
from recorder.errors import StoreUnavailable
from recorder.queue.leases import holder_name
from recorder.queue.notifications import list_notifications, load_cursor
from recorder.registry.aliases import AliasView
from recorder.registry.learning_health import LearningHealth, RuleSignal, write_health
from recorder.store import schema
from recorder.store.database import Project, Store
from recorder.views.status.project import Status
from tests.proxy.notifications.conftest import target_of
from tests.proxy.notifications.receiver import SECRET, Receiver
from tests.proxy.until import until
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.views.notices.test_conditions import DOWN, a_status

QUICK = Pace(look_s=0.02, conditions_s=1e9, interval_s=0.0)


@pytest.fixture
def project(store: Store) -> Project:
    return Project(store, PROJECT)


@pytest.fixture
async def alias(store: Store) -> AliasView:
    return await Rows(store).alias()


async def no_status() -> Status:
    raise StoreUnavailable("nobody asks")


def notifier(project: Project, target: Target, pace: Pace = QUICK) -> Notifier:
    return Notifier(project, target, holder_name(), no_status, pace=pace)


@asynccontextmanager
async def running(*notifiers: Notifier) -> AsyncIterator[None]:
    """Notifiers of which one has begun to follow the ledger."""
    async with AsyncExitStack() as stack:
        for one in notifiers:
            await stack.enter_async_context(one.running())
        await until(lambda: any(one.rounds for one in notifiers))
        yield


async def signal(project: Project, alias: AliasView, step: int) -> None:
    """An event of kind alarm."""
    rule = RuleSignal("entropy", "note", "", {})
    await write_health(project.store, alias, LearningHealth(alias.name, step, [rule]))


async def rounds(one: Notifier, count: int = 3) -> None:
    """So many further rounds."""
    done = one.rounds + count
    await until(lambda: one.rounds >= done)


async def states(project: Project) -> list[str]:
    return [one.state for one in reversed(await list_notifications(project))]


async def test_a_decision_reaches_the_receiver_once(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    one = notifier(project, target)
    async with running(one):
        await signal(project, alias, 3)
        await until(lambda: receiver.requests)
        await rounds(one)
    assert [message["what"] for message in receiver.messages] == [
        "entropy: a health rule signals in learning of helpdesk, at step 3."
    ]
    assert receiver.messages[0]["link"] == "http://hone.example.com:8700/hone/training"
    assert await states(project) == ["sent"]


async def test_two_proxies_send_once_and_the_other_continues(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    first, second = notifier(project, target), notifier(project, target)
    async with AsyncExitStack() as of_first:
        await of_first.enter_async_context(running(first))
        async with second.running():
            for step in range(3):
                await signal(project, alias, step)
                await until(lambda step=step: len(receiver.requests) > step)  # type: ignore[misc]  # bound in the loop
            assert not second.rounds
            await of_first.aclose()
            await signal(project, alias, 3)
            await until(lambda: len(receiver.requests) == 4)
            await rounds(second)
    assert len({message["id"] for message in receiver.messages}) == len(receiver.messages) == 4


async def test_a_restart_neither_loses_nor_repeats(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    async with running(notifier(project, target)):
        await signal(project, alias, 1)
        await until(lambda: receiver.requests)
    await signal(project, alias, 2)  # while none runs
    after = notifier(project, target)
    async with running(after):
        await until(lambda: len(receiver.requests) == 2)
        await rounds(after)
    assert [message["what"][-7:] for message in receiver.messages] == ["step 1.", "step 2."]


async def test_what_happens_within_a_minute_is_one_message_that_counts(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    await load_cursor(project)
    for step in range(1, 5):
        await signal(project, alias, step)
    one = notifier(project, target, Pace(look_s=0.02, conditions_s=1e9))
    async with running(one):
        await until(lambda: receiver.requests)
        await signal(project, alias, 5)
        await rounds(one)
        await signal(project, alias, 6)
        await rounds(one)
        assert [(m["what"][-7:], m["omitted"]) for m in receiver.messages] == [("step 4.", 3)]
        async with project.store.write() as conn:  # a minute later
            table = schema.notifications
            await conn.execute(update(table).values(tried_at=table.c.tried_at - 61))
        await until(lambda: len(receiver.requests) == 2)
    assert [(m["what"][-7:], m["omitted"]) for m in receiver.messages][1] == ("step 6.", 1)


async def test_a_receiver_that_fails_gets_the_same_message_again(
    project: Project, alias: AliasView, receiver: Receiver, target: Target, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "proxy")
    receiver.answers = [500, 200]
    one = notifier(project, target)
    async with running(one):
        await signal(project, alias, 1)
        await until(lambda: receiver.requests)
        await rounds(one)
        (listed,) = await list_notifications(project)
        assert (listed.state, listed.tries, listed.error) == ("waiting", 1, f"{target.host} answered 500")
        async with project.store.write() as conn:
            await conn.execute(update(schema.notifications).values(try_after=0.0))
        await until(lambda: len(receiver.requests) == 2)
        await until(_all_sent(project))
    assert receiver.messages[0] == receiver.messages[1]
    assert "was not sent" in caplog.text
    assert "private-path" not in caplog.text
    assert SECRET not in caplog.text


def _all_sent(project: Project) -> Callable[[], Coroutine[None, None, bool]]:
    async def look() -> bool:
        return set(await states(project)) == {"sent"}

    return look


async def test_a_receiver_that_refuses_is_not_asked_again(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    receiver.answers = [302, 200]
    one = notifier(project, target)
    async with running(one):
        await signal(project, alias, 1)
        await until(lambda: receiver.requests)
        await rounds(one)
    assert await states(project) == ["failed"]
    assert len(receiver.requests) == 1


async def test_a_slow_receiver_delays_no_shutdown_and_gets_the_message_later(
    project: Project, alias: AliasView, receiver: Receiver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("proxy.notifications.notifier.STOP_S", 0.05)
    receiver.hangs = True
    async with running(notifier(project, target_of(receiver.url, timeout_s=20))):
        await signal(project, alias, 1)
        await until(lambda: receiver.requests)
    assert await states(project) == ["waiting"]
    receiver.hangs = False
    async with project.store.write() as conn:
        await conn.execute(update(schema.notifications).values(try_after=0.0))
    async with running(notifier(project, target_of(receiver.url))):
        await until(_all_sent(project))
    assert len({message["id"] for message in receiver.messages}) == 1


async def test_conditions_are_told_when_they_begin(project: Project, receiver: Receiver, target: Target) -> None:
    now = [a_status(engines=[DOWN])]

    async def load() -> Status:
        return now[0]

    one = Notifier(project, target, holder_name(), load, pace=Pace(0.02, 0.0, 0.0))
    async with running(one):
        await until(lambda: receiver.requests)
        await rounds(one)
        now[0] = a_status()
        await rounds(one)
        now[0] = a_status(engines=[DOWN])
        await until(lambda: len(receiver.requests) == 2)
        await rounds(one)
    assert [message["what"] for message in receiver.messages] == ["Engine http://e:8000 is down."] * 2


async def test_a_kind_that_is_not_wanted_is_not_told(project: Project, alias: AliasView, receiver: Receiver) -> None:
    one = notifier(project, target_of(receiver.url, kinds=["version_live"]))
    async with running(one):
        await signal(project, alias, 1)
        await rounds(one)
    assert receiver.requests == []
    assert await list_notifications(project) == []


async def test_a_status_that_cannot_be_read_ends_nothing(
    project: Project, alias: AliasView, receiver: Receiver, target: Target
) -> None:
    one = notifier(project, target, Pace(look_s=0.02, conditions_s=0.3, interval_s=0.0))
    async with running(one):
        await signal(project, alias, 1)
        await until(lambda: receiver.requests)
