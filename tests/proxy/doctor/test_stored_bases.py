"""A base that an alias was trained on and that is served no more is told; where nothing was trained yet, it is not."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from proxy.doctor.engines import bases_on_disk, check_stored_bases
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import AliasSettings, EngineSettings
from recorder.base.findings import FindingLevel
from recorder.errors import Conflict
from recorder.registry.aliases import ensure_alias
from recorder.registry.fingerprint import base_fingerprint
from recorder.registry.versions import VersionView, allocate_version, mark_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.database import Project, Store


@pytest.fixture
def settings(tmp_path: Path, store: Store) -> HoneSettings:
    (tmp_path / "base").mkdir()
    (tmp_path / "base" / "model.safetensors").write_text("weights")
    engine = EngineSettings(base=str(tmp_path / "base"), device="cpu")
    recorder = RecorderSettings(url=None if store.is_sqlite else store.url.render_as_string(hide_password=False))
    return HoneSettings(data=tmp_path / "data", engine=engine, aliases={"helpdesk": AliasSettings()}, recorder=recorder)


async def trained(store: Store, fingerprint: str) -> VersionView:
    alias = await ensure_alias(Project(store, "default"), "helpdesk", "base", fingerprint)
    return await allocate_version(store, alias.id, alias.live_version_id or "")


async def test_versions_of_another_base_are_told(store: Store, settings: HoneSettings, tmp_path: Path) -> None:
    await trained(store, "another")
    [found] = await check_stored_bases(store, settings)
    assert found.verdict is FindingLevel.WRONG
    assert "'helpdesk'" in found.found
    with pytest.raises(Conflict, match=re.escape(f"{found.found} {found.todo}")):  # the same words as its engine's
        await ensure_alias(
            Project(store, "default"), "helpdesk", "base", base_fingerprint(tmp_path / "base", "float32")
        )
    assert await bases_on_disk(settings) == [found]


async def test_versions_of_this_base_are_fine(store: Store, settings: HoneSettings, tmp_path: Path) -> None:
    await trained(store, base_fingerprint(tmp_path / "base", "float32"))
    assert await check_stored_bases(store, settings) == []


async def test_an_alias_without_versions_takes_the_new_base(store: Store, settings: HoneSettings) -> None:
    await ensure_alias(Project(store, "default"), "helpdesk", "base", "another")
    assert await check_stored_bases(store, settings) == []


async def test_versions_that_were_rejected_keep_no_base(store: Store, settings: HoneSettings) -> None:
    version = await trained(store, "another")
    await mark_version(store, version.id, VersionState.ABANDONED)
    assert await check_stored_bases(store, settings) == []


async def test_where_there_is_no_store_there_is_nothing_to_say(settings: HoneSettings, tmp_path: Path) -> None:
    fresh = settings.model_copy(update={"data": tmp_path / "none", "recorder": RecorderSettings()})
    assert await bases_on_disk(fresh) == []
    assert not (tmp_path / "none").exists()
