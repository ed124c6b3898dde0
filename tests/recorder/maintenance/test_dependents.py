"""Messages and tools that several runs share stay until the last of them is deleted."""

from __future__ import annotations

from sqlalchemy import func, select

from recorder.maintenance.deletion import delete_trajectory
from recorder.messages.calls import Address
from recorder.store.database import Project, Store
from recorder.store.schema import blobs, nodes
from tests.recorder.talk import PROJECT, Talk, user

SYSTEM = {"role": "system", "content": "You help."}
TOOLS = [{"type": "function", "function": {"name": "find"}}]


async def run(talk: Talk, number: int, *said: str) -> str:
    """A run that shares its first message and its tools with all others; `said`: tries at its first turn."""
    address = Address(trajectory=str(number))
    for text in said:
        made = await talk.call([SYSTEM, user(text)], f"answer to {text}", address, tools=TOOLS)
    await talk.recorder.close(PROJECT, made.attribution.trajectory.id)
    return made.attribution.trajectory.id


async def count(store: Store) -> tuple[int, int]:
    async with store.read() as conn:
        tables = (nodes, blobs)
        found = [(await conn.execute(select(func.count()).select_from(table))).scalar_one() for table in tables]
    return found[0], found[1]


async def test_what_is_shared_stays_until_the_last_user_goes(store: Store, talk: Talk) -> None:
    runs = [await run(talk, number, f"a{number}", f"b{number}") for number in range(3)]
    assert (await count(store))[0] == 1 + 3 * 4
    for left, run_id in enumerate(runs):
        await delete_trajectory(Project(store, PROJECT), run_id)
        assert (await count(store))[0] == (0 if left == 2 else 1 + (2 - left) * 4)
    assert (await count(store))[1] == 0
