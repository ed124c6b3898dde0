"""What the store says of the base: whether the versions that it has were trained on the one that is served now.

Owns: that comparison. Refuses: changing what an alias's base is (`recorder.registry.aliases`).
"""

from __future__ import annotations

import asyncio

from proxy.engine.command import base_folder, dtype_of
from proxy.settings.hone import HoneSettings
from recorder.errors import NotFound, StoreError
from recorder.findings import Finding, Verdict
from recorder.registry.aliases import get_aliases
from recorder.registry.fingerprint import base_fingerprint
from recorder.registry.versions import list_versions
from recorder.store.database import Store
from recorder.store.migrate import open_store

_BY_URL = "engine-"  # a fingerprint that no weights were read for


async def bases(store: Store, settings: HoneSettings) -> list[Finding]:
    """The declared aliases that have versions of another base. Nothing where the base is not on this disk."""
    folder = base_folder(settings.engine)
    if folder is None:
        return []
    try:
        served = await asyncio.to_thread(base_fingerprint, folder, dtype_of(settings.engine))
    except NotFound as e:
        return [Finding("base", Verdict.WRONG, f"{e}.", "Mend engine.base.")]
    found = []
    for alias in await get_aliases(store, settings.project):
        trained_on = alias.base_fingerprint
        known = trained_on is not None and not trained_on.startswith(_BY_URL)
        if alias.name not in settings.declared_aliases() or not known or trained_on == served:
            continue
        if len(await list_versions(store, alias.id)) > 1:  # the first is the base itself
            found.append(_other_base(alias.name, str(folder)))
    return found


def _other_base(alias: str, folder: str) -> Finding:
    return Finding(
        "base",
        Verdict.WRONG,
        f"the versions of {alias!r} were trained on another base, precision or chat template than {folder} has now.",
        "Put the old one back, or use another alias name, or another --data folder.",
    )


async def bases_on_disk(settings: HoneSettings) -> list[Finding]:
    """The same for a store that is not open; nothing where there is none yet."""
    if settings.recorder.url is None and not (settings.data / "hone.db").exists():
        return []
    try:
        store = await open_store(settings.data, settings.recorder, migrate=False, project=settings.project)
    except StoreError as e:
        return [Finding("store", Verdict.WRONG, str(e))]
    try:
        return await bases(store, settings)
    finally:
        await store.close()
