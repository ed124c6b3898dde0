"""Training steps: what a step used and made becomes visible in one transaction or not at all.

Owns: steps, when one may begin, the groups that a step used and with which score, and taking over from a dead trainer.
Refuses: training, files, deciding on the version that a step made (`recorder.registry`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

from sqlalchemy import Select, and_, delete, exists, func, insert, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound, VersionPending
from recorder.ids import new_id
from recorder.queue import leases
from recorder.queue.claims import GroupClaim, return_claim_in
from recorder.queue.judging.scores import exclude_group_in
from recorder.queue.leases import Lease
from recorder.queue.training import baselines, uses
from recorder.queue.training.baselines import ComparedReward
from recorder.queue.training.uses import ObjectiveUse
from recorder.registry import ancestry
from recorder.registry.versions import move_version, read_pending_version
from recorder.states import GroupState, StepState, VersionState
from recorder.store import ledger, sql
from recorder.store.database import Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, campaigns, groups, step_groups, step_trajectories, steps, versions
from recorder.store.schema import uses as uses_table
from recorder.store.sql import now
from recorder.store.transitions import guarded_update, move_state

ORPHANED: Final = "orphaned"  # its trainer died, or another trainer took over the alias
# Among the metrics of a step and of its version: what the trainer computed on instead of the base; the only text there.
COMPUTED_ON: Final = "computed_on"


@dataclass(frozen=True, slots=True)
class StepView:
    """One training step. `number` counts the alias's steps; `checkpoint_path` holds optimizer and RNG state."""

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

    @property
    def computed_on(self) -> str | None:
        """What the trainer computed on: `nf4`; None: the base itself."""
        return self.metrics.get(COMPUTED_ON)

    @property
    def figures(self) -> dict[str, float]:
        """The numbers among the metrics."""
        return {name: value for name, value in self.metrics.items() if name != COMPUTED_ON}


async def begin_step(
    store: Store,
    alias_id: str,
    parent_version_id: str,
    campaign_id: str | None = None,
    *,
    groups: Sequence[GroupClaim] = (),
    lease: Lease | None = None,
) -> StepView:
    """Begin a step on the live version, with these groups.

    Only one trainer holds an alias, so a step that still runs is an orphan: it and its version are abandoned. Raises
    VersionPending while a version of the alias is undecided, Conflict if another version is live.
    """
    async with store.write() as conn:
        alias = await _lock(conn, alias_id, lease)
        await _abandon_orphans(conn, alias_id)
        await _require_line(conn, alias, parent_version_id)
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
        await _note_groups(conn, step_id, groups)
        return await _one(conn, step_id)


async def _lock(conn: AsyncConnection, alias_id: str, lease: Lease | None) -> Any:
    """Lock the alias's row until the transaction ends, and return it: steps and decisions are serialized."""
    if lease is not None:
        await leases.require_lease(conn, lease)
    alias = (await conn.execute(select(aliases).where(aliases.c.id == alias_id).with_for_update())).first()
    if alias is None:
        raise NotFound(f"no alias {alias_id}")
    return alias


async def _require_line(conn: AsyncConnection, alias: Any, parent_version_id: str) -> None:
    waiting = await read_pending_version(conn, alias.id)
    if waiting is not None:
        raise VersionPending(
            f"{waiting.name} is {waiting.state} and not decided yet: no step of {alias.name!r} begins before it is "
            "live, rejected or abandoned. `hone versions` shows it."
        )
    if parent_version_id != alias.live_version_id:
        raise Conflict(
            f"the version to train from is no longer live for {alias.name!r}. Begin again from the live version."
        )


async def _note_groups(conn: AsyncConnection, step_id: str, claims: Sequence[GroupClaim]) -> None:
    for claim in claims:
        if claim.score_id is None:
            raise Conflict(f"group {claim.group_id} has no score: step {step_id} cannot train on it")
    used = [{"step_id": step_id, "group_id": c.group_id, "score_id": c.score_id} for c in claims]
    if used:
        await conn.execute(insert(step_groups), used)


async def take_over(store: Store, alias_id: str, *, lease: Lease) -> None:
    """Abandon what a dead trainer of the alias left; the caller holds the alias now (`lease`).

    The dead trainer's step and version are abandoned and its groups returned, those of the step as often as
    `recorder.registry.ancestry` allows. Raises LeaseLost.
    """
    async with store.write() as conn:
        await _lock(conn, alias_id, lease)
        in_steps = select(step_groups.c.group_id).join(steps, steps.c.id == step_groups.c.step_id)
        in_steps = in_steps.where(steps.c.alias_id == alias_id, steps.c.state == StepState.RUNNING)
        begun_on = and_(groups.c.id.in_(in_steps), groups.c.state.in_((GroupState.TRAINING, GroupState.SCORED)))
        await ancestry.give_back(conn, begun_on, {"reason": ORPHANED})
        free = guarded_update(
            groups, GroupState.SCORED, expect=GroupState.TRAINING, lease_owner=None, lease_expires_at=None
        )
        await conn.execute(free.where(groups.c.alias_id == alias_id))
        await _abandon_orphans(conn, alias_id)


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
    excluded: Mapping[str, str] = MappingProxyType({}),
    trained: Collection[str] = (),
    ledger_rows: Iterable[LedgerRow] = (),
    compared: Sequence[ComparedReward] = (),
    used: Sequence[ObjectiveUse] = (),
    lease: Lease | None = None,
) -> StepView:
    """Make a step visible: version written, groups tried, step done, ledger, baselines, uses, in one transaction.

    `trained`: ids of the trajectories that the version was trained on; the ledger calls them trained when it goes live.
    `groups` are those that the step began with; `excluded` names those of them that it was not trained on after all,
    each with its reason, and they are excluded.

    Raises LeaseLost if a group (or the `lease` on the alias) was taken over, Conflict if the step or its version was
    abandoned meanwhile. Then nothing of the step is visible, and the caller must remove the version's directory.
    """
    figures = _without_nan(metrics)
    async with store.write() as conn:
        if lease is not None:
            await leases.require_lease(conn, lease)
        done: dict[str, Any] = {"version_id": version_id, "checkpoint_path": checkpoint_path, "ended_at": now()}
        await move_state(conn, steps, step_id, StepState.DONE, metrics=figures, **done)
        step = await _one(conn, step_id)
        await _require_version(conn, step, version_id)
        written: dict[str, Any] = {"path": path, "engine_name": engine_name, "manifest_sha256": manifest_sha256}
        await move_version(conn, version_id, VersionState.WRITTEN, metrics=figures, **written)
        await _consume(conn, step_id, groups, excluded, trained)
        await ledger.write_rows(conn, ledger_rows)
        await baselines.write_baselines(conn, step_id, compared)
        await uses.write_uses(conn, step_id, used)
        if step.campaign_id is not None:
            counted = update(campaigns).where(campaigns.c.id == step.campaign_id)
            await conn.execute(counted.values(steps_done=campaigns.c.steps_done + 1))
        return step


def _without_nan(metrics: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metrics.items() if value == value}  # NaN is no figure, and no JSON


async def _require_version(conn: AsyncConnection, step: StepView, version_id: str) -> None:
    query = select(versions.c.alias_id).where(versions.c.id == version_id)
    if (await conn.execute(query)).scalar_one_or_none() != step.alias_id:
        raise NotFound(f"step {step.id}: its alias has no version {version_id}")


async def _consume(
    conn: AsyncConnection,
    step_id: str,
    claims: Sequence[GroupClaim],
    excluded: Mapping[str, str],
    trained: Collection[str],
) -> None:
    began = set((await conn.execute(_used(step_id))).scalars())
    if began != {claim.group_id for claim in claims}:
        raise Conflict(f"step {step_id} did not begin with the groups that its result names")
    for claim in claims:
        if claim.group_id in excluded:
            await exclude_group_in(conn, claim, excluded[claim.group_id])
        else:
            await move_state(conn, groups, claim.group_id, GroupState.TRIED, owner=claim.owner, epoch=claim.epoch)
    if excluded:  # what becomes of the version does not concern them
        unused = delete(step_groups).where(step_groups.c.step_id == step_id, step_groups.c.group_id.in_(excluded))
        await conn.execute(unused)
    runs = [{"step_id": step_id, "trajectory_id": id_} for id_ in sorted(trained)]
    if runs:
        await conn.execute(insert(step_trajectories), runs)


def _used(step_id: str) -> Select[Any]:
    return select(step_groups.c.group_id).where(step_groups.c.step_id == step_id)


async def abandon_step(
    store: Store,
    step_id: str,
    reason: str,
    *,
    claims: Sequence[GroupClaim] = (),
    metrics: Mapping[str, Any] | None = None,
    ledger_rows: Sequence[LedgerRow] = (),
) -> None:
    """Abandon a step and its version; its groups are `scored` again. Raises Conflict if the step has ended.

    `ledger_rows` are written in the same transaction.
    Claims that were lost meanwhile belong to another holder and are not changed.
    """
    async with store.write() as conn:
        await _abandon(conn, step_id, reason, metrics or {})
        for claim in claims:
            await return_claim_in(conn, claim)
        await ledger.write_rows(conn, ledger_rows)


async def _abandon(
    conn: AsyncConnection, step_id: str, reason: str, metrics: Mapping[str, Any] = MappingProxyType({})
) -> None:
    figures = _without_nan(metrics)
    await move_state(conn, steps, step_id, StepState.ABANDONED, reason=reason, metrics=figures, ended_at=now())
    step = await _one(conn, step_id)
    if step.version_id is not None:
        await move_version(conn, step.version_id, VersionState.ABANDONED, reason)
    row = LedgerRow(step.project_id, "step", step_id, StepState.ABANDONED, {"reason": reason})
    await ledger.write_rows(conn, [row])


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


async def count_schedule_steps(store: Store, alias_id: str, campaign_id: str | None) -> int:
    """The steps that the schedule of an alias's next step counts: those of one campaign, or of live learning (None),
    that made the live version or one of its ancestors. Steps on demonstrations alone do not count.
    """
    async with store.read() as conn:
        live = (await conn.execute(select(aliases.c.live_version_id).where(aliases.c.id == alias_id))).scalar_one()
        line = ancestry.ancestry_ages(live).subquery()
        of_line = select(func.count()).select_from(steps).join(line, line.c.id == steps.c.version_id)
        of_groups = exists().where(step_groups.c.step_id == steps.c.id)
        with_groups = or_(of_groups, ~exists().where(uses_table.c.step_id == steps.c.id))
        mine = (steps.c.state == StepState.DONE, steps.c.campaign_id.is_not_distinct_from(campaign_id), with_groups)
        return int((await conn.execute(of_line.where(*mine))).scalar_one())


async def list_step_groups(store: Store, step_id: str) -> dict[str, str]:
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
    return sql.as_view(StepView, row, state=StepState(row.state))
