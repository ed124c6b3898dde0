"""Check whether the stored versions were trained on the base model that is served now.

Refuses: changing the base model of an alias (`recorder.registry.aliases`).
"""

from __future__ import annotations

import asyncio

from proxy.engine.command import base_folder, dtype_of
from proxy.settings.hone import HoneSettings
from proxy.settings.sections import base_name
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import NotFound, StoreError
from recorder.registry.aliases import get_aliases, other_base
from recorder.registry.fingerprint import base_fingerprint
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store

_BY_URL = "engine-"  # the prefix of fingerprints made without reading weights


async def check_stored_bases(store: Store, settings: HoneSettings) -> list[Finding]:
    """Findings for declared aliases with versions of another base; none if the base is not on this disk."""
    folder = base_folder(settings.engine)
    if folder is None:
        return []
    try:
        served = await asyncio.to_thread(base_fingerprint, folder, dtype_of(settings.engine))
    except NotFound as e:
        return [Finding("base", FindingLevel.WRONG, f"{e}.", "Correct engine.base.")]
    findings = []
    declared, default = settings.declared_aliases(), base_name(settings.engine)
    for alias in await get_aliases(Project(store, settings.project)):
        if alias.name not in declared or (alias.base_fingerprint or _BY_URL).startswith(_BY_URL):
            continue
        base_model = declared[alias.name].base_model or default or alias.name
        if other := await other_base(store, alias, base_model, served):
            findings.append(Finding("base", FindingLevel.WRONG, other.found, other.todo))
    return findings


async def bases_on_disk(settings: HoneSettings) -> list[Finding]:
    """`check_stored_bases` with a store that it opens itself; none if there is no store yet."""
    if settings.recorder.url is None and not (settings.data / "hone.db").exists():
        return []
    try:
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    except StoreError as e:
        return [Finding("store", FindingLevel.WRONG, str(e))]
    try:
        return await check_stored_bases(store, settings)
    finally:
        await store.close()
