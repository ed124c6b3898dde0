"""Change a state by one guarded UPDATE, allowed by the tables of `recorder.states`.

No other module changes a state column.

Owns: the allowed source states, the guard by lease owner and epoch, and the errors of a rejected change. Refuses: why
something changes state.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Any, NoReturn

from sqlalchemy import Table, Update, or_, select, update
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder import states
from recorder.errors import Conflict, LeaseLost, NotFound
from recorder.store.sql import now

MACHINES: Mapping[str, Mapping[Any, frozenset[Any]]] = {
    "trajectories": states.TRAJECTORY,
    "calls": states.CALL,
    "groups": states.GROUP,
    "versions": states.VERSION,
    "campaigns": states.CAMPAIGN,
    "attempts": states.ATTEMPT,
    "steps": states.STEP,
    "notifications": states.NOTIFICATION,
}


def source_states(table: Table, to: StrEnum) -> frozenset[str]:
    """Return the states from which an object of `table` may become `to`."""
    return frozenset(source for source, targets in MACHINES[table.name].items() if to in targets)


def guarded_update(
    table: Table, to: StrEnum, *, expect: StrEnum | Collection[StrEnum] | None = None, **values: Any
) -> Update:
    """Return an UPDATE to state `to` of only the rows whose state may become it. Add `where` before executing.

    `expect` restricts the source states. Raises ValueError for a source state from which `to` is not allowed (a bug).
    """
    allowed = source_states(table, to)
    asked = allowed if expect is None else {expect} if isinstance(expect, StrEnum) else frozenset(expect)
    if not asked or not asked <= allowed:
        raise ValueError(f"{table.name} may not become {to} from {sorted(asked - allowed) or 'any state'}")
    stamp = {"state_at": now()} if "state_at" in table.c else {}
    comes_from = or_(*(table.c.state == state for state in sorted(asked)))  # `in_` cannot be executed for many rows
    return update(table).where(comes_from).values(state=to, **stamp, **values)


async def move_state(
    conn: AsyncConnection,
    table: Table,
    id: str,  # noqa: A002 - the column's name
    to: StrEnum,
    *,
    expect: StrEnum | Collection[StrEnum] | None = None,
    owner: str | None = None,
    epoch: int | None = None,
    **values: Any,
) -> None:
    """Move one object to state `to` and set `values`.

    With `owner` and `epoch` the object's lease must still belong to them, and the move ends that lease. Raises
    NotFound, LeaseLost if another owner has the lease, Conflict if the state does not allow the move.
    """
    if owner is not None:
        values = {"lease_owner": None, "lease_expires_at": None, **values}
    statement = guarded_update(table, to, expect=expect, **values).where(table.c.id == id)
    if owner is not None:
        statement = statement.where(table.c.lease_owner == owner, table.c.lease_epoch == epoch)
    if (await conn.execute(statement)).rowcount == 0:
        await _refuse(conn, table, id, to, owner, epoch)


async def try_move_state(
    conn: AsyncConnection,
    table: Table,
    id: str,  # noqa: A002 - the column's name
    to: StrEnum,
    **values: Any,
) -> bool:
    """As `move_state`, but returns False if the object is in another state or does not exist."""
    return (await conn.execute(guarded_update(table, to, **values).where(table.c.id == id))).rowcount > 0


async def _refuse(
    conn: AsyncConnection, table: Table, object_id: str, to: StrEnum, owner: str | None, epoch: int | None
) -> NoReturn:
    row = (await conn.execute(select(table).where(table.c.id == object_id))).mappings().first()
    what = f"{table.name} {object_id}"
    if row is None:
        raise NotFound(f"{what} does not exist")
    if owner is not None and (row["lease_owner"], row["lease_epoch"]) != (owner, epoch):
        holder = row["lease_owner"] or "no one"
        raise LeaseLost(
            f"{what} is no longer held by {owner} (epoch {epoch}): its lease expired and {holder} holds it now "
            f"(epoch {row['lease_epoch']}, state {row['state']}). Discard the work and claim again."
        )
    raise Conflict(f"{what} is {row['state']}, from where it cannot become {to}")
