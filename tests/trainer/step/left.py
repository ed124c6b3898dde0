"""What a step left behind: in the store and on the disk."""

from __future__ import annotations

from sqlalchemy import select

from recorder.store import ledger, schema
from tests.trainer.world import World


async def group_state(world: World, group_id: str) -> tuple[str, str | None]:
    async with world.store.read() as conn:
        query = select(schema.groups.c.state, schema.groups.c.reason).where(schema.groups.c.id == group_id)
        row = (await conn.execute(query)).one()
    return row.state, row.reason


async def codes(world: World, kind: str, object_id: str) -> list[str]:
    return [entry.code for entry in await ledger.object_entries(world.store, kind, object_id)]


def folders(world: World, kind: str = "adapters") -> list[str]:
    folder = world.data / kind
    return sorted(path.name for path in folder.iterdir()) if folder.exists() else []
