"""Adapters that are gone, changed, or nobody's are found."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from sqlalchemy import select

from recorder.maintenance.integrity import versions as checks
from recorder.maintenance.integrity.invariants import check_store
from recorder.queue.training import adapter_trials
from recorder.store.database import Project
from recorder.store.schema import aliases, versions
from tests.recorder.maintenance.integrity.sound import Sound

pytestmark = [pytest.mark.slow, pytest.mark.repeats_statements]  # those of test_invariants.py


async def folder(sound: Sound) -> Path:
    return Path((await sound.rows.get(versions, sound.live))["path"])


async def test_a_folder_that_is_gone(sound: Sound) -> None:
    shutil.rmtree(await folder(sound))
    await sound.finds(checks.adapters_of_versions_that_may_serve_are_there, f"version {sound.live}")


async def test_a_folder_that_is_at_the_url_need_not_be_here(sound: Sound) -> None:
    gone = await folder(sound)
    shutil.rmtree(gone)
    found = await check_store(sound.store, sound.data, shared={gone.name})
    assert [one.name for one in found if one.violations] == []


async def test_a_folder_that_was_replaced(sound: Sound) -> None:
    (await folder(sound) / "manifest.json").write_text("another")
    await sound.finds(checks.adapters_of_versions_that_may_serve_are_there, f"version {sound.live}")


async def test_a_folder_that_no_version_has(sound: Sound) -> None:
    stray = sound.data / "adapters" / "helpdesk@9-0123456789ab"
    stray.mkdir()
    (sound.data / "adapters" / ".unfinished-helpdesk-0123456789abcdef").mkdir()  # a trainer's, at work
    tried = sound.data / "adapters" / "helpdesk@trial-0123456789ab"
    tried.mkdir()
    async with sound.rows.store.read() as conn:
        alias = (await conn.execute(select(aliases))).first()
    assert alias is not None
    trial = await adapter_trials.begin_trial(Project(sound.rows.store, alias.project_id), alias.id)
    await adapter_trials.offer_trial(
        sound.rows.store, trial, engine_name=tried.name, path=str(tried), manifest_sha256="0" * 64
    )
    await sound.finds(checks.every_folder_has_a_version, f"folder {stray}")
