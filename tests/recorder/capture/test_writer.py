"""The writer: turns committed in groups, one bad turn among many, a bounded queue, a store that others hold."""

from __future__ import annotations

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest
from asyncpg import UniqueViolationError
from sqlalchemy import event, select
from sqlalchemy.exc import IntegrityError
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.capture.recorder import Recorder
from recorder.capture.statements import INSERT_NODES
from recorder.errors import StoreUnavailable
from recorder.messages.calls import Address, RecordedCall, TrajectoryRef
from recorder.queue.groups.closure import close_group
from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from recorder.store.schema import calls, trajectories
from recorder.store.wal_checkpoint import Checkpointer, checkpoint
from recorder.store.write_backends import Executor, SqliteBackend, StoreBackend, WriteBackend, choose_backend
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, choice, request, turn, user

R = TypeVar("R")


class Gate:
    """A backend that lets writes through only while it is open, and counts them."""

    def __init__(self, backend: WriteBackend) -> None:
        self._backend = backend
        self.open = asyncio.Event()
        self.open.set()
        self.asked = 0
        self.writes = 0
        self.reads = 0
        self.broken = False
        self.races = 0  # so many next writes meet another process's

    async def start(self) -> None:
        await self._backend.start()

    async def stop(self) -> None:
        await self._backend.stop()

    async def write(
        self,
        work: Callable[[Executor], R],
        then: Callable[[AsyncConnection, R], Awaitable[None]] | None = None,
        *,
        large: bool = False,
    ) -> R:
        self.asked += 1
        await self.open.wait()
        if self.broken:
            raise StoreUnavailable("locked for too long")
        if self.races:
            self.races -= 1
            duplicate = UniqueViolationError("duplicate key value")
            duplicate.table_name = "groups"
            raise IntegrityError("INSERT INTO groups …", None, duplicate)
        self.writes += 1
        return await self._backend.write(work, then, large=large)

    async def read(self, work: Callable[[Executor], R], *, large: bool = False) -> R:
        self.reads += 1
        return await self._backend.read(work, large=large)

    def trouble(self) -> str | None:
        return self._backend.trouble()


@contextlib.asynccontextmanager
async def _recording(store: Store, backend: WriteBackend, **settings: object) -> AsyncIterator[Talk]:
    recorder = Recorder(store, RecorderSettings.model_validate(settings), backend)
    await recorder.start()
    try:
        yield Talk(recorder)
    finally:
        await recorder.stop()


@pytest.fixture
def gate(store: Store) -> Gate:
    return Gate(choose_backend(store, "process"))


async def queued(talk: Talk, gate: Gate, turns: Sequence[RecordedCall]) -> list[asyncio.Future[None]]:
    """Begin to commit turns; returns when the first stands before the closed gate and the others wait behind it."""
    waiting: list[asyncio.Future[None]] = [asyncio.ensure_future(talk.recorder.commit(turns[0]))]
    while not gate.asked:
        await asyncio.sleep(0)
    waiting += [asyncio.ensure_future(talk.recorder.commit(one)) for one in turns[1:]]
    while talk.recorder.stats().queued_turns < len(turns) - 1:
        await asyncio.sleep(0)
    return waiting


async def written(store: Store) -> set[str]:
    async with store.read() as conn:
        return set((await conn.execute(select(calls.c.id))).scalars())


async def test_turns_that_end_together_are_one_commit(store: Store, gate: Gate) -> None:
    async with _recording(store, gate, batch_calls=64) as talk:
        first = await talk.call([user("first")], "!")  # by which the project's key is known
        made = [await talk.attributed([user(f"{n}")], [choice(assistant("!"))], Address()) for n in range(64)]
        await asyncio.gather(*(talk.recorder.commit(one) for one in made))
        stats = talk.recorder.stats()
    assert gate.writes == 2
    assert (stats.commits, stats.committed_turns, stats.queued_turns, stats.queued_bytes) == (2, 65, 0, 0)
    assert await written(store) == {m.call_id for m in (first, *made)}


async def test_a_batch_has_its_bound(store: Store, gate: Gate) -> None:
    async with _recording(store, gate, batch_calls=10) as talk:
        await talk.call([user("first")], "!")  # by which the project's key is known
        made = [await talk.attributed([user(f"{n}")], [choice(assistant("!"))], Address()) for n in range(35)]
        await asyncio.gather(*(talk.recorder.commit(one) for one in made))
    assert gate.writes == 1 + 4


async def test_a_known_trajectory_needs_no_look_up(store: Store, gate: Gate) -> None:
    async with _recording(store, gate) as talk:
        address = Address(trajectory="run", group="g", group_size=8)
        history = [user("?")]
        await talk.call(history, "0", address)
        reads = gate.reads
        for number in range(5):
            history = [*history, assistant(str(number)), user("more")]
            await talk.call(history, str(number + 1), address, prompt_token_ids=list(range(300 * (number + 1))))
        assert gate.reads == reads


async def test_one_statement_a_table_writes_a_batch(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.capture.batch.GROUP_TOUCH_S", 3600.0)  # however slow the machine is
    statements: list[str] = []

    def note(connection: object, cursor: object, statement: str, *rest: object) -> None:
        statements.append(statement)

    async with _recording(store, StoreBackend(store)) as talk:
        addresses = [Address(trajectory=str(n)) for n in range(16)]
        await asyncio.gather(*(talk.call([user("?")], "!", a) for a in addresses))
        turns = [
            await talk.attributed([user("?"), assistant("!"), user("more")], [choice(assistant("!!"))], a)
            for a in addresses
        ]
        engine = store._writer.sync_engine
        event.listen(engine, "before_cursor_execute", note)
        await asyncio.gather(*(talk.recorder.commit(t) for t in turns))
        event.remove(engine, "before_cursor_execute", note)
    if not store.is_sqlite:
        assert "pg_current_xact_id" in statements.pop()  # should the answer to its COMMIT be lost
    words = [" ".join(statement.split()[:3]) for statement in statements]
    begins = ["BEGIN IMMEDIATE", "SELECT ((julianday('now') -"] if store.is_sqlite else ["SELECT extract(epoch from"]
    recount = [] if store.is_sqlite else ["SELECT trajectories.id, trajectories.state"]  # asyncpg does not count rows
    assert words == [
        *begins,  # the clock
        "UPDATE trajectories SET",
        *recount,
        "INSERT INTO nodes",
        "INSERT INTO calls",
        "INSERT INTO choices",
        "INSERT INTO unindexed",
    ]


async def test_groups_are_locked_before_their_members(store: Store) -> None:
    """PostgreSQL locks rows: a batch that took them the other way round than a sweep would wait for it for ever."""
    address = Address(trajectory="run", group="g", group_size=2)
    async with _recording(store, StoreBackend(store)) as talk:
        await talk.call([user("?")], "!", address)
        going_on = await talk.attributed([user("more")], [choice(assistant("!"))], address)
        closing = await talk.attributed([user("end")], [choice(assistant("!"))], replace(address, done=True))
        with Rows(store).statements() as counted:
            await asyncio.gather(talk.recorder.commit(going_on), talk.recorder.commit(closing))
    words = [" ".join(statement.split()[:2]) for statement in counted]
    assert words.index("SELECT groups.id") < words.index("UPDATE trajectories")
    with Rows(store).statements() as counted:
        await close_group(Project(store, PROJECT), "g")
    locks = [one for one in counted if "FOR UPDATE" in one] if not store.is_sqlite else counted[1:]
    assert locks[0].startswith("SELECT groups.id")


async def test_what_is_told_of_a_failed_write_holds_nothing_of_a_conversation(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    async with _recording(store, StoreBackend(store)) as talk:
        written = await talk.call([user("?")], "!")
        again = turn(written.attribution.trajectory, request([user("?")], model="secret"), [choice(assistant("!"))])
        with pytest.raises(StoreUnavailable) as refused:
            await talk.recorder.commit(replace(again, call_id=written.call_id))
    assert "secret" not in str(refused.value) + caplog.text


async def test_one_bad_turn_does_not_take_others_down(store: Store, gate: Gate) -> None:
    async with _recording(store, gate) as talk:
        first = await talk.call([user("first")], "!")
        good = [await talk.attributed([user(f"{n}")], [choice(assistant("!"))], Address()) for n in range(6)]
        bad = await talk.attributed([user("again")], [choice(assistant("!"))], Address())
        twice = replace(bad, call_id=first.call_id)  # its id is taken
        turns, wrote = [*good[:3], twice, *good[3:]], gate.writes
        results = await asyncio.gather(*(talk.recorder.commit(t) for t in turns), return_exceptions=True)
        stats = talk.recorder.stats()
    assert [r for r in results if r is not None] == [results[3]]
    assert isinstance(results[3], StoreUnavailable)
    assert await written(store) == {t.call_id for t in (first, *good)}
    assert (stats.failed_commits, stats.unrecorded_turns) == (2, 1)
    assert gate.writes - wrote == 1 + len(turns)  # together, then each alone: it is no race, which is tried again


async def test_a_turn_of_a_trajectory_that_was_never_written_makes_it(store: Store, gate: Gate) -> None:
    # as when a process remembers less than it has in flight
    async with _recording(store, gate) as talk:
        lost = turn(TrajectoryRef("traj_forgotten", None), request([user("?")]), [choice(assistant("!"))])
        await talk.recorder.commit(lost)
    async with store.read() as conn:
        assert (await conn.execute(select(trajectories.c.id))).scalar_one() == "traj_forgotten"


async def test_the_queue_is_bounded_in_bytes(store: Store, gate: Gate) -> None:
    async with _recording(store, gate, queue_bytes=100_000) as talk:
        gate.open.clear()
        turns = [
            await talk.attributed([user(f"{n}" + "x" * 20_000)], [choice(assistant("!"))], Address()) for n in range(10)
        ]
        waiting = [asyncio.ensure_future(talk.recorder.commit(t)) for t in turns]
        done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        refused = {w for w in done if isinstance(w.exception(), StoreUnavailable)}
        assert refused == done
        stats = talk.recorder.stats()
        assert stats.queued_bytes <= 100_000
        assert stats.unrecorded_turns >= len(refused)
        gate.open.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert await written(store) == {t.call_id for t, r in zip(turns, results, strict=True) if r is None}
        assert None in results
        assert talk.recorder.stats().queued_bytes == 0
        await talk.recorder.commit(replace(turns[-1], call_id="call_later"))  # there is room again


async def test_a_caller_that_stopped_waiting_does_not_stop_the_commit(store: Store, gate: Gate) -> None:
    async with _recording(store, gate) as talk:
        gate.open.clear()
        made = await talk.attributed([user("?")], [choice(assistant("!"))], Address())
        asked = gate.asked
        waiting = asyncio.ensure_future(talk.recorder.commit(made))
        while gate.asked == asked:
            await asyncio.sleep(0.001)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        gate.open.set()
    assert await written(store) == {made.call_id}


async def test_stopping_commits_what_is_queued(store: Store, gate: Gate) -> None:
    recorder = Recorder(store, RecorderSettings(), gate)
    await recorder.start()
    talk = Talk(recorder)
    gate.open.clear()
    turns = [await talk.attributed([user(f"{n}")], [choice(assistant("!"))], Address()) for n in range(5)]
    waiting = await queued(talk, gate, turns)
    gate.open.set()
    await recorder.stop()
    await asyncio.gather(*waiting)
    assert await written(store) == {t.call_id for t in turns}


async def test_a_store_that_refuses_for_all_is_not_asked_for_each(store: Store, gate: Gate) -> None:
    async with _recording(store, gate) as talk:
        turns = [await talk.attributed([user(f"{n}")], [choice(assistant("!"))], Address()) for n in range(5)]
        gate.open.clear()
        waiting = await queued(talk, gate, turns)
        gate.broken = True
        gate.open.set()
        results = await asyncio.gather(*waiting, return_exceptions=True)
        assert all(isinstance(r, StoreUnavailable) for r in results)
        assert talk.recorder.stats().failed_commits == 2  # the first, which was alone, and those behind it
        gate.broken = False
        await talk.recorder.commit(turns[0])
    assert await written(store) == {turns[0].call_id}


@pytest.mark.sqlite_only("its one write lock, taken by another connection")
async def test_a_locked_store_is_waited_for_without_stopping_the_event_loop(store: Store, tmp_path: Path) -> None:
    backend = choose_backend(store, "process")
    assert isinstance(backend, SqliteBackend)
    async with _recording(store, backend) as talk:
        made = await talk.attributed([user("?")], [choice(assistant("!"))], Address())
        other = sqlite3.connect(tmp_path / "hone.db", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        committing = asyncio.ensure_future(talk.recorder.commit(made))
        for _ in range(20):
            await asyncio.sleep(0.001)  # the loop turns
        assert not committing.done()
        other.execute("ROLLBACK")
        other.close()
        await committing
    assert await written(store) == {made.call_id}


@pytest.mark.sqlite_only("its direct backend runs in the event loop's thread")
async def test_slow_commits_move_to_a_thread(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("recorder.store.write_backends.SLOW_S", -1.0)  # every commit is slow
    threads: list[Callable[..., object]] = []
    real = asyncio.to_thread

    async def noted(work: Callable[..., R], *args: object) -> R:
        threads.append(work)
        return await real(work, *args)

    monkeypatch.setattr("recorder.store.write_backends.asyncio.to_thread", noted)
    async with _recording(store, choose_backend(store, "process")) as talk:
        made = [await talk.call([user(f"{n}")], "!") for n in range(3)]
    assert [work.__name__ for work in threads].count("_transact") == 2  # the first told
    assert await written(store) == {m.call_id for m in made}


# --- checkpoints


@contextlib.contextmanager
def connected(path: Path) -> Iterator[sqlite3.Connection]:
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA wal_autocheckpoint=0")
    yield connection
    connection.close()


@pytest.mark.sqlite_only("its log")
@pytest.mark.parametrize("kind", [SqliteBackend, StoreBackend])
async def test_commits_leave_checkpoints_to_others(store: Store, tmp_path: Path, kind: type[WriteBackend]) -> None:
    backend = SqliteBackend(store, "process") if kind is SqliteBackend else StoreBackend(store)
    await backend.start()
    for number in range(8):
        node = (bytes([number]) * 16, PROJECT, None, 0, "user", "x" * 1_000_000, False)
        await backend.write(lambda ex, row=node: ex.many(INSERT_NODES, [row]))  # type: ignore[misc]  # bound early
    assert (tmp_path / "hone.db-wal").stat().st_size > 1_000 * 4096  # SQLite would have stopped to checkpoint
    assert checkpoint(str(tmp_path / "hone.db")) > 1_000
    await backend.write(lambda ex: ex.many(INSERT_NODES, [(b"y" * 16, PROJECT, None, 0, "user", "y", False)]))
    assert checkpoint(str(tmp_path / "hone.db")) < 100  # the log began anew
    await backend.stop()


async def test_the_checkpointer_works_until_it_is_stopped(tmp_path: Path) -> None:
    path = tmp_path / "x.db"
    with connected(path) as writer:
        writer.execute("PRAGMA journal_mode=WAL")
        writer.execute("CREATE TABLE t (x BLOB)")
        writer.execute("INSERT INTO t VALUES (zeroblob(1048576))")
        task = Checkpointer(str(path), every_s=0.001)
        task.start()
        async with asyncio.timeout(10):
            while path.stat().st_size < 1_000_000:
                await asyncio.sleep(0.001)
        await task.stop()


async def test_what_another_process_made_meanwhile_is_looked_for_again(store: Store, gate: Gate) -> None:
    async with _recording(store, gate) as talk:
        gate.races = 2
        await talk.call([user("hello")], "!")
        assert (gate.races, talk.recorder.stats().failed_commits) == (0, 0)
