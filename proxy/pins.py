"""Which version a run is served by: the canary's draw, whether a pin still holds, what the engines must keep loaded.

Owns: these rules (contracts.md, 8), as pure functions on views. Refuses: I/O and clocks.

A pin holds while its version is live, the canary, or a near enough ancestor of the live one. A version that was rolled
back is no ancestor of what is live then, so its runs move at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from recorder.aliases import AliasView
from recorder.states import VersionState
from recorder.versions import VersionView

_SERVABLE = frozenset(
    {VersionState.LOADED, VersionState.GATED, VersionState.CANARY, VersionState.LIVE, VersionState.RETIRED}
)

Versions = Mapping[str, VersionView]


def draw(alias: AliasView, key: str) -> str | None:
    """The version id that a new group or trajectory named `key` begins on: the canary's for its share, else live.

    The same key always draws the same answer for the same canary, on every proxy.
    """
    canary = alias.canary_version_id
    if canary is None or alias.canary_share <= 0:
        return alias.live_version_id
    digest = blake2b(f"{canary}\0{key}".encode(), digest_size=8).digest()
    return canary if int.from_bytes(digest) / 2**64 < alias.canary_share else alias.live_version_id


def steps_behind(version_id: str, live_id: str, versions: Versions) -> int | None:
    """How many steps along the live version's ancestry `version_id` lies back; None when it is no ancestor."""
    at: str | None = live_id
    for steps in range(len(versions) + 1):
        if at == version_id:
            return steps
        if at is None or at not in versions:
            return None
        at = versions[at].parent_id
    return None


def is_servable(version: VersionView) -> bool:
    """Whether an engine may be asked for this version at all (it must hold it too)."""
    return version.number == 0 or version.state in _SERVABLE


def pin_holds(version: VersionView, alias: AliasView, versions: Versions, max_age: int) -> bool:
    """Whether a run pinned to `version` stays on it. Otherwise it moves to the live one and is mixed."""
    if version.alias_id != alias.id:
        return False
    if version.id in (alias.live_version_id, alias.canary_version_id):
        return True
    if alias.live_version_id is None or version.state != VersionState.RETIRED:
        return False
    behind = steps_behind(version.id, alias.live_version_id, versions)
    return behind is not None and behind <= max_age


def needed(alias: AliasView, versions: Versions) -> list[VersionView]:
    """Versions of an alias that every engine must hold: live, canary, the one a rollback goes to, the newest waiting."""
    own = [v for v in versions.values() if v.alias_id == alias.id and v.number > 0]
    waiting = [v for v in own if v.state in (VersionState.LOADED, VersionState.GATED)]
    ids = {alias.live_version_id, alias.canary_version_id, alias.previous_version_id}
    return [v for v in own if v.id in ids] + sorted(waiting, key=lambda v: v.number)[-1:]


def to_keep(
    aliases: Iterable[AliasView], versions: Versions, pinned: Collection[str], *, max_loras: int, max_age: int
) -> list[VersionView]:
    """Adapters the engines should hold: what is needed, then the newest pinned ones, at most `max_loras - 1` in all.

    One slot stays free, so that the next version can be loaded before an old one is unloaded.
    """
    aliases = list(aliases)
    keep = {v.id: v for alias in aliases for v in needed(alias, versions)}
    held = [
        v
        for alias in aliases
        for v in versions.values()
        if v.id in pinned and v.id not in keep and v.number > 0 and pin_holds(v, alias, versions, max_age)
    ]
    for version in sorted(held, key=lambda v: (v.state_at, v.number), reverse=True)[
        : max(0, max_loras - 1 - len(keep))
    ]:
        keep[version.id] = version
    return list(keep.values())
