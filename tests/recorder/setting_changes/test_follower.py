"""Changes in the store: who made which, what holds, and that every program that follows sees it and is woken."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import pytest

from proxy.settings.hone import HoneSettings
from recorder.errors import Conflict, NotFound, SettingInvalid
from recorder.registry.keys import create_key
from recorder.setting_changes import actions, follower
from recorder.setting_changes.change_rows import list_changes, read_changes, write_change
from recorder.setting_changes.changeable_settings import PAUSED
from recorder.setting_changes.follower import SettingsFollower
from recorder.settings import LearnSettings
from recorder.store.database import Project, Store
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT

pytestmark = pytest.mark.slow

STEPS = "learn.steps_per_hour"
STARTED = HoneSettings(learn=LearnSettings(steps_per_hour=4))


def following(store: Store, settings: HoneSettings = STARTED) -> SettingsFollower:
    return SettingsFollower(Project(store, PROJECT), settings)


@pytest.fixture
async def other_store(store: Store) -> AsyncIterator[Store]:
    """The same database, as another process has it."""
    opened = Store(store.url)
    yield opened
    await opened.close()


async def test_two_programs_see_a_change_and_its_undo(
    store: Store, other_store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(follower, "LOOK_S", 3600.0)  # only the signal of the change may wake them
    programs = [following(store), following(other_store)]
    seen = [asyncio.Event() for _ in programs]

    async def all_see(steps_per_hour: int | None) -> None:
        for program, event in zip(programs, seen, strict=True):
            await event.wait()
            event.clear()
            assert program.learn.steps_per_hour == steps_per_hour

    async with AsyncExitStack() as stack:
        for program, event in zip(programs, seen, strict=True):
            await stack.enter_async_context(program.running())
            stack.enter_context(program.telling(event.set))
        by = following(other_store)
        async with asyncio.timeout(30):
            await actions.set_value(by, STEPS, 9, "somebody")
            await all_see(9)
            await actions.set_value(by, STEPS, "", "somebody")
            await all_see(None)
            await actions.undo(by, STEPS, "somebody")
            await all_see(4)


async def test_a_change_says_who_when_before_and_after(store: Store) -> None:
    project = Project(store, PROJECT)
    key, _ = await create_key(project, "ops <i>", ["admin"])
    one = following(store)
    await actions.set_value(one, STEPS, "7", key.id)
    await actions.set_value(one, STEPS, 8, "somebody")
    change = one.changes[STEPS]
    assert (change.before, change.after, change.by, change.number) == (7, 8, "somebody", 2)
    await actions.undo(one, STEPS, key.id)
    assert one.changes == await read_changes(project) == {}
    told = [(c.number, c.by, c.before, c.after, c.undone) for c in await list_changes(project)]
    assert sorted(told) == [
        (1, "ops <i>", 4, 7, False), (2, "somebody", 7, 8, False), (3, "ops <i>", 8, 4, True),
    ]  # fmt: skip


async def test_a_program_that_starts_later_has_the_change_from_the_start(store: Store) -> None:
    await actions.set_value(following(store), STEPS, 2, "somebody")
    late = following(store)
    async with late.running():
        assert late.learn.steps_per_hour == 2


async def test_a_bad_value_an_unknown_setting_and_a_missing_change_store_nothing(store: Store) -> None:
    one = following(store)
    for bad in (0, "x", "1e999", [1]):
        with pytest.raises(SettingInvalid, match="steps_per_hour"):
            await actions.set_value(one, STEPS, bad, "somebody")
    with pytest.raises(SettingInvalid, match="finite"):
        await actions.set_value(one, "learn.max_age_s", "inf", "somebody")
    with pytest.raises(SettingInvalid, match="finite"):
        await actions.set_value(one, STEPS, str(2**70), "somebody")
    with pytest.raises(NotFound):
        await actions.set_value(one, "proxy.port", 1, "somebody")
    with pytest.raises(Conflict, match="no change to undo"):
        await actions.undo(one, STEPS, "somebody")
    assert await list_changes(Project(store, PROJECT)) == []


async def test_a_stored_change_that_no_longer_fits_is_left_out_and_can_be_undone(store: Store) -> None:
    project = Project(store, PROJECT)
    await write_change(project, "aliases.gone.promote", before="gate", after="manual", who="somebody")
    await write_change(project, STEPS, before=4, after=5, who="somebody")
    one = following(store)
    await one.refresh()
    assert one.learn.steps_per_hour == 5
    assert "no alias 'gone'" in one.refused["aliases.gone.promote"]
    await actions.undo(one, "aliases.gone.promote", "somebody")
    assert one.refused == {}


async def test_projects_have_their_own_changes(store: Store, rows: Rows) -> None:
    await actions.set_value(following(store), STEPS, 9, "somebody")
    async with store.write() as conn:
        from sqlalchemy import insert, select

        from recorder.store.schema import projects

        row = dict((await conn.execute(select(projects))).mappings().one())
        await conn.execute(insert(projects).values(row | {"id": "other"}))
    other = SettingsFollower(Project(store, "other"), STARTED)
    await other.refresh()
    assert other.learn.steps_per_hour == 4


@pytest.mark.parametrize("by_file", [False, True])
async def test_learning_is_paused_and_resumed_whatever_the_file_says(store: Store, by_file: bool) -> None:
    one = following(store, HoneSettings(learn=LearnSettings(paused=by_file)))
    for paused in (True, False, False, True):
        await actions.set_paused(one, paused=paused, who="somebody")
        assert one.learn.paused == paused
        assert (one.pause is not None) == (paused and not by_file)
        assert (PAUSED in one.changes) == (paused != by_file)
