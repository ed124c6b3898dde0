"""A store with an alias and versions that wait to be promoted."""

from __future__ import annotations

import asyncio
from pathlib import Path

from recorder.registry.aliases import ensure_alias
from recorder.registry.versions import VersionView, allocate_version, mark_version
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store.bootstrap import open_store
from recorder.store.database import Project


def make_versions(data: Path, count: int) -> list[VersionView]:
    """A store with alias helpdesk and `count` gated versions beside version 0."""

    async def make() -> list[VersionView]:
        store = await open_store(data, RecorderSettings(), migrate=True)
        alias = await ensure_alias(Project(store, "default"), "helpdesk", "base", None)
        made = []
        for _ in range(count):
            assert alias.live_version_id is not None
            version = await allocate_version(store, alias.id, alias.live_version_id)
            for state in (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED):
                version = await mark_version(store, version.id, state)
            made.append(version)
        await store.close()
        return made

    return asyncio.run(make())
