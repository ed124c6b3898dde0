"""Aliases: the stable model names that agents use, and the base model of each.

Owns: creating an alias with its version 0, its settings in the store, its base, reading aliases. Refuses: moving an
alias to another version (`recorder.registry.alias_moves`), loading, probing and draining versions (the proxy's
controller), choosing one for a request (`proxy.versions.routing`).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import func, insert, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, InvalidId, NotFound
from recorder.ids import new_id
from recorder.states import VersionState
from recorder.store import ledger, sql
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import aliases, versions
from recorder.store.sql import now

Baseline = Literal["group", "running"]
_NAME: Final = re.compile(r"[A-Za-z0-9._:~/-]{1,128}")  # org/model is common; @ would mean a version
_SPOILT: Final = (VersionState.REJECTED, VersionState.ABANDONED)


@dataclass(frozen=True, slots=True)
class AliasView:
    """One alias. `generation` counts every move, so that a comparison shows a change; `canary_share` is in 0..1.

    `baseline`: what rewards are compared with in training, those of the group or the alias's earlier rewards
    (`recorder.queue.training.baselines`). Until `watched_until` (unix seconds of the database's clock) the live version
    is compared with the previous one, on which `holdback_share` of new trajectories stays.
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
    notes: dict[str, Any]
    generation: int
    baseline: Baseline = "group"
    holdback_share: float = 0.0
    rollback_watch_s: float = 0.0
    watched_until: float | None = None


@dataclass(frozen=True, slots=True)
class Holdback:
    """The share (0..1, 0: none) of new trajectories that stays on the version before, and for how long."""

    share: float
    watch_s: float

    @property
    def columns(self) -> dict[str, float]:
        """Return the columns of an alias's row."""
        return {"holdback_share": self.share, "rollback_watch_s": self.watch_s}


_STORED: Final = {"notes": "recipe"}  # field → column, if their names differ
_COLUMNS: Final = [aliases.c[_STORED.get(name, name)].label(name) for name in AliasView.__slots__]


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
    """Return the alias of that name; create it with a live version 0 (the base without an adapter) if it is missing.

    A changed base is accepted as long as nothing was trained on the old one; afterwards it raises Conflict. `baseline`
    and `held` (the holdback of its next promotions): None leaves them unchanged.
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
        return await lock_alias(conn, alias.id)


async def _by_name(conn: AsyncConnection, project_id: str, name: str) -> AliasView | None:
    query = select(*_COLUMNS).where(aliases.c.project_id == project_id, aliases.c.name == name)
    row = (await conn.execute(query.with_for_update())).first()
    return sql.as_view(AliasView, row) if row else None


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
    if made.rowcount == 0:  # another process created it at the same moment
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
    """An alias was trained on another base than the current one: what was found, and what to do."""

    found: str
    todo: str = (
        "Restore the old base (its weights, precision, tokenizer and chat template), or use another alias name, or "
        "another --data folder."
    )


async def other_base(store: Store, alias: AliasView, base_model: str, fingerprint: str | None) -> OtherBase | None:
    """Return OtherBase if the alias has versions of another base than this one, else None."""
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
    await ledger.write_rows(conn, [LedgerRow(alias.project_id, "alias", alias.id, "base_changed", detail)])


def _same_base(alias: AliasView, base_model: str, fingerprint: str | None) -> bool:
    """Whether an alias's base is this one: by the fingerprints if both are known, else by name."""
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
    """Return every alias of the project, by name, with one cheap SELECT."""
    async with project.store.read() as conn:
        return await read_aliases(conn, project.id)


async def read_aliases(conn: AsyncConnection, project_id: str) -> list[AliasView]:
    """`get_aliases`, inside the caller's transaction."""
    query = select(*_COLUMNS).where(aliases.c.project_id == project_id).order_by(aliases.c.name)
    return sql.as_views(AliasView, await conn.execute(query))


async def get_alias(project: Project, name: str) -> AliasView:
    """Return the alias of that name. Raises NotFound, which lists the existing aliases."""
    found = await get_aliases(project)
    for alias in found:
        if alias.name == name:
            return alias
    there = ", ".join(a.name for a in found) or "none yet"
    raise NotFound(f"no alias {name!r} in project {project.id!r}; the project has: {there}")


async def lock_alias(conn: AsyncConnection, alias_id: str) -> AliasView:
    """Return an alias by its id, locked until the transaction ends (PostgreSQL). Raises NotFound."""
    row = (await conn.execute(select(*_COLUMNS).where(aliases.c.id == alias_id).with_for_update())).first()
    if row is None:
        raise NotFound(f"no alias {alias_id}")
    return sql.as_view(AliasView, row)
