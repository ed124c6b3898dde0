"""Versions: immutable LoRA adapters of an alias, from a number in the store to retirement.

Owns: numbers (never used twice), states, ancestry and age, and rejecting a version. Refuses: the adapter's files
(trainer), the engine (proxy), making a version live (`recorder.registry.alias_moves`), what it was trained on
(`recorder.registry.ancestry`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, func, insert, or_, select, union, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.registry import ancestry
from recorder.registry.alias_moves import drop_canary
from recorder.registry.ancestry import Lessons
from recorder.registry.engine_names import alias_slug
from recorder.states import UNDECIDED, GroupState, StepState, TrajectoryState, VersionState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, groups, steps, trajectories, versions
from recorder.store.sql import now
from recorder.store.transitions import move_state

_NAME: Final = re.compile(r"(?P<alias>.+)@(?P<number>0|[1-9][0-9]{0,8})")
_ENDED_BADLY: Final = (VersionState.REJECTED, VersionState.ABANDONED)


@dataclass(frozen=True, slots=True)
class VersionView:
    """One version. `name` is shown to users (helpdesk@3), `engine_name` is the model name in the engine."""

    id: str
    project_id: str
    alias_id: str
    alias_name: str
    number: int
    name: str
    parent_id: str | None
    state: VersionState
    reason: str | None
    engine_name: str
    path: str | None
    manifest_sha256: str | None
    base_fingerprint: str | None
    verified: str | None
    metrics: dict[str, Any]
    created_at: float
    state_at: float


def parse_name(name: str) -> tuple[str, int | None]:
    """Split `helpdesk@3` into ("helpdesk", 3), and a plain `helpdesk` into ("helpdesk", None)."""
    match = _NAME.fullmatch(name)
    return (match["alias"], int(match["number"])) if match else (name, None)


def _query() -> Select[Any]:
    own = [versions.c[n] for n in VersionView.__slots__ if n in versions.c]
    return select(*own, aliases.c.name.label("alias_name")).join(aliases, aliases.c.id == versions.c.alias_id)


def _view(row: Any) -> VersionView:
    name = f"{row.alias_name}@{row.number}"
    return sql.as_view(VersionView, row, name=name, state=VersionState(row.state))


async def _one(conn: AsyncConnection, version_id: str) -> VersionView:
    row = (await conn.execute(_query().where(versions.c.id == version_id))).first()
    if row is None:
        raise NotFound(f"no version {version_id}")
    return _view(row)


async def allocate_version(store: Store, alias_id: str, parent_id: str, *, step_id: str | None = None) -> VersionView:
    """Take the next number of the alias, before the version's files are written.

    `step_id`: the running step that makes it, so that abandoning the step abandons the version.
    """
    async with store.write() as conn:
        # the lock of the alias's row prevents two allocations from taking one number (PostgreSQL)
        alias = (await conn.execute(select(aliases).where(aliases.c.id == alias_id).with_for_update())).first()
        if alias is None:
            raise NotFound(f"no alias {alias_id}")
        highest = select(func.max(versions.c.number)).where(versions.c.alias_id == alias_id)
        number = (await conn.execute(highest)).scalar_one() + 1
        version_id = new_id("ver")
        await conn.execute(
            insert(versions).values(
                id=version_id,
                project_id=alias.project_id,
                alias_id=alias_id,
                number=number,
                parent_id=parent_id,
                state=VersionState.ALLOCATED,
                engine_name=f"{alias_slug(alias.name)}@{number}",
                base_fingerprint=alias.base_fingerprint,
                metrics={},
                created_at=now(),
                state_at=now(),
            )
        )
        if step_id is not None:
            await _tie(conn, step_id, version_id)
        return await _one(conn, version_id)


async def _tie(conn: AsyncConnection, step_id: str, version_id: str) -> None:
    statement = update(steps).where(steps.c.id == step_id, steps.c.state == StepState.RUNNING)
    if (await conn.execute(statement.values(version_id=version_id))).rowcount == 0:
        raise Conflict(f"step {step_id} is not running: another trainer took over the alias. Begin a new step.")


async def list_versions(store: Store, alias_id: str) -> list[VersionView]:
    """Return every version of an alias, newest first."""
    async with store.read() as conn:
        rows = await conn.execute(_query().where(versions.c.alias_id == alias_id).order_by(versions.c.number.desc()))
        return [_view(row) for row in rows]


async def get_versions(project: Project, states: Collection[VersionState] | None = None) -> list[VersionView]:
    """Return the project's versions (in these states), by alias and number."""
    async with project.store.read() as conn:
        return await read_versions(conn, project.id, states)


async def read_versions(
    conn: AsyncConnection, project_id: str, states: Collection[VersionState] | None = None
) -> list[VersionView]:
    """`get_versions`, inside the caller's transaction."""
    query = _query().where(versions.c.project_id == project_id)
    if states is not None:
        query = query.where(versions.c.state.in_(sorted(states)))
    return [_view(row) for row in await conn.execute(query.order_by(versions.c.alias_id, versions.c.number))]


async def list_pinned_versions(project: Project) -> set[str]:
    """Return the ids of the versions that open trajectories or open groups are pinned to."""
    runs = select(trajectories.c.version_id).where(
        trajectories.c.project_id == project.id, trajectories.c.state == TrajectoryState.OPEN
    )
    tasks = select(groups.c.version_id).where(groups.c.project_id == project.id, groups.c.state == GroupState.OPEN)
    async with project.store.read() as conn:
        found = await conn.execute(union(runs, tasks))
        return {version_id for (version_id,) in found if version_id is not None}


async def repin_trajectory(store: Store, trajectory_id: str, version_id: str) -> None:
    """Pin a running trajectory to another version; it is `mixed` from then on. Does nothing if it has that version."""
    other = or_(trajectories.c.version_id.is_(None), trajectories.c.version_id != version_id)
    moved = update(trajectories).where(trajectories.c.id == trajectory_id, other)
    async with store.write() as conn:
        await conn.execute(moved.values(version_id=version_id, mixed=True))


async def get_version(store: Store, version_id: str) -> VersionView:
    """Return one version by its id. Raises NotFound."""
    async with store.read() as conn:
        return await _one(conn, version_id)


async def get_version_by_name(project: Project, name: str) -> VersionView:
    """Return one version by its name, `helpdesk@3`. Raises NotFound."""
    alias, number = parse_name(name)
    query = _query().where(versions.c.project_id == project.id, aliases.c.name == alias, versions.c.number == number)
    async with project.store.read() as conn:
        row = (await conn.execute(query)).first()
    if row is None:
        raise NotFound(f"no version {name!r} in project {project.id!r}: `hone versions` lists them")
    return _view(row)


async def mark_version(
    store: Store,
    version_id: str,
    to: VersionState,
    reason: str | None = None,
    *,
    expect: VersionState | None = None,
    **fields: Any,
) -> VersionView:
    """Change a version's state and set columns (`verified`, `metrics`, `path` …).

    A rejected or abandoned version is written to the ledger with `reason`, and its groups are returned. Raises
    Conflict. For live and canary use `recorder.registry.alias_moves`.
    """
    if to in (VersionState.LIVE, VersionState.CANARY):
        raise ValueError(f"use aliases.set_live or set_canary to make a version {to}: the alias moves with it")
    async with store.write() as conn:
        await move_version(conn, version_id, to, reason, expect=expect, **fields)
        return await _one(conn, version_id)


async def move_version(
    conn: AsyncConnection,
    version_id: str,
    to: VersionState,
    reason: str | None = None,
    *,
    expect: VersionState | None = None,
    **fields: Any,
) -> None:
    """`mark_version` inside the caller's transaction."""
    await move_state(conn, versions, version_id, to, expect=expect, reason=reason, **fields)
    if to in _ENDED_BADLY:
        await _end(conn, version_id, to, reason, "again", {})


async def pass_gate(
    store: Store,
    version_id: str,
    why: str,
    *,
    who: str,
    figures: Mapping[str, Any] | None = None,
    limits: Mapping[str, float] | None = None,
) -> VersionView:
    """Record that a loaded version passed its gate, and `why`, in the ledger. Raises Conflict if it is decided.

    `limits`: the bounds of the figures, by the setting's name.
    """
    said = {"who": who, "reason": why, **_measured(figures, limits)}
    async with store.write() as conn:
        await move_state(conn, versions, version_id, VersionState.GATED, expect=VersionState.LOADED)
        view = await _one(conn, version_id)
        await ledger.write_rows(conn, [LedgerRow(view.project_id, "version", version_id, VersionState.GATED, said)])
        return view


def _measured(figures: Mapping[str, Any] | None, limits: Mapping[str, float] | None) -> dict[str, Any]:
    return {name: dict(known) for name, known in (("figures", figures), ("limits", limits)) if known}


async def reject_version(
    store: Store,
    version_id: str,
    reason: str,
    *,
    lessons: Lessons,
    who: str,
    figures: Mapping[str, Any] | None = None,
    limits: Mapping[str, float] | None = None,
) -> VersionView:
    """Reject a version and return or exclude its groups, in one transaction. `reason` begins with a code.

    `lessons` "again": the version could not be tried, or was superseded; its groups may be trained on again (twice,
    then they are excluded as `versions_failed`). "left_out": the version was worse, so its groups are excluded as
    `version_rejected`. `limits`: the bounds of the figures, by the setting's name. Raises Conflict if it is decided
    already.
    """
    said = {"who": who, "lessons": lessons, **_measured(figures, limits)}
    async with store.write() as conn:
        await move_state(conn, versions, version_id, VersionState.REJECTED, reason=reason)
        await _end(conn, version_id, VersionState.REJECTED, reason, lessons, said)
        return await _one(conn, version_id)


async def _end(
    conn: AsyncConnection,
    version_id: str,
    to: VersionState,
    reason: str | None,
    lessons: Lessons,
    said: Mapping[str, Any],
) -> None:
    await drop_canary(conn, version_id)
    await ancestry.end_version(conn, version_id, lessons, reason)
    project = select(versions.c.project_id).where(versions.c.id == version_id)
    project_id = (await conn.execute(project)).scalar_one()
    await ledger.write_rows(conn, [LedgerRow(project_id, "version", version_id, to, {"reason": reason, **said})])


async def find_pending_version(store: Store, alias_id: str) -> VersionView | None:
    """Return the alias's undecided version, or None. While there is one, no step begins."""
    async with store.read() as conn:
        return await read_pending_version(conn, alias_id)


async def read_pending_version(conn: AsyncConnection, alias_id: str) -> VersionView | None:
    """`find_pending_version` inside the caller's transaction.

    A version that is still being written (`allocated`) does not count: its step is running, or its trainer is dead.
    """
    made = sorted(UNDECIDED - {VersionState.ALLOCATED})
    query = _query().where(versions.c.alias_id == alias_id, versions.c.state.in_(made))
    row = (await conn.execute(query.order_by(versions.c.number).limit(1))).first()
    return _view(row) if row else None


async def list_ancestors(store: Store, version_id: str) -> list[str]:
    """Return the version ids from `version_id` back to version 0."""
    async with store.read() as conn:
        found = [row.id for row in await conn.execute(ancestry.ancestry_ages(version_id))]
    if not found:
        raise NotFound(f"no version {version_id}")
    return found


def version_age(ancestors: Sequence[str], sample_version_id: str | None) -> int | None:
    """Return the steps from a sample's version to the newest of `ancestors` (`list_ancestors`); None: not one."""
    return ancestors.index(sample_version_id) if sample_version_id in ancestors else None
