"""What a version must be for its alias to move to it: its own, through its gate, with a folder, and in the line.

Owns: these conditions, inside the transaction that moves the alias (`recorder.registry.aliases`), and what is said
where they are not met. Refuses: moving.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.errors import Conflict, NotFound
from recorder.states import VersionState
from recorder.store.schema import versions

if TYPE_CHECKING:
    from recorder.registry.aliases import AliasView

_SERVABLE: Final = (VersionState.GATED, VersionState.CANARY, VersionState.RETIRED)


async def _require_own(conn: AsyncConnection, alias: AliasView, version_id: str) -> tuple[str, str, str | None]:
    columns = (versions.c.alias_id, versions.c.number, versions.c.state, versions.c.reason)
    row = (await conn.execute(select(*columns).where(versions.c.id == version_id))).first()
    if row is None or row.alias_id != alias.id:
        raise NotFound(f"alias {alias.name!r} has no version {version_id}")
    return f"{alias.name}@{row.number}", row.state, row.reason


async def require_servable(conn: AsyncConnection, alias: AliasView, version_id: str) -> None:
    """Raise Conflict for a version that did not pass its gate or lost its folder, NotFound for another alias's."""
    name, state, reason = await _require_own(conn, alias, version_id)
    if state not in _SERVABLE:
        because = f" ({reason})" if reason else ""
        raise Conflict(
            f"{name} is {state}{because} and cannot be made live: only a version that passed its gate "
            f"({', '.join(_SERVABLE)}) can. `hone versions` shows which do."
        )
    await _require_folder(conn, version_id, name)


async def _require_folder(conn: AsyncConnection, version_id: str, name: str) -> None:
    published = versions.c.manifest_sha256.is_not(None)
    gone = (versions.c.id == version_id, published, versions.c.path.is_(None))
    if (await conn.execute(select(versions.c.id).where(*gone))).first() is not None:
        raise Conflict(
            f"{name} cannot be made live: its folder was removed, since it was none of the newest "
            "(trainer.keep_versions). `hone versions` shows the others."
        )


async def require_child(conn: AsyncConnection, alias: AliasView, version_id: str) -> None:
    """Raise Conflict for a version that was not trained from the live one: it would leave the line."""
    name, state, _ = await _require_own(conn, alias, version_id)
    if state == VersionState.RETIRED:
        raise Conflict(f"{name} was taken out of service in the meantime: only a person makes it live again")
    query = select(versions.c.parent_id).where(versions.c.id == version_id)
    if (await conn.execute(query)).scalar_one() != alias.live_version_id:
        raise Conflict(
            f"{name} was trained from a version that is not live any more: accepted, it would drop what was learned "
            "since. It is to be rejected as parent_left."
        )
