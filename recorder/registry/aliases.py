"""Aliases: the stable names agents ask for, and which version each points at.

Owns: making an alias with its version 0, moving the alias (promote, roll back, gate, canary), its generation. Refuses:
loading, probing and draining versions (the proxy's controller), choosing one for a request
(`proxy.versions.in_service`), which version may be moved to (`recorder.registry.fit`), what was trained as it moves
(`recorder.registry.descent`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, InvalidId, NotFound
from recorder.ids import new_id
from recorder.registry import descent, fit, holdback, moves
from recorder.registry.holdback import Holdback
from recorder.registry.moves import Said
from recorder.states import VersionState
from recorder.store import ledger, sql
from recorder.store.database import Store, now
from recorder.store.ledger import LedgerRow
from recorder.store.project import Project
from recorder.store.schema import aliases, versions
from recorder.store.schema import ledger as ledger_table
from recorder.store.transitions import move

Why = Literal["promote", "rollback", "gate"]
Baseline = Literal["group", "running"]
_NAME: Final = re.compile(r"[A-Za-z0-9._:~/-]{1,128}")  # org/model is usual; @ would mean a version
BY_HAND: Final = "hand"  # who moved an alias: a person, by whatever way
ROLLED_BACK: Final = "rollback"  # reason of a retired version: its pins are void at once
_SPOILT: Final = (VersionState.REJECTED, VersionState.ABANDONED)


@dataclass(frozen=True, slots=True)
class AliasView:
    """One alias. `generation` counts every move, so that who compares sees a change; `canary_share` is in 0..1.

    `baseline`: what its runs' rewards are compared with in training, those of their group or the alias's earlier ones
    (`recorder.work.baselines`). `watched_until` (unix seconds of the database's clock): until then the live version is
    compared with the previous one, on which `holdback_share` of new runs stays (`recorder.registry.holdback`).
    """

    id: str
    project_id: str
    name: str
    base_model: str
    base_fingerprint: str | None
    live_version_id: str | None
    previous_version_id: str | None
    canary_version_id: str | None
    canary_share: float
    recipe: dict[str, Any]
    generation: int
    baseline: Baseline = "group"
    holdback_share: float = 0.0
    rollback_watch_s: float = 0.0
    watched_until: float | None = None


_COLUMNS: Final = [aliases.c[name] for name in AliasView.__slots__]


async def ensure_alias(
    project: Project,
    name: str,
    base_model: str,
    base_fingerprint: str | None,
    *,
    recipe: dict[str, Any] | None = None,
    baseline: Baseline | None = None,
    held: Holdback | None = None,
) -> AliasView:
    """The alias of that name, made with a live version 0 (the base without an adapter) if it is not there.

    A changed base is taken over as long as nothing was trained on the old one; afterwards it is a Conflict. `baseline`,
    `held` (what its next promotions hold back) None: as they are.
    """
    if not _NAME.fullmatch(name):
        raise InvalidId(f"the model name {name[:160]!r} is not valid: use 1 to 128 of A-Z a-z 0-9 . _ : ~ / -")
    async with project.store.write() as conn:
        found = await _by_name(conn, project.id, name)
        if found is None:
            await _create(conn, project.id, name, base_model, base_fingerprint, recipe or {})
        elif base_model != found.base_model or base_fingerprint not in (None, found.base_fingerprint):
            await _take_over_base(conn, found, base_model, base_fingerprint)
        alias = await _by_name(conn, project.id, name)
        assert alias is not None
        said = ({} if baseline is None else {"baseline": baseline}) | (held.columns if held is not None else {})
        if any(getattr(alias, column) != value for column, value in said.items()):
            await conn.execute(update(aliases).where(aliases.c.id == alias.id).values(**said, updated_at=now()))
        return await _lock(conn, alias.id)


async def _by_name(conn: AsyncConnection, project_id: str, name: str) -> AliasView | None:
    query = select(*_COLUMNS).where(aliases.c.project_id == project_id, aliases.c.name == name)
    row = (await conn.execute(query.with_for_update())).first()
    return sql.view(AliasView, row) if row else None


async def _create(
    conn: AsyncConnection, project_id: str, name: str, base_model: str, fingerprint: str | None, recipe: dict[str, Any]
) -> None:
    alias_id, version_id = new_id("alias"), new_id("ver")
    made = await conn.execute(
        sql.insert_ignore(conn, aliases).values(
            id=alias_id,
            project_id=project_id,
            name=name,
            base_model=base_model,
            base_fingerprint=fingerprint,
            live_version_id=version_id,
            recipe=recipe,
            updated_at=now(),
        )
    )
    if made.rowcount == 0:  # another process made it at the same moment
        return
    await conn.execute(
        insert(versions).values(
            id=version_id,
            project_id=project_id,
            alias_id=alias_id,
            number=0,
            state=VersionState.LIVE,
            engine_name=base_model,
            base_fingerprint=fingerprint,
            metrics={},
            created_at=now(),
            state_at=now(),
        )
    )


@dataclass(frozen=True, slots=True)
class OtherBase:
    """That an alias was trained on another base than is there now: what was found, and what to do about it."""

    found: str
    todo: str = (
        "Put the old base back (its weights, precision, tokenizer and chat template), or use another alias name, or "
        "another --data folder."
    )


async def other_base(store: Store, alias: AliasView, base_model: str, fingerprint: str | None) -> OtherBase | None:
    """Whether the alias has versions of another base than this one."""
    async with store.read() as conn:
        return await _other_base(conn, alias, base_model, fingerprint)


async def _other_base(
    conn: AsyncConnection, alias: AliasView, base_model: str, fingerprint: str | None
) -> OtherBase | None:
    if _same_base(alias, base_model, fingerprint) or not await _has_adapters(conn, alias.id):
        return None
    trained_on, now_there = _shown(alias.base_model, alias.base_fingerprint), _shown(base_model, fingerprint)
    return OtherBase(f"the versions of {alias.name!r} were trained on the base {trained_on}, not on {now_there}.")


async def _take_over_base(conn: AsyncConnection, alias: AliasView, base_model: str, fingerprint: str | None) -> None:
    if other := await _other_base(conn, alias, base_model, fingerprint):
        raise Conflict(f"{other.found} {other.todo}")
    await conn.execute(
        update(aliases)
        .where(aliases.c.id == alias.id)
        .values(
            base_model=base_model,
            base_fingerprint=fingerprint,
            generation=aliases.c.generation + 1,
            updated_at=now(),
        )
    )
    await conn.execute(
        update(versions)
        .where(versions.c.alias_id == alias.id, versions.c.number == 0)
        .values(engine_name=base_model, base_fingerprint=fingerprint)
    )
    detail = {"from": alias.base_fingerprint, "to": fingerprint, "base_model": base_model}
    await ledger.write(conn, [LedgerRow(alias.project_id, "alias", alias.id, "base_changed", detail)])


def _same_base(alias: AliasView, base_model: str, fingerprint: str | None) -> bool:
    """Whether the bases are one: by their fingerprints where both are known, else by their name."""
    if fingerprint is None or alias.base_fingerprint is None:
        return base_model == alias.base_model
    return fingerprint == alias.base_fingerprint


async def _has_adapters(conn: AsyncConnection, alias_id: str) -> bool:
    query = select(func.count()).where(
        versions.c.alias_id == alias_id, versions.c.number > 0, versions.c.state.not_in(_SPOILT)
    )
    return bool((await conn.execute(query)).scalar_one())


def _shown(base_model: str, fingerprint: str | None) -> str:
    return f"{base_model} (fingerprint {fingerprint[:12] if fingerprint else 'unknown'})"


async def get_aliases(project: Project) -> list[AliasView]:
    """Every alias of the project, by name: one cheap SELECT."""
    async with project.store.read() as conn:
        return await read_aliases(conn, project.id)


async def read_aliases(conn: AsyncConnection, project_id: str) -> list[AliasView]:
    """`get_aliases`, inside the caller's transaction."""
    query = select(*_COLUMNS).where(aliases.c.project_id == project_id).order_by(aliases.c.name)
    return sql.views(AliasView, await conn.execute(query))


async def get_alias(project: Project, name: str) -> AliasView:
    """The alias of that name. Raises NotFound, which names those that are there."""
    found = await get_aliases(project)
    for alias in found:
        if alias.name == name:
            return alias
    there = ", ".join(a.name for a in found) or "none yet"
    raise NotFound(f"no alias {name!r} in project {project.id!r}; there is: {there}")


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
    """Make a version live: the old one retires, the generation counts up, what is trained changes with the line, and
    it is watched where the alias says so.

    The ledger says why (`reason`: in words), who and by which figures. All of it is one transaction. Making the live
    version live again changes nothing. Raises Conflict for a version that is not fit to serve, and for one that the
    gate passed (`why`) and whose parent is not live any more: it would leave the line.
    """
    async with store.write() as conn:
        alias = await _lock(conn, alias_id)
        if alias.live_version_id != version_id:
            await fit.require_servable(conn, alias, version_id)
            if why == "gate":
                await fit.require_child(conn, alias, version_id)
            await _swap(conn, alias, version_id, why, Said(who, reason, figures))
        return await _lock(conn, alias_id)


async def rollback(
    store: Store,
    alias_id: str,
    *,
    left: str | None = None,
    who: str = BY_HAND,
    reason: str | None = None,
    figures: Mapping[str, Any] | None = None,
) -> AliasView:
    """Go back to the version that was live before: what only the one that is left was trained on is untrained.

    Raises Conflict where there is none, and where another version than `left` is live by now.
    """
    async with store.write() as conn:
        alias = await _lock(conn, alias_id)
        if alias.previous_version_id is None:
            raise Conflict(f"alias {alias.name!r} has no earlier version to go back to")
        if left not in (None, alias.live_version_id):
            raise Conflict(f"alias {alias.name!r} moved in the meantime: {left} is not live any more")
        await fit.require_servable(conn, alias, alias.previous_version_id)
        await _swap(conn, alias, alias.previous_version_id, "rollback", Said(who, reason, figures))
        return await _lock(conn, alias_id)


async def end_watch(
    store: Store, alias_id: str, version_id: str, *, who: str, figures: Mapping[str, Any] | None = None
) -> AliasView:
    """A live version was watched for as long as it was to be, and stays: no run is held back any more.

    Raises Conflict where it is not watched any more.
    """
    async with store.write() as conn:
        alias = await _lock(conn, alias_id)
        if alias.live_version_id != version_id or alias.watched_until is None:
            raise Conflict(f"alias {alias.name!r} moved in the meantime: {version_id} is not watched any more")
        await _point(conn, alias, watched_until=None)
        await moves.write(conn, alias.project_id, alias.name, version_id, "watch_ended", {}, Said(who, None, figures))
        return await _lock(conn, alias_id)


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
    """Give a gated version, or the canary, a share (0..1) of new groups; None takes the canary out (retired).

    The ledger says who did it and by which figures. What a canary that is taken away was trained on is left out: it was
    rolled back. Raises Conflict for a version whose
    parent is not live.
    """
    if not 0.0 <= share <= 1.0:
        raise ValueError(f"canary share {share} is not in 0..1")
    said = Said(who, reason, figures)
    async with store.write() as conn:
        alias = await _lock(conn, alias_id)
        if alias.canary_version_id not in (None, version_id):
            await move(conn, versions, alias.canary_version_id, VersionState.RETIRED, reason=ROLLED_BACK)
            await descent.end(conn, alias.canary_version_id, "left_out", ROLLED_BACK)
            await moves.write(conn, alias.project_id, alias.name, alias.canary_version_id, "canary_ended", {}, said)
        if version_id is not None and version_id != alias.canary_version_id:
            await fit.require_child(conn, alias, version_id)
            await move(conn, versions, version_id, VersionState.CANARY)
        if version_id is not None and (version_id, share) != (alias.canary_version_id, alias.canary_share):
            await moves.write(conn, alias.project_id, alias.name, version_id, "canary", {"share": share}, said)
        await _point(conn, alias, canary_version_id=version_id, canary_share=share if version_id else 0.0)
        return await _lock(conn, alias_id)


async def drop_canary(conn: AsyncConnection, version_id: str) -> None:
    """Forget a version as canary wherever it is one: it was rejected."""
    await conn.execute(
        update(aliases)
        .where(aliases.c.canary_version_id == version_id)
        .values(canary_version_id=None, canary_share=0.0, generation=aliases.c.generation + 1, updated_at=now())
    )


async def _lock(conn: AsyncConnection, alias_id: str) -> AliasView:
    row = (await conn.execute(select(*_COLUMNS).where(aliases.c.id == alias_id).with_for_update())).first()
    if row is None:
        raise NotFound(f"no alias {alias_id}")
    return sql.view(AliasView, row)


async def _swap(
    conn: AsyncConnection,
    alias: AliasView,
    version_id: str,
    why: Why,
    said: Said,
) -> None:
    if alias.live_version_id is not None:
        left = ROLLED_BACK if why == "rollback" else None
        await move(conn, versions, alias.live_version_id, VersionState.RETIRED, reason=left)
    await move(conn, versions, version_id, VersionState.LIVE, reason=None)
    before = alias.live_version_id if why != "rollback" else await _lived_before(conn, version_id)
    canary_ends = alias.canary_version_id == version_id
    share = {"canary_version_id": None, "canary_share": 0.0} if canary_ends else {}
    is_watched = why != "rollback" and await holdback.is_held(conn, alias, version_id)
    until = now() + alias.rollback_watch_s if is_watched else None
    await _point(conn, alias, live_version_id=version_id, previous_version_id=before, watched_until=until, **share)
    await descent.move_line(conn, alias.live_version_id, version_id, why=why, who=said.who)
    await moves.write(
        conn, alias.project_id, alias.name, version_id, why, {"from": alias.live_version_id, "to": version_id}, said
    )


async def _lived_before(conn: AsyncConnection, version_id: str) -> str | None:
    """What was live before `version_id` first replaced it: where a second rollback goes, never to what was left."""
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
