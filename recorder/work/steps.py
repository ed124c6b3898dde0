"""Training steps: what a step consumed and made becomes visible in one transaction, or not at all.

Owns: steps, the groups a step used and with which score. Refuses: training, files.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.ids import new_id
from recorder.registry.versions import move_version
from recorder.states import GroupState, StepState, VersionState
from recorder.store import ledger, sql
from recorder.store.database import Store, now
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, campaigns, groups, step_groups, steps, versions
from recorder.store.transitions import move
from recorder.work import baselines, leases
from recorder.work.baselines import Compared
from recorder.work.claims import GroupClaim, put_back
from recorder.work.leases import Lease

ORPHANED: Final = "orphaned"  # its trainer died or lost the alias to another


@dataclass(frozen=True, slots=True)
class StepView:
    """One optimizer step. `number` counts along the alias; `checkpoint_path` holds optimizer, scheduler, RNG state."""

    id: str
    project_id: str
    alias_id: str
    campaign_id: str | None
    number: int
    parent_version_id: str
    version_id: str | None
    state: StepState
    reason: str | None
    metrics: dict[str, Any]
    checkpoint_path: str | None
    started_at: float
    ended_at: float | None


async def begin_step(
    store: Store, alias_id: str, parent_version_id: str, campaign_id: str | None = None, *, lease: Lease | None = None
) -> StepView:
    """Begin a step on the version that is live now. Only one trainer holds an alias, so a step that still runs is an
    orphan: it and its version are abandoned.
    """
    async with store.write() as conn:
        if lease is not None:
            await leases.require(conn, lease)
        alias = (await conn.execute(select(aliases).where(aliases.c.id == alias_id).with_for_update())).first()
        if alias is None:
            raise NotFound(f"no alias {alias_id}")
        await _abandon_orphans(conn, alias_id)
        highest = select(func.coalesce(func.max(steps.c.number), 0)).where(steps.c.alias_id == alias_id)
        step_id = new_id("step")
        await conn.execute(
            insert(steps).values(
                id=step_id,
                project_id=alias.project_id,
                alias_id=alias_id,
                campaign_id=campaign_id,
                number=(await conn.execute(highest)).scalar_one() + 1,
                parent_version_id=parent_version_id,
                state=StepState.RUNNING,
                metrics={},
                started_at=now(),
            )
        )
        return await _one(conn, step_id)


async def _abandon_orphans(conn: AsyncConnection, alias_id: str) -> None:
    running = select(steps.c.id).where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
    for (step_id,) in list(await conn.execute(running)):
        await _abandon(conn, step_id, ORPHANED)
    unwritten = select(versions.c.id).where(versions.c.alias_id == alias_id, versions.c.state == VersionState.ALLOCATED)
    for (version_id,) in list(await conn.execute(unwritten)):
        await move_version(conn, version_id, VersionState.ABANDONED, ORPHANED)


async def finish_step(
    store: Store,
    step_id: str,
    *,
    version_id: str,
    path: str,
    engine_name: str,
    manifest_sha256: str,
    metrics: Mapping[str, Any],
    checkpoint_path: str | None,
    groups: Sequence[GroupClaim],
    ledger_rows: Iterable[LedgerRow] = (),
    compared: Sequence[Compared] = (),
    lease: Lease | None = None,
) -> StepView:
    """Make a step visible: version written, groups trained, step done, ledger, baselines, in one transaction.

    Raises LeaseLost where a group (or the `lease` on the alias) was taken over, Conflict where the step or its version
    was abandoned meanwhile; then nothing of it is visible, and the version's directory is to be removed.
    """
    async with store.write() as conn:
        if lease is not None:
            await leases.require(conn, lease)
        done: dict[str, Any] = {"version_id": version_id, "checkpoint_path": checkpoint_path, "ended_at": now()}
        await move(conn, steps, step_id, StepState.DONE, metrics=dict(metrics), **done)
        step = await _one(conn, step_id)
        await _require_version(conn, step, version_id)
        written: dict[str, Any] = {"path": path, "engine_name": engine_name, "manifest_sha256": manifest_sha256}
        await move_version(conn, version_id, VersionState.WRITTEN, metrics=dict(metrics), **written)
        await _consume(conn, step_id, groups)
        await ledger.write(conn, ledger_rows)
        await baselines.keep(conn, step_id, compared)
        if step.campaign_id is not None:
            counted = update(campaigns).where(campaigns.c.id == step.campaign_id)
            await conn.execute(counted.values(steps_done=campaigns.c.steps_done + 1))
        return step


async def _require_version(conn: AsyncConnection, step: StepView, version_id: str) -> None:
    query = select(versions.c.alias_id).where(versions.c.id == version_id)
    if (await conn.execute(query)).scalar_one_or_none() != step.alias_id:
        raise NotFound(f"step {step.id}: its alias has no version {version_id}")


async def _consume(conn: AsyncConnection, step_id: str, claims: Sequence[GroupClaim]) -> None:
    for claim in claims:
        if claim.score_id is None:
            raise Conflict(f"group {claim.group_id} has no score: step {step_id} cannot have trained on it")
        await move(conn, groups, claim.group_id, GroupState.TRAINED, owner=claim.owner, epoch=claim.epoch)
    used = [{"step_id": step_id, "group_id": c.group_id, "score_id": c.score_id} for c in claims]
    if used:
        await conn.execute(insert(step_groups), used)


async def abandon_step(store: Store, step_id: str, reason: str, *, claims: Sequence[GroupClaim] = ()) -> None:
    """Give a step up: its version is abandoned, its groups are scored again. Raises Conflict where it has ended.

    Claims that were lost meanwhile are another's and are left alone.
    """
    async with store.write() as conn:
        await _abandon(conn, step_id, reason)
        for claim in claims:
            await put_back(conn, claim)


async def _abandon(conn: AsyncConnection, step_id: str, reason: str) -> None:
    await move(conn, steps, step_id, StepState.ABANDONED, reason=reason, ended_at=now())
    step = await _one(conn, step_id)
    if step.version_id is not None:
        await move_version(conn, step.version_id, VersionState.ABANDONED, reason)
    row = LedgerRow(step.project_id, "step", step_id, StepState.ABANDONED, {"reason": reason})
    await ledger.write(conn, [row])


async def last_step(store: Store, alias_id: str) -> StepView | None:
    """The newest finished step of an alias: where a resumed trainer goes on from."""
    found = await list_steps(store, alias_id, state=StepState.DONE, limit=1)
    return found[0] if found else None


async def step_of_version(store: Store, version_id: str) -> StepView | None:
    """The step that made a version: its checkpoint belongs to that version. None for version 0."""
    query = select(steps).where(steps.c.version_id == version_id, steps.c.state == StepState.DONE)
    async with store.read() as conn:
        row = (await conn.execute(query)).first()
    return _view(row) if row else None


async def list_steps(
    store: Store, alias_id: str, *, state: StepState | None = None, campaign_id: str | None = None, limit: int = 1000
) -> list[StepView]:
    """Steps of an alias, newest first."""
    query = select(steps).where(steps.c.alias_id == alias_id).order_by(steps.c.number.desc()).limit(limit)
    if state is not None:
        query = query.where(steps.c.state == state)
    if campaign_id is not None:
        query = query.where(steps.c.campaign_id == campaign_id)
    async with store.read() as conn:
        return [_view(row) for row in await conn.execute(query)]


async def groups_of(store: Store, step_id: str) -> dict[str, str]:
    """Group id → the id of the score that the step used."""
    query = select(step_groups.c.group_id, step_groups.c.score_id).where(step_groups.c.step_id == step_id)
    async with store.read() as conn:
        return {row.group_id: row.score_id for row in await conn.execute(query)}


async def _one(conn: AsyncConnection, step_id: str) -> StepView:
    row = (await conn.execute(select(steps).where(steps.c.id == step_id))).first()
    if row is None:
        raise NotFound(f"no step {step_id}")
    return _view(row)


def _view(row: Any) -> StepView:
    return sql.view(StepView, row, state=StepState(row.state))
