"""Invariants of versions, steps and adapters: one line of accepted versions, pointers that agree with states, no
unfinished versions without a step, and exactly the published adapter folders on disk.

Refuses: what was trained on (`recorder.maintenance.integrity.groups`), and an adapter's content, which its loader
checks.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Final

from sqlalchemy import ColumnElement, exists, literal, or_, select

from recorder.maintenance.integrity.reader import CheckReader, Violation, Violations
from recorder.queue.leases import trainer_lease
from recorder.states import UNDECIDED, StepState, VersionState
from recorder.store.schema import adapter_trials, aliases, leases, steps, versions
from recorder.store.schema import ledger as ledger_rows
from recorder.store.sql import now

_POINTERS: Final = {VersionState.LIVE: aliases.c.live_version_id, VersionState.CANARY: aliases.c.canary_version_id}
_MADE: Final = (*sorted(UNDECIDED - {VersionState.ALLOCATED}), VersionState.LIVE, VersionState.RETIRED)
_LEARN: Final = "start `hone learn` or `hone up`: a trainer takes over the alias and abandons a dead trainer's step"
_BY_HAND: Final = "make a version live by hand: `hone versions` lists them, `hone promote NAME@N` moves the alias"
_REPORT: Final = "please report it with `hone versions` and `hone ledger`; go back with `hone rollback` if needed"


async def aliases_point_at_the_versions_that_say_so(look: CheckReader) -> Violations:
    """An alias's live and canary versions are in that state, and no other version of the alias is."""
    for state, pointer in _POINTERS.items():
        found = versions.c.alias_id == aliases.c.id, versions.c.id == pointer, versions.c.state == state
        needed = pointer.is_not(None) if state is VersionState.CANARY else literal(True)
        query = select(aliases.c.id, aliases.c.name).where(needed, ~exists().where(*found))
        async for row in look.find(query, aliases.c.id):
            yield Violation("alias", row.name, f"it points at a version that is not its own or not {state}", _BY_HAND)
        stray = ~exists().where(aliases.c.id == versions.c.alias_id, pointer == versions.c.id)
        query = select(versions.c.id).where(versions.c.state == state, stray)
        async for row in look.find(query, versions.c.id):
            yield Violation("version", row.id, f"it is {state}, but its alias points at another version", _BY_HAND)


async def versions_descend_from_the_base(look: CheckReader) -> Violations:
    """The ancestry of every version ends at version 0 of its alias."""
    by_id = {row.id: row async for row in look.find(select(versions), versions.c.id)}
    for row in by_id.values():
        parent = by_id.get(row.parent_id)
        fits = parent is not None and parent.alias_id == row.alias_id and parent.number < row.number
        if row.number > 0 and not fits:
            yield Violation("version", row.id, "its parent is not an earlier version of its alias", _REPORT)


async def one_version_at_a_time_waits_for_its_decision(look: CheckReader) -> Violations:
    """At most one version of an alias is undecided: accepted versions form one line."""
    waiting = versions.c.state.in_(sorted(UNDECIDED - {VersionState.ALLOCATED}))
    query = select(versions.c.alias_id).where(waiting)
    count = Counter([row.alias_id async for row in look.find(query, versions.c.id)])
    for alias_id, number in count.items():
        if number > 1:
            yield Violation("alias", alias_id, f"{number} of its versions are undecided at once", _REPORT)


async def what_the_gate_accepted_came_from_the_version_it_replaced(look: CheckReader) -> Violations:
    """A version that passed its gate was trained from the version that it replaced."""
    parents = {row.id: row.parent_id async for row in look.find(select(versions), versions.c.id)}
    rows = select(ledger_rows.c.object_id, ledger_rows.c.detail)
    passed = rows.where(ledger_rows.c.object_kind == "version", ledger_rows.c.code == "gate")
    async for row in look.find(passed, ledger_rows.c.id):
        if row.detail and row.object_id in parents and row.detail.get("from") != parents[row.object_id]:
            yield Violation("version", row.object_id, "it replaced a version that is not its parent", _REPORT)


async def written_versions_were_made_by_a_step(look: CheckReader) -> Violations:
    """A version and its step became visible together, with the version's folder and manifest."""
    made = (versions.c.number > 0, versions.c.state.in_(_MADE))
    by = exists().where(steps.c.version_id == versions.c.id, steps.c.state == StepState.DONE)
    query = select(versions.c.id, versions.c.state).where(*made, or_(~by, versions.c.manifest_sha256.is_(None)))
    async for row in look.find(query, versions.c.id):
        what = f"it is {row.state}, but no finished step made it, or it has no manifest"
        yield Violation("version", row.id, what, _REPORT)
    unmade = ~exists().where(versions.c.id == steps.c.version_id, versions.c.state != VersionState.ALLOCATED)
    async for row in look.find(select(steps.c.id).where(steps.c.state == StepState.DONE, unmade), steps.c.id):
        yield Violation("step", row.id, "it is done, but made no version", _REPORT)


async def versions_in_the_making_have_a_trainer(look: CheckReader) -> Violations:
    """A running step has a trainer that holds its alias, and a version being written has such a step."""
    held = await _held(look)
    names = {row.id: row.name for row in await look.rows(select(aliases.c.id, aliases.c.name))}
    running = select(steps.c.id, steps.c.alias_id).where(steps.c.state == StepState.RUNNING)
    async for row in look.find(running, steps.c.id):
        if not _is_held(names, held, row.alias_id):
            yield Violation("step", row.id, "it is running, but no trainer holds its alias", _LEARN)
    query = select(versions.c.id).where(versions.c.state == VersionState.ALLOCATED, ~_has_running_step())
    async for row in look.find(query, versions.c.id):
        yield Violation("version", row.id, "it is being written, but no running step writes it", _LEARN)


async def _held(look: CheckReader) -> set[str]:
    in_force = (leases.c.lease_owner.is_not(None), leases.c.lease_expires_at > now())
    return {row.name for row in await look.rows(select(leases.c.name).where(*in_force))}


def _is_held(names: Mapping[str, str], held: set[str], alias_id: str) -> bool:
    return trainer_lease(names[alias_id]) in held


def _has_running_step() -> ColumnElement[bool]:
    return exists().where(steps.c.version_id == versions.c.id, steps.c.state == StepState.RUNNING)


_ADAPTERS: Final = "adapters"
_MANIFEST: Final = "manifest.json"
_UNFINISHED: Final = "."  # a trainer writes beside the final name; its successor removes unfinished folders
_SERVABLE: Final = (*sorted(UNDECIDED - {VersionState.ALLOCATED}), VersionState.LIVE, VersionState.RETIRED)


async def adapters_of_versions_that_may_serve_are_there(look: CheckReader) -> Violations:
    """The folder of every version that may serve exists, with the manifest that the store records.

    It may also be at `adapters.url` alone.
    """
    query = select(versions).where(versions.c.number > 0, versions.c.state.in_(_SERVABLE), versions.c.path.is_not(None))
    async for row in look.find(query, versions.c.id):
        what = _wrong_with(Path(row.path), row.manifest_sha256, look.shared)
        if what is not None:
            do = "restore the folder from a backup, or move the alias to a version that has one: `hone promote`"
            yield Violation("version", row.id, f"it is {row.state}, and {what}", do)


def _wrong_with(folder: Path, manifest_sha256: str | None, shared: Collection[str]) -> str | None:
    if folder.name in shared and not folder.exists():  # engines' hosts fetch it from there
        return None
    try:
        found = hashlib.sha256((folder / _MANIFEST).read_bytes()).hexdigest()
    except OSError as e:
        return f"{folder / _MANIFEST} cannot be read: {e.strerror}"
    return None if found == manifest_sha256 else f"{folder / _MANIFEST} does not match the store"


async def every_folder_has_a_version(look: CheckReader) -> Violations:
    """Every folder among the adapters belongs to a version in the store."""
    known = {
        Path(row.path).name
        for table in (versions, adapter_trials)  # a running trainer's trial is not left over either
        async for row in look.find(select(table.c.id, table.c.path), table.c.id)
        if row.path
    }
    for folder in sorted(_folders(look.data / _ADAPTERS)):
        if folder.name not in known:
            what = "no version in the store has this folder: its trainer died before the step was committed"
            yield Violation("folder", str(folder), what, "remove it when no trainer runs")


def _folders(adapters: Path) -> list[Path]:
    if not adapters.is_dir():
        return []
    return [one for one in adapters.iterdir() if one.is_dir() and not one.name.startswith(_UNFINISHED)]
