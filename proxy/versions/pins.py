"""Pins: which version a new trajectory gets, whether a pin holds, and what engines must keep loaded.

Owns: these rules, as pure functions on views. Refuses: I/O and clocks.

A pin holds while its version is live, the canary, held back, or a recent ancestor of the live one. A version that
was rolled back is not an ancestor of the new live one, so its trajectories move at once.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from hashlib import blake2b

from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import VersionState

# States in which an engine may be asked for a version (it must hold it too).
SERVABLE = (VersionState.LOADED, VersionState.GATED, VersionState.CANARY, VersionState.LIVE, VersionState.RETIRED)

Versions = Mapping[str, VersionView]


def draw_version(alias: AliasView, key: str, held: str | None = None) -> str | None:
    """Return the version id for a new group or trajectory named `key`: the canary's for its share, that of the `held`
    back version for its share of the rest, else the live one.

    The same key draws the same version for the same canary and live version, on every proxy.
    """
    canary, live = alias.canary_version_id, alias.live_version_id
    if canary is not None and _drawn(canary, key) < alias.canary_share:
        return canary
    return held if held is not None and _drawn(f"held\0{live}", key) < alias.holdback_share else live


def _drawn(by: str, key: str) -> float:
    """A uniform number in 0..1 from a hash, equal on every proxy."""
    return int.from_bytes(blake2b(f"{by}\0{key}".encode(), digest_size=8).digest()) / 2**64


def holdback_version(alias: AliasView, at: float) -> str | None:
    """Return the version id that a share of new trajectories stays on at a time of the database's clock; None: none."""
    return alias.previous_version_id if alias.watched_until is not None and at < alias.watched_until else None


def steps_behind(version_id: str, live_id: str, versions: Versions) -> int | None:
    """Return how many steps `version_id` lies back in the live version's ancestry; None if it is not an ancestor."""
    at: str | None = live_id
    for steps in range(len(versions) + 1):
        if at == version_id:
            return steps
        if at is None or at not in versions:
            return None
        at = versions[at].parent_id
    return None


def is_pin_valid(version: VersionView, alias: AliasView, versions: Versions, max_age: int) -> bool:
    """Whether a trajectory pinned to `version` stays on it. Otherwise it moves to the live version and is mixed."""
    if version.alias_id != alias.id:
        return False
    if version.id in (alias.live_version_id, alias.canary_version_id, _watched(alias)):
        return True
    if alias.live_version_id is None or version.state != VersionState.RETIRED:
        return False
    behind = steps_behind(version.id, alias.live_version_id, versions)
    return behind is not None and behind <= max_age


def _watched(alias: AliasView) -> str | None:
    """The version id that the live one is compared with, until the controller ends the watch."""
    return alias.previous_version_id if alias.watched_until is not None else None


def adapters_to_keep(
    aliases: Iterable[AliasView], versions: Versions, pinned: Collection[str], *, max_loras: int, max_age: int
) -> list[VersionView]:
    """Return the adapters that engines should hold: live ones, canaries and the newest one before its gate; then, up to
    `max_loras - 1` in all, those that are held back, those of a rollback and the newest that trajectories are pinned
    to.

    One slot stays free, so that the next version can be loaded before an old one is unloaded.
    """
    aliases = list(aliases)
    keep = {v.id: v for alias in aliases for v in _needed(alias, versions)}
    optional = [v for alias in aliases for v in _adapters(alias, versions) if v.id == _watched(alias)]
    optional += [v for alias in aliases for v in _optional(alias, versions, pinned, max_age) if v not in optional]
    optional = [v for v in optional if v.id not in keep]
    for version in optional[: max(0, max_loras - 1 - len(keep))]:
        keep[version.id] = version
    return list(keep.values())


def is_needed(version: VersionView, alias: AliasView, versions: Versions) -> bool:
    """Whether engines always hold a version, except while they start or load it."""
    return version in _needed(alias, versions)


def _needed(alias: AliasView, versions: Versions) -> list[VersionView]:
    own = _adapters(alias, versions)
    waiting = [v for v in own if v.state in (VersionState.LOADED, VersionState.GATED)]
    return [v for v in own if v.id in (alias.live_version_id, alias.canary_version_id)] + waiting[-1:]


def _optional(alias: AliasView, versions: Versions, pinned: Collection[str], max_age: int) -> list[VersionView]:
    """The version of a rollback, then pinned ones, the newest first."""
    own = _adapters(alias, versions)
    previous = [v for v in own if v.id == alias.previous_version_id]
    held = [v for v in own if v.id in pinned and v not in previous and is_pin_valid(v, alias, versions, max_age)]
    return previous + held[::-1]


def _adapters(alias: AliasView, versions: Versions) -> list[VersionView]:
    """An alias's versions with an adapter, by number."""
    return sorted((v for v in versions.values() if v.alias_id == alias.id and v.number > 0), key=lambda v: v.number)
