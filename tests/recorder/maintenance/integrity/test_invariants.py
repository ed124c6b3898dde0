"""What Hone itself leaves is sound; the checks see whole tables, and twice where something seems wrong."""

from __future__ import annotations

import pytest

from recorder.maintenance.deletion import delete_trajectory
from recorder.maintenance.integrity import reader
from recorder.maintenance.integrity.invariants import CHECKS, check_store
from recorder.store.database import Project
from recorder.store.sql import now
from tests.recorder.maintenance.integrity.sound import Sound
from tests.recorder.rows import PROJECT
from tests.recorder.talk import user

pytestmark = pytest.mark.slow


async def test_what_hone_leaves_is_sound(sound: Sound) -> None:
    assert await sound.broken() == {}


async def test_it_is_sound_while_something_runs(sound: Sound) -> None:
    await sound.talk.call([user("still open")], "an answer")
    await sound.rows.group(state="judging", lease_owner="judge", lease_expires_at=now() + 60)
    assert await sound.broken() == {}


@pytest.mark.parametrize("how", ["live", "canary", "unloadable", "bad"])
async def test_it_is_sound_however_a_version_is_decided(sound: Sound, how: str) -> None:
    await sound.line.decide(how)
    assert await sound.broken() == {}


async def test_it_is_sound_after_a_rollback_and_a_deletion(sound: Sound) -> None:
    await sound.line.decide("live")
    await sound.line.roll_back()
    await delete_trajectory(Project(sound.store, PROJECT), sound.runs[0])
    assert await sound.broken() == {}


async def test_rows_are_walked_in_pages(sound: Sound, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = {one.name: one.rows for one in await check_store(sound.store, sound.data)}
    monkeypatch.setattr(reader, "PAGE", 2)
    assert {one.name: one.rows for one in await check_store(sound.store, sound.data)} == whole
    assert await sound.broken() == {}


def test_every_check_has_a_title_of_its_own() -> None:
    titles = [(check.__doc__ or "").splitlines()[0] for check in CHECKS]
    assert all(titles)
    assert len(set(titles)) == len(CHECKS)
