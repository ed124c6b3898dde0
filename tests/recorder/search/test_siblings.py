"""Choices of one first call that became runs of their own: each is found by what it says, as any other run."""

from __future__ import annotations

from sqlalchemy import select

from recorder.maintenance.deletion import delete_trajectory
from recorder.messages.calls import Address
from recorder.search.documents import queue_all_calls
from recorder.search.matches import load_snippets
from recorder.store.database import Project, Store
from recorder.store.schema import said, trajectories, unindexed
from tests.recorder.search.conftest import Index
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user

HERE = Address(group="task", trajectory="0")
ANSWERS = ["zanzibar", "kilimanjaro", "serengeti"]


async def split(store: Store, talk: Talk, index: Index) -> tuple[str, list[str]]:
    """A call with three choices, indexed, and its run ended: the call, and its runs in the order of their choices."""
    choices = [choice(assistant(f"go to {place}"), at) for at, place in enumerate(ANSWERS)]
    made = await talk.call([user("where to, captain")], choices, HERE)
    await index.fill()
    assert await index.saying("kilimanjaro") == await index.saying("zanzibar") == [made.attribution.trajectory.id]
    await talk.recorder.close(PROJECT, made.attribution.trajectory.id)
    async with store.read() as conn:
        query = select(trajectories.c.id).order_by(trajectories.c.leaf_choice)
        return made.call_id, list((await conn.execute(query)).scalars())


async def found(index: Index) -> list[list[str]]:
    return [await index.saying(place) for place in ANSWERS]


async def test_each_is_found_by_its_own_choice_and_by_the_prompt(store: Store, talk: Talk, index: Index) -> None:
    call_id, runs = await split(store, talk, index)
    await index.fill()
    assert await found(index) == [[run] for run in runs]
    assert await index.saying("captain") == sorted(runs, reverse=True)
    assert await index.saying("captain serengeti") == [runs[2]]
    shown = await load_snippets(Project(store, PROJECT), "serengeti", runs)
    assert {run: (one.call_id, one.text) for run, one in shown.items()} == {runs[2]: (call_id, "go to serengeti")}


async def test_one_that_is_deleted_is_found_no_more_and_the_others_are(store: Store, talk: Talk, index: Index) -> None:
    _, runs = await split(store, talk, index)
    await index.fill()
    for place, run in enumerate(runs[:2]):
        await delete_trajectory(Project(store, PROJECT), run)
        await index.fill()
        assert await found(index) == [[]] * (place + 1) + [[other] for other in runs[place + 1 :]]
    await delete_trajectory(Project(store, PROJECT), runs[2])
    async with store.read() as conn:
        assert (await conn.execute(select(said))).all() == (await conn.execute(select(unindexed))).all() == []


async def test_a_store_that_is_indexed_anew_has_them_too(store: Store, talk: Talk, index: Index) -> None:
    _, runs = await split(store, talk, index)
    await index.fill()
    async with store.write() as conn:
        await conn.execute(said.delete())
        await queue_all_calls(conn)
    await index.fill()
    assert await found(index) == [[run] for run in runs]
