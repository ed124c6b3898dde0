"""The engine that a trajectory stays on: written with its calls, cached, and the same for every process."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

from sqlalchemy import select

from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address, RecordedCall, TrajectoryRef
from recorder.settings import RecorderSettings
from recorder.states import CallState, TrajectoryState
from recorder.store.database import Store
from recorder.store.schema import trajectories
from recorder.store.write_backends import StoreBackend
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, request, user

E1, E2 = "http://e1:1", "http://e2:2"
FIRST = [user("?")]
SECOND = [user("?"), assistant("!"), user("more")]
THIRD = [*SECOND, assistant("!!"), user("and more")]
RUN = Address(trajectory="run")


async def stored(store: Store) -> dict[str, str | None]:
    """The engine of each trajectory, by id."""
    async with store.read() as conn:
        rows = await conn.execute(select(trajectories.c.id, trajectories.c.engine_url).order_by(trajectories.c.id))
        return {row.id: row.engine_url for row in rows}


async def at(talk: Talk, address: Address = RUN) -> TrajectoryRef:
    return await talk.recorder.trajectory_at(PROJECT, None, address, request(FIRST), None)


@asynccontextmanager
async def another(store: Store) -> AsyncIterator[Talk]:
    """Another process at the same store."""
    recorder = Recorder(store, RecorderSettings(), StoreBackend(store))  # whose queries a test sees
    await recorder.start()
    yield Talk(recorder)
    await recorder.stop()


def engine_of(call: RecordedCall) -> str | None:
    return call.attribution.trajectory.engine_url


async def test_the_engine_of_the_first_answer_is_stored_with_its_call(store: Store, talk: Talk) -> None:
    for address in (RUN, Address()):  # with a row before its call, and without
        made = await talk.call(FIRST, "!", address, engine_url=E1)
        assert (await stored(store))[made.attribution.trajectory.id] == E1
    assert (await at(talk)).engine_url == E1
    async with another(store) as other:
        assert (await at(other)).engine_url == E1


async def test_a_conversation_without_an_address_keeps_its_engine(store: Store, talk: Talk) -> None:
    await talk.call(FIRST, "!", engine_url=E1)
    assert engine_of(await talk.call(SECOND, "!!")) == E1
    async with another(store) as other:
        assert engine_of(await other.call(THIRD, "!!!")) == E1
    assert list((await stored(store)).values()) == [E1]


async def test_the_engine_that_answered_last_counts_and_a_call_without_an_answer_changes_nothing(
    store: Store, talk: Talk
) -> None:
    await talk.call(FIRST, "!", RUN, engine_url=E1)
    await talk.call(SECOND, "!!", RUN, engine_url=E2)
    await talk.call(THIRD, [], RUN, state=CallState.ERRORED)
    assert list((await stored(store)).values()) == [E2]
    assert (await at(talk)).engine_url == E2


async def test_an_engine_is_cached_before_its_first_answer_for_calls_that_run_beside(store: Store, talk: Talk) -> None:
    ref = await at(talk)
    assert ref.engine_url is None
    talk.recorder.keep_engine(ref.id, E1)
    assert (await at(talk)).engine_url == E1
    assert list((await stored(store)).values()) == [None]


async def test_a_continuation_begins_on_the_engine_of_what_it_continues(store: Store, talk: Talk) -> None:
    for address in (RUN, Address()):
        first = await talk.call(FIRST, "!", address, engine_url=E1)
        await talk.recorder.close(PROJECT, first.attribution.trajectory.id, TrajectoryState.COMPLETED)
        assert engine_of(await talk.attributed(SECOND, [], address)) == E1
        going_on = await talk.call(SECOND, "!!", address)
        assert going_on.attribution.trajectory.id != first.attribution.trajectory.id
    assert list((await stored(store)).values()) == [E1] * 4


async def test_a_call_of_a_trajectory_that_was_sealed_meanwhile_takes_its_engine_along(
    store: Store, talk: Talk
) -> None:
    first = await talk.call(FIRST, "!", RUN, engine_url=E1)
    late = await talk.attributed(SECOND, [], RUN)
    async with another(store) as other:
        await other.recorder.close(PROJECT, first.attribution.trajectory.id)
    await talk.recorder.commit(late)
    assert list((await stored(store)).values()) == [E1, E1]


async def test_another_process_learns_of_a_move_by_the_call_that_moved(store: Store, talk: Talk) -> None:
    await talk.call(FIRST, "!", RUN, engine_url=E1)
    async with another(store) as other:
        await other.call(SECOND, "!!", RUN, engine_url=E2)
    asked = await talk.attributed(THIRD, [], RUN)
    assert engine_of(asked) == E1, "as cached"
    ref = await talk.recorder.find.with_stored_engine(asked.attribution.trajectory, asked.attribution.parent)
    assert ref == replace(asked.attribution.trajectory, engine_url=E2)
    assert (await at(talk)).engine_url == E2, "it is cached"


async def test_the_engine_of_a_known_trajectory_needs_no_query(store: Store) -> None:
    async def queries_for(talk: Talk) -> list[str]:
        asked = await talk.attributed(SECOND, [], RUN)
        with Rows(store).statements(of_reads=True) as queries:
            where = (await talk.attributed(SECOND, [], RUN)).attribution
            ref = await talk.recorder.find.with_stored_engine(where.trajectory, where.parent)
        assert ref.engine_url == engine_of(asked) == E1
        return queries

    async with another(store) as talk, another(store) as other:
        await talk.call(FIRST, "!", RUN, engine_url=E1)
        assert await queries_for(talk) == []
        assert len(await queries_for(other)) > 0
