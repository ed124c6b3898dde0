"""Claims on groups: a judge or trainer takes one for a limited time, by one guarded statement on the database's clock.

Owns: which group a holder may take, epochs, renewing and returning claims. Refuses: what the holder does with the group
(`recorder.queue.judging.scores`, `recorder.queue.training.steps`), expiry (`recorder.maintenance.sweep`).
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import ColumnElement, and_, case, exists, func, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import LeaseLost
from recorder.queue.groups.same_request import waits_for_members
from recorder.queue.groups.uses import is_learnable, is_shadow, is_trainable
from recorder.queue.training.refusals import is_refused
from recorder.states import GroupState, VersionState
from recorder.store.changes import mark_quiet
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, groups, scores, versions
from recorder.store.sql import now
from recorder.store.statement import equals_literal
from recorder.store.transitions import guarded_update, move_state

# States that a judge takes after `try_after`. A group with a score has a time there if feedback came after its score.
_AGAIN: Final = (GroupState.UNSCORED, GroupState.SCORED, GroupState.MEASURED)
_ENDED: Final = (GroupState.LEFT_OUT, GroupState.MEASURED)
_OLDEST: Final = (groups.c.ready_at, groups.c.id)
_BACK: Final = {GroupState.JUDGING: GroupState.READY, GroupState.TRAINING: GroupState.SCORED}


@dataclass(frozen=True, slots=True)
class GroupClaim:
    """A group held by `owner` until `expires_at` (unix seconds). Every later write checks owner and epoch.

    `score_id` is the group's current score, `tries` the number of its failed judgings.
    """

    group_id: str
    owner: str
    epoch: int
    expires_at: float
    score_id: str | None
    project_id: str
    alias_id: str | None
    campaign_id: str | None
    tries: int


async def claim_for_judging(
    project: Project, owner: str, lease_s: float, *, of_campaigns: bool = False
) -> GroupClaim | None:
    """Claim the oldest group that waits for a judge: ready, or due for another judging.

    A group that a version's gate waits for comes before all others. `of_campaigns`: only groups of campaigns.
    """
    # Each kind has its own ordered index: most groups are scored, and many may be ready.
    mine = (groups.c.project_id == project.id, *_whose(of_campaigns))
    # a literal, by which SQLite recognizes the partial index
    ready = and_(equals_literal(groups.c.state, GroupState.READY), *mine)
    again = and_(groups.c.state.in_(_AGAIN), groups.c.try_after <= now(), *mine)
    for wanted in await _in_turn(project, (ready, again)):
        took = await _claim(project.store, wanted, 1, GroupState.JUDGING, (GroupState.READY, *_AGAIN), owner, lease_s)
        if took:
            return took[0]
    return None


async def _in_turn(project: Project, kinds: Sequence[ColumnElement[bool]]) -> Sequence[ColumnElement[bool]]:
    """Return the kinds that have groups: those that a gate waits for, then the kind with the oldest group."""
    loaded = (versions.c.project_id == project.id, versions.c.state == VersionState.LOADED)
    async with project.store.read() as conn:
        waiting = await _oldest_first(conn, kinds)
        examined = list((await conn.execute(select(versions.c.id).where(*loaded))).scalars()) if waiting else []
        if not examined:
            return waiting
        # by the pinned version: the members would have to be looked up for each waiting group
        of_gates = [and_(kind, groups.c.version_id.in_(examined)) for kind in waiting]
        return [*await _oldest_first(conn, of_gates), *waiting]


async def _oldest_first(conn: AsyncConnection, kinds: Sequence[ColumnElement[bool]]) -> Sequence[ColumnElement[bool]]:
    found: list[tuple[float, str, ColumnElement[bool]]] = []
    for kind in kinds:
        oldest = (await conn.execute(select(*_OLDEST).where(kind).order_by(*_OLDEST).limit(1))).first()
        if oldest is not None:
            found.append((*oldest, kind))
    return [kind for *_, kind in sorted(found, key=lambda each: each[:2])]


async def next_try_in(project: Project, *, of_campaigns: bool = False) -> float | None:
    """Return the seconds until the next group is due for another judging, or None. `of_campaigns`: as in claiming."""
    due = groups.c.try_after.is_not(None)  # without this condition PostgreSQL reads all scored groups
    again = (groups.c.project_id == project.id, groups.c.state.in_(_AGAIN), due, *_whose(of_campaigns))
    async with project.store.read() as conn:
        in_s = (await conn.execute(select(func.min(groups.c.try_after) - now()).where(*again))).scalar_one()
    return None if in_s is None else max(0.0, float(in_s))


def _whose(of_campaigns: bool) -> tuple[ColumnElement[bool], ...]:
    return (groups.c.campaign_id.is_not(None),) if of_campaigns else ()


async def claim_one_for_judging(
    store: Store,
    group_id: str,
    owner: str,
    lease_s: float,
    *,
    free: Sequence[GroupState] = (GroupState.READY, *_AGAIN),
    ended_for: Collection[str] = (),
) -> GroupClaim | None:
    """Claim a named group for judging, also one with a score (a new recipe rescores it). None: it is not `free`.

    `ended_for`: also a group that was excluded, or measured without a score, for one of these reasons.
    """
    # a measured group with a reason has no score, and perhaps no judge
    is_free = and_(groups.c.state.in_(free), or_(groups.c.state != GroupState.MEASURED, groups.c.reason.is_(None)))
    ended = and_(groups.c.state.in_(_ENDED), groups.c.reason.in_(sorted(ended_for)))
    wanted = and_(groups.c.id == group_id, or_(is_free, ended))
    took = await _take(store, wanted, 1, GroupState.JUDGING, tuple({*free, *_ENDED}), owner, lease_s)
    return took[0] if took else None


async def claim_for_training(
    store: Store,
    alias_id: str,
    owner: str,
    lease_s: float,
    *,
    limit: int,
    campaign_id: str | None = None,
    group_ids: Sequence[str] | None = None,
    lacking: Collection[str] = (),
) -> list[GroupClaim]:
    """Claim up to `limit` scored groups of an alias, oldest first, if all judged members have the purpose `train`.

    Groups that are due for rescoring because of later feedback are not claimed. Groups scored by the recipes of
    `lacking` (`recorder.queue.training.baselines`) wait until a baseline exists. Refused groups
    (`recorder.queue.training.refusals`) are not claimed. Without `campaign_id`, only groups
    that belong to no campaign; `group_ids`: only these groups.
    """
    wanted = is_claimable(alias_id, campaign_id, lacking)
    if group_ids is not None:
        wanted = and_(wanted, groups.c.id.in_(list(group_ids)))
    return await _take(store, wanted, limit, GroupState.TRAINING, (GroupState.SCORED,), owner, lease_s)


@dataclass(frozen=True, slots=True)
class TrainableGroups:
    """Scored groups that a trainer can take, and the time since the first of them was scored.

    `shadow`: how many of them consist of shadow answers. `held`: further scored groups that it could take later;
    `follow_ups`: those of them that wait because of `trainer.follow_up_share`.
    """

    groups: int
    first_s: float
    shadow: int = 0
    held: int = 0
    follow_ups: int = 0


async def waiting_for_training(
    store: Store, alias_id: str, lacking: Collection[str] = (), max_age_s: float | None = None
) -> TrainableGroups:
    """Return what `claim_for_training` would find outside campaigns; `max_age_s`: without older groups."""
    ready = _is_ready(lacking, max_age_s)
    scored_at = func.coalesce(scores.c.created_at, groups.c.ready_at)
    found = (
        select(
            func.count().label("scored"),
            func.sum(case((ready, 1), else_=0)).label("ready"),
            (now() - func.min(case((ready, scored_at)))).label("first_s"),
            func.sum(case((and_(is_shadow(), ready), 1), else_=0)).label("shadow"),
        )
        .select_from(groups.outerjoin(scores, scores.c.id == groups.c.current_score_id))
        .where(_scored(alias_id, None))
    )
    async with store.read() as conn:
        row = (await conn.execute(found)).one()
    there = int(row.ready or 0)
    return TrainableGroups(there, float(row.first_s or 0.0), int(row.shadow or 0), int(row.scored) - there)


def is_claimable(
    alias_id: str, campaign_id: str | None = None, lacking: Collection[str] = (), max_age_s: float | None = None
) -> ColumnElement[bool]:
    """Whether a trainer of the alias can take a group now. The arguments are those of the functions here."""
    return and_(_scored(alias_id, campaign_id), _is_ready(lacking, max_age_s))


def _scored(alias_id: str, campaign_id: str | None) -> ColumnElement[bool]:
    """Whether a group is scored and of those that a trainer of the alias takes: of a campaign, or of none."""
    of = is_learnable() if campaign_id is None else and_(groups.c.campaign_id == campaign_id, is_trainable())
    project = select(aliases.c.project_id).where(aliases.c.id == alias_id).scalar_subquery()  # for the index
    scored = and_(groups.c.project_id == project, groups.c.state == GroupState.SCORED)
    return and_(scored, groups.c.alias_id == alias_id, of)


def _is_ready(lacking: Collection[str], max_age_s: float | None = None) -> ColumnElement[bool]:
    """Whether a scored group is not refused, and waits neither for another judging, another group, nor a baseline."""
    settled = and_(groups.c.try_after.is_(None), ~waits_for_members(), ~is_refused())
    if max_age_s is not None:  # as `scores.exclude_old_groups` excludes them
        settled = and_(settled, func.coalesce(groups.c.ready_at, now()) >= now() - max_age_s)
    return and_(settled, ~_lacks_baseline(lacking)) if lacking else settled


def _lacks_baseline(recipes: Collection[str]) -> ColumnElement[bool]:
    its = scores.alias()  # the outer query may join the scores too
    return exists().where(its.c.id == groups.c.current_score_id, its.c.absolute, its.c.recipe_hash.in_(recipes))


async def _take(
    store: Store,
    wanted: ColumnElement[bool],
    limit: int,
    to: GroupState,
    expect: Sequence[GroupState],
    owner: str,
    lease_s: float,
) -> list[GroupClaim]:
    async with store.read() as conn:  # if there is nothing to claim, SQLite's only write lock is not taken
        if (await conn.execute(select(groups.c.id).where(wanted).limit(1))).first() is None:
            return []
    return await _claim(store, wanted, limit, to, expect, owner, lease_s)


async def _claim(
    store: Store,
    wanted: ColumnElement[bool],
    limit: int,
    to: GroupState,
    expect: Sequence[GroupState],
    owner: str,
    lease_s: float,
) -> list[GroupClaim]:
    free = select(groups.c.id).where(wanted).order_by(*_OLDEST).limit(limit)
    # A CTE, because PostgreSQL may run a locking sub-select with a limit more than once. SQLite ignores FOR UPDATE:
    # there BEGIN IMMEDIATE already excludes every other writer.
    picked = free.with_for_update(skip_locked=True, of=groups).cte("picked")
    lease: dict[str, Any] = {
        "lease_owner": owner,
        "lease_epoch": groups.c.lease_epoch + 1,
        "lease_expires_at": now() + lease_s,
        "try_after": None,  # cleared by the claim; later feedback sets it again
    }
    statement = (
        guarded_update(groups, to, expect=expect, **lease).where(groups.c.id.in_(select(picked.c.id))).returning(groups)
    )
    async with store.write() as conn:
        rows = sorted(await conn.execute(statement), key=lambda row: (row.ready_at, row.id))
    return [
        GroupClaim(
            row.id,
            owner,
            row.lease_epoch,
            row.lease_expires_at,
            row.current_score_id,
            row.project_id,
            row.alias_id,
            row.campaign_id,
            row.tries,
        )
        for row in rows
    ]


async def renew_claim(store: Store, claim: GroupClaim, lease_s: float) -> GroupClaim:
    """Renew the lease of a group. Raises LeaseLost if another holder took over."""
    renewed = update(groups).where(_held(claim)).values(lease_expires_at=now() + lease_s)
    statement = mark_quiet(renewed.returning(groups.c.lease_expires_at))
    async with store.write() as conn:
        expires_at = (await conn.execute(statement)).scalar_one_or_none()
    if expires_at is None:
        raise _lost(claim)
    return replace(claim, expires_at=expires_at)


async def return_claim(store: Store, claim: GroupClaim) -> None:
    """Return a group to the state before the claim: judging → ready, training → scored. Raises LeaseLost."""
    async with store.write() as conn:
        if not await return_claim_in(conn, claim):
            raise _lost(claim)


async def judging_due_at(store: Store, group_id: str) -> float | None:
    """Return when a judge takes a group again (unix seconds), or None if no time is set. A claim clears it."""
    async with store.read() as conn:
        return (await conn.execute(select(groups.c.try_after).where(groups.c.id == group_id))).scalar_one_or_none()


async def return_unscored(store: Store, claim: GroupClaim, due_at: float | None) -> None:
    """Return a group that was unscored before the claim, with its former due time. Raises LeaseLost."""
    async with store.write() as conn:
        await move_state(
            conn, groups, claim.group_id, GroupState.UNSCORED, owner=claim.owner, epoch=claim.epoch, try_after=due_at
        )


async def return_claim_in(conn: AsyncConnection, claim: GroupClaim) -> bool:
    """`return_claim` inside the caller's transaction; False if another holder has the group."""
    for held, to in _BACK.items():
        statement = guarded_update(groups, to, expect=held, lease_owner=None, lease_expires_at=None).where(_held(claim))
        if (await conn.execute(statement)).rowcount:
            return True
    return False


def _held(claim: GroupClaim) -> ColumnElement[bool]:
    return and_(
        groups.c.id == claim.group_id,
        groups.c.lease_owner == claim.owner,
        groups.c.lease_epoch == claim.epoch,
        groups.c.state.in_(_BACK),
    )


def _lost(claim: GroupClaim) -> LeaseLost:
    return LeaseLost(
        f"group {claim.group_id} is no longer held by {claim.owner} (epoch {claim.epoch}): its lease expired. "
        "Discard the work and claim again."
    )
