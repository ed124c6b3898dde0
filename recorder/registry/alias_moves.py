"""Move an alias from one version to another: promote, roll back, gate, canary, and the watch after a promotion.

Owns: these moves, each one transaction; the conditions for moving an alias to a version (it belongs to the alias,
passed its gate, has a folder, and descends from the live one); and after which promotions the alias is watched and a
share of new trajectories stays on the version before. Refuses: choosing these trajectories (`proxy.versions.pins`),
comparing them (`proxy.gate`), loading and draining versions (the proxy's controller), and what counts as trained after
a move (`recorder.registry.ancestry`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.registry import ancestry, live_findings, moves
from recorder.registry.aliases import AliasView, lock_alias
from recorder.registry.moves import MoveReason
from recorder.states import StepState, VersionState
from recorder.store.database import Store
from recorder.store.schema import aliases, steps, versions
from recorder.store.schema import ledger as ledger_table
from recorder.store.sql import now
from recorder.store.transitions import move_state

Why = Literal["promote", "rollback", "gate"]
BY_HAND: Final = "hand"  # the recorded mover if a person moved an alias
ROLLED_BACK: Final = "rollback"  # reason of a retired version: its pins end at once
_SERVABLE: Final = (VersionState.GATED, VersionState.CANARY, VersionState.RETIRED)


async def set_live(
    store: Store,
    alias_id: str,
    version_id: str,
    *,
    why: Why,
    who: str = BY_HAND,
    reason: str | None = None,
    figures: Mapping[str, Any] | None = None,
) -> AliasView:
    """Make a version live, in one transaction, and return the alias.

    The old version retires, the generation increments, the groups of the new ancestry count as trained, and the alias
    is watched if its settings say so. The ledger records `reason`, `who` and `figures`. If the version is live already,
    nothing changes, but if a learner found something about it (`recorder.registry.live_findings`), this decision keeps
    it. Raises Conflict for a version that cannot be served, and for a move by the gate (`why`) to a version whose
    parent is no longer live: its ancestry would lack later training.
    """
    async with store.write() as conn:
        alias = await lock_alias(conn, alias_id)
        if alias.live_version_id != version_id:
            await require_servable(conn, alias, version_id)
            if why == "gate":
                await require_child(conn, alias, version_id)
            await _swap(conn, alias, version_id, why, MoveReason(who, reason, figures))
        elif await live_findings.find_undecided(conn, version_id) is not None:
            kept = MoveReason(who, reason, figures)
            await moves.write_move(conn, alias.project_id, alias.name, version_id, live_findings.KEPT, {}, kept)
            await _point(conn, alias)  # learners wait for it
        return await lock_alias(conn, alias_id)


async def rollback(
    store: Store,
    alias_id: str,
    *,
    left: str | None = None,
    who: str = BY_HAND,
    reason: str | None = None,
    figures: Mapping[str, Any] | None = None,
) -> AliasView:
    """Make the previous live version live again, and return the alias.

    Groups that only the replaced version was trained on no longer count as trained. `left`: the version that the caller
    wants to replace. Raises Conflict if there is no previous version, or if another version than `left` is live now.
    """
    async with store.write() as conn:
        alias = await lock_alias(conn, alias_id)
        if alias.previous_version_id is None:
            raise Conflict(f"alias {alias.name!r} has no earlier version to go back to")
        if left not in (None, alias.live_version_id):
            raise Conflict(f"alias {alias.name!r} moved in the meantime: {left} is no longer live")
        await require_servable(conn, alias, alias.previous_version_id)
        await _swap(conn, alias, alias.previous_version_id, "rollback", MoveReason(who, reason, figures))
        return await lock_alias(conn, alias_id)


async def end_watch(
    store: Store, alias_id: str, version_id: str, *, who: str, figures: Mapping[str, Any] | None = None
) -> AliasView:
    """End the watch of a live version, which stays live. From then on no trajectory is held back.

    Raises Conflict if the version is no longer watched.
    """
    async with store.write() as conn:
        alias = await lock_alias(conn, alias_id)
        if alias.live_version_id != version_id or alias.watched_until is None:
            raise Conflict(f"alias {alias.name!r} moved in the meantime: {version_id} is no longer watched")
        await _point(conn, alias, watched_until=None)
        await moves.write_move(
            conn, alias.project_id, alias.name, version_id, "watch_ended", {}, MoveReason(who, None, figures)
        )
        return await lock_alias(conn, alias_id)


async def set_canary(
    store: Store,
    alias_id: str,
    version_id: str | None,
    share: float,
    *,
    who: str = BY_HAND,
    reason: str | None = None,
    figures: Mapping[str, Any] | None = None,
) -> AliasView:
    """Give a gated version, or the canary, a share (0..1) of new groups; None ends the canary, which is retired.

    The ledger records `reason`, `who` and `figures`. The groups that an ended canary was trained on are excluded with
    the reason `rollback`. Raises Conflict for a version whose parent is not live.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"canary share {share} is not in 0..1")
    why_moved = MoveReason(who, reason, figures)
    async with store.write() as conn:
        alias = await lock_alias(conn, alias_id)
        if alias.canary_version_id not in (None, version_id):
            await move_state(conn, versions, alias.canary_version_id, VersionState.RETIRED, reason=ROLLED_BACK)
            await ancestry.end_version(conn, alias.canary_version_id, "left_out", ROLLED_BACK)
            await moves.write_move(
                conn, alias.project_id, alias.name, alias.canary_version_id, "canary_ended", {}, why_moved
            )
        if version_id is not None and version_id != alias.canary_version_id:
            await require_child(conn, alias, version_id)
            await move_state(conn, versions, version_id, VersionState.CANARY)
        if version_id is not None and (version_id, share) != (alias.canary_version_id, alias.canary_share):
            await moves.write_move(
                conn, alias.project_id, alias.name, version_id, "canary", {"share": share}, why_moved
            )
        await _point(conn, alias, canary_version_id=version_id, canary_share=share if version_id else 0.0)
        return await lock_alias(conn, alias_id)


async def drop_canary(conn: AsyncConnection, version_id: str) -> None:
    """Remove a rejected version as the canary of any alias."""
    await conn.execute(
        update(aliases)
        .where(aliases.c.canary_version_id == version_id)
        .values(canary_version_id=None, canary_share=0.0, generation=aliases.c.generation + 1, updated_at=now())
    )


async def _swap(
    conn: AsyncConnection,
    alias: AliasView,
    version_id: str,
    why: Why,
    why_moved: MoveReason,
) -> None:
    if alias.live_version_id is not None:
        left = ROLLED_BACK if why == "rollback" else None
        await move_state(conn, versions, alias.live_version_id, VersionState.RETIRED, reason=left)
    await move_state(conn, versions, version_id, VersionState.LIVE, reason=None)
    before = alias.live_version_id if why != "rollback" else await _live_before(conn, version_id)
    canary_ends = alias.canary_version_id == version_id
    share = {"canary_version_id": None, "canary_share": 0.0} if canary_ends else {}
    is_watched = why != "rollback" and await is_held(conn, alias, version_id)
    until = now() + alias.rollback_watch_s if is_watched else None
    await _point(conn, alias, live_version_id=version_id, previous_version_id=before, watched_until=until, **share)
    await ancestry.move_ancestry(conn, alias.live_version_id, version_id, why=why, who=why_moved.who)
    await moves.write_move(
        conn,
        alias.project_id,
        alias.name,
        version_id,
        why,
        {"from": alias.live_version_id, "to": version_id},
        why_moved,
    )


async def _live_before(conn: AsyncConnection, version_id: str) -> str | None:
    """Return the version that was live before `version_id` was last promoted: the target of a second rollback."""
    query = (
        select(ledger_table.c.detail)
        .where(
            ledger_table.c.object_kind == "version",
            ledger_table.c.object_id == version_id,
            ledger_table.c.code.in_(("promote", "gate")),
        )
        .order_by(ledger_table.c.id.desc())
        .limit(1)
    )
    detail = (await conn.execute(query)).scalar_one_or_none()
    return detail["from"] if detail else None


async def _point(conn: AsyncConnection, alias: AliasView, **values: Any) -> None:
    await conn.execute(
        update(aliases)
        .where(aliases.c.id == alias.id)
        .values(generation=aliases.c.generation + 1, updated_at=now(), **values)
    )


async def _require_own(conn: AsyncConnection, alias: AliasView, version_id: str) -> tuple[str, str, str | None]:
    columns = (versions.c.alias_id, versions.c.number, versions.c.state, versions.c.reason)
    row = (await conn.execute(select(*columns).where(versions.c.id == version_id))).first()
    if row is None or row.alias_id != alias.id:
        raise NotFound(f"alias {alias.name!r} has no version {version_id}")
    return f"{alias.name}@{row.number}", row.state, row.reason


async def require_servable(conn: AsyncConnection, alias: AliasView, version_id: str) -> None:
    """Raise Conflict if a version did not pass its gate or has no folder, NotFound if it is another alias's."""
    name, state, reason = await _require_own(conn, alias, version_id)
    if state not in _SERVABLE:
        because = f" ({reason})" if reason else ""
        raise Conflict(
            f"{name} is {state}{because} and cannot be made live: only a version that passed its gate "
            f"({', '.join(_SERVABLE)}) can. `hone versions` lists them."
        )
    await _require_folder(conn, version_id, name)


async def _require_folder(conn: AsyncConnection, version_id: str, name: str) -> None:
    published = versions.c.manifest_sha256.is_not(None)
    removed = (versions.c.id == version_id, published, versions.c.path.is_(None))
    if (await conn.execute(select(versions.c.id).where(*removed))).first() is not None:
        raise Conflict(
            f"{name} cannot be made live: its folder was removed, because only the newest versions are kept "
            "(trainer.keep_versions). `hone versions` shows the others."
        )


async def require_child(conn: AsyncConnection, alias: AliasView, version_id: str) -> None:
    """Raise Conflict if a version is retired or not trained from the live one, NotFound if it is another alias's."""
    name, state, _ = await _require_own(conn, alias, version_id)
    if state == VersionState.RETIRED:
        raise Conflict(f"{name} was taken out of service in the meantime: only a person can make it live again")
    query = select(versions.c.parent_id).where(versions.c.id == version_id)
    if (await conn.execute(query)).scalar_one() != alias.live_version_id:
        raise Conflict(
            f"{name} was trained from a version that is no longer live: accepting it would drop what was learned "
            "since. Reject it as parent_left."
        )


async def is_held(conn: AsyncConnection, alias: AliasView, version_id: str) -> bool:
    """Return whether a share of new trajectories is held back when a version replaces the alias's live one.

    Not if the alias moves back to an earlier version, because the operator wants the later one out of service. And not
    for a campaign's version, which was validated on scenarios.
    """
    if alias.holdback_share <= 0 or alias.live_version_id is None:
        return False
    ancestors = {row.id for row in await conn.execute(ancestry.ancestry_ages(version_id))}
    return alias.live_version_id in ancestors and not await _is_of_campaign(conn, version_id)


async def _is_of_campaign(conn: AsyncConnection, version_id: str) -> bool:
    made = (steps.c.version_id == version_id, steps.c.state == StepState.DONE, steps.c.campaign_id.is_not(None))
    return (await conn.execute(select(steps.c.id).where(*made))).first() is not None
