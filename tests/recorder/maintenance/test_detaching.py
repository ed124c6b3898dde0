"""Calls that store their prompt as a difference to another trajectory's stand alone before that one is deleted."""

from __future__ import annotations

from typing import Any

from sqlalchemy import select

from recorder.maintenance.deletion import delete_trajectory
from recorder.maintenance.dependents import detach_dependents, has_dependents
from recorder.messages.calls import Address, RecordedCall
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.views.trajectories.transcripts import load_trajectory
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user

PROMPT, SAMPLED = list(range(1000)), list(range(2000, 2300))
LONGER = [*PROMPT, *SAMPLED, 1, 2, 3, 7, 8, 9, *range(5000, 5200)]


async def continued(talk: Talk) -> tuple[list[Any], list[RecordedCall]]:
    """A run of two calls that ended, and its continuation of two: the conversation, and all turns."""
    at = Address(trajectory="run")
    said = choice(assistant("a"), token_ids=SAMPLED, logprobs=[-0.5] * 300)
    history: list[Any] = [user("q")]
    turns = [await talk.call(history, [said], at, prompt_token_ids=PROMPT)]
    history += [assistant("a"), user("r")]
    turns.append(await talk.call(history, "b", at, prompt_token_ids=[*PROMPT, *SAMPLED, 1, 2, 3]))
    await talk.recorder.close(PROJECT, turns[0].attribution.trajectory.id)
    history += [assistant("b"), user("s")]
    turns.append(await talk.call(history, "c", at, prompt_token_ids=LONGER))
    history += [assistant("c"), user("t")]
    turns.append(await talk.call(history, "d", at, prompt_token_ids=[*LONGER, 7, 8, 9, 4]))
    return [*history, assistant("d")], turns


async def shared_ids(store: Store, call_id: str) -> int:
    async with store.read() as conn:
        return int((await conn.execute(select(calls.c.prompt_shared).where(calls.c.id == call_id))).scalar_one())


async def row_of(store: Store, trajectory_id: str) -> Any:
    async with store.read() as conn:
        return (await conn.execute(select(trajectories).where(trajectories.c.id == trajectory_id))).one()


async def leant_on(store: Store, trajectory_id: str) -> bool:
    row = await row_of(store, trajectory_id)
    async with store.read() as conn:
        return await has_dependents(conn, row)


async def test_detaching_changes_nothing_that_is_read_however_often(store: Store, talk: Talk) -> None:
    _, (first, _, third, fourth) = await continued(talk)
    gone, kept = first.attribution.trajectory.id, third.attribution.trajectory.id
    assert gone != kept
    assert await shared_ids(store, third.call_id) > 1000
    assert (await leant_on(store, gone), await leant_on(store, kept)) == (True, False)
    before = [await load_trajectory(store, id_, with_tokens=True) for id_ in (gone, kept)]
    for _ in range(2):
        await detach_dependents(store, await row_of(store, gone))
        assert not await leant_on(store, gone)
        assert await shared_ids(store, third.call_id) == 0
        assert await shared_ids(store, fourth.call_id) > 1000  # within its own run it goes on leaning
        assert [await load_trajectory(store, id_, with_tokens=True) for id_ in (gone, kept)] == before


async def test_a_continuation_keeps_its_token_ids_when_what_it_went_on_from_is_deleted(
    store: Store, talk: Talk
) -> None:
    history, (first, _, third, fourth) = await continued(talk)
    before = await load_trajectory(store, third.attribution.trajectory.id, with_tokens=True)
    await delete_trajectory(Project(store, PROJECT), first.attribution.trajectory.id)
    after = await load_trajectory(store, third.attribution.trajectory.id, with_tokens=True)
    assert after == before
    assert [list(c.prompt_token_ids or ()) for c in after.calls] == [LONGER, [*LONGER, 7, 8, 9, 4]]
    at = Address(trajectory="run")
    fifth = await talk.call([*history, user("u")], "e", at, prompt_token_ids=[*LONGER, 7, 8, 9, 4, 7])
    assert fifth.attribution.parent is not None
    assert fifth.attribution.parent.call_id == fourth.call_id
