"""What PostgreSQL alone does: cut and restarted connections, commits without an answer, LISTEN, text that it cannot
hold, processes that migrate at once; and a conversation in a store that was migrated up from nothing.

These run whatever `--store` says.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from sqlalchemy import select, update
from sqlalchemy.dialects.postgresql.asyncpg import AsyncAdapt_asyncpg_connection
from sqlalchemy.event import listens_for
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection
from sqlalchemy.util.concurrency import await_

from recorder.capture.recorder import Recorder
from recorder.capture.statements import INSERT_BLOBS, INSERT_TRAJECTORIES, NOW
from recorder.errors import RolledBack, StoreError, StoreUnavailable
from recorder.maintenance.sweep import Sweeper
from recorder.maintenance.transfer import tables
from recorder.messages.calls import Address, ParentCall
from recorder.queue.judging import records
from recorder.queue.judging.records import CachedVerdicts, NewVerdicts
from recorder.settings import RecorderSettings
from recorder.states import Confidence, TrajectoryState
from recorder.store import bootstrap, changes, sql
from recorder.store import postgres as postgresql
from recorder.store.bootstrap import HEAD, open_store
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.store.schema import blobs, calls, groups, projects, trajectories
from recorder.store.sql import now
from recorder.store.write_backends import Executor, StoreBackend
from recorder.views.trajectories import transcripts
from tests.postgres import Postgres
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, tool_result, tool_turn, user

pytestmark = pytest.mark.slow


@pytest.fixture
def url(postgres: Postgres, request: pytest.FixtureRequest) -> Iterator[str]:
    """Of an empty database."""
    postgres.create(request.node.name)
    yield postgres.url(request.node.name)
    postgres.drop(request.node.name)


async def test_a_conversation_is_recorded_attributed_and_read_back(url: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=url)
    store = await open_store(tmp_path, settings, migrate=True)
    assert await bootstrap.read_revision(store) == HEAD
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        talk = Talk(recorder)
        first = await talk.call([user("Where?")], "On Monday\n")
        asked = [user("Where?"), assistant("On Monday"), user("Really?")]  # as a client retells it
        second = await talk.call(asked, tool_turn("id-1"))
        third = await talk.call([*asked, tool_turn("id-1"), tool_result("id-1")], "Yes")
        view = await transcripts.load_trajectory(store, first.attribution.trajectory.id)
    finally:
        await recorder.stop()
        await store.close()
    assert [call.id for call in view.calls] == [first.call_id, second.call_id, third.call_id]
    assert [call.attribution_source for call in view.calls] == ["new", "lineage", "tool_call_id"]
    assert second.attribution.parent == ParentCall(first.call_id, 0)
    assert third.attribution.parent == ParentCall(second.call_id, 0)
    assert {turn.attribution.confidence for turn in (second, third)} == {Confidence.EXACT}
    assert view.calls[1].choices[0].message == tool_turn("id-1")


async def test_verdicts_are_kept_together_and_what_was_said_first_stays(url: str, tmp_path: Path) -> None:
    settings = RecorderSettings(url=url)
    store = await open_store(tmp_path, settings, migrate=True)
    recorder = Recorder(store, settings)
    await recorder.start()
    try:
        run = (await Talk(recorder).call([user("What?")], "That")).attribution.trajectory.id
        first = [
            NewVerdicts("b", run, "[1]", None),
            NewVerdicts("a", run, "[2]", "judge 1"),
            NewVerdicts("c", "", "", ""),
        ]
        await records.keep_verdicts(Project(store, PROJECT), [*first, NewVerdicts("b", run, "[3]", None)])
        found = await records.find_verdicts(Project(store, PROJECT), ["a", "b", "c"])
    finally:
        await recorder.stop()
        await store.close()
    assert found == {"a": CachedVerdicts("[2]", "judge 1"), "b": CachedVerdicts("[1]", None)}


@pytest.fixture
async def store(url: str, tmp_path: Path) -> AsyncIterator[Store]:
    opened = await open_store(tmp_path, RecorderSettings(url=url), migrate=True)
    yield opened
    await opened.close()


@asynccontextmanager
async def recording(store: Store, backend: StoreBackend | None = None) -> AsyncIterator[Recorder]:
    recorder = Recorder(store, RecorderSettings(), backend)
    await recorder.start()
    try:
        yield recorder
    finally:
        await recorder.stop()


def name_of(store: Store) -> str:
    assert store.url.database is not None
    return store.url.database


async def recorded(store: Store) -> list[str]:
    async with store.read() as conn:
        return list((await conn.execute(select(calls.c.id).order_by(calls.c.id))).scalars())


# --- connections that end


async def test_connections_that_were_cut_are_not_used_again(store: Store, postgres: Postgres) -> None:
    rows = Rows(store)
    await rows.group(id="before")
    await rows.all(groups)
    await asyncio.to_thread(postgres.cut, name_of(store))
    await rows.group(id="after")
    assert [row["id"] for row in await rows.all(groups)] == ["before", "after"]


@pytest.mark.parametrize("turns", range(4))
async def test_a_cut_connection_is_known_at_every_moment_of_its_end(
    store: Store, postgres: Postgres, turns: int
) -> None:
    """Nothing of it read yet, its error read but not its end, both: asyncpg calls it open until the last."""
    rows = Rows(store)
    await rows.group(id="before")
    await rows.all(groups)
    postgres.cut(name_of(store))  # here, so that the event loop stands still meanwhile
    for _ in range(turns):
        await asyncio.sleep(0)
    await rows.group(id="after")
    assert [row["id"] for row in await rows.all(groups)] == ["before", "after"]


@pytest.mark.parametrize("turns", range(4))
async def test_a_new_connection_that_is_cut_at_once_says_that_the_database_is_away(
    url: str, store: Store, postgres: Postgres, turns: int
) -> None:
    opened = Store(url)

    @listens_for(opened._reader.sync_engine, "connect")
    def cut(*_: object) -> None:
        postgres.cut(name_of(store))
        for _turn in range(turns):
            await_(asyncio.sleep(0))

    with pytest.raises(RolledBack, match="refused a read"):
        await recorded(opened)
    await opened.close()


@pytest.mark.parametrize("turns", range(4))
async def test_who_listens_is_told_at_every_moment_of_its_connections_end(
    store: Store, postgres: Postgres, turns: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(postgresql, "READ_ANYWAY_S", 0.0)  # so that it asks
    heard = postgresql.PostgresChangeListener(store._reader)
    assert await heard() is not None
    postgres.cut(name_of(store))
    for _ in range(turns):
        await asyncio.sleep(0)
    with contextlib.suppress(StoreUnavailable):  # or it was seen, and another opened
        await heard()
    assert await heard() is not None
    heard.close()


async def test_a_transaction_that_is_cut_midway_is_nothing_at_all_and_says_so(store: Store, postgres: Postgres) -> None:
    async def cut_midway() -> None:
        async with store.write() as conn:
            await conn.execute(update(projects).values(deletions=7))
            await asyncio.to_thread(postgres.cut, name_of(store))
            await conn.execute(update(projects).values(deletions=8))

    with pytest.raises(RolledBack, match="refused a write"):
        await cut_midway()
    assert (await Rows(store).get(projects, PROJECT))["deletions"] == 0


async def test_a_turn_whose_transaction_was_cut_is_written_once(store: Store, postgres: Postgres) -> None:
    backend = StoreBackend(store)
    tries = 0

    def work(ex: Executor) -> int:
        nonlocal tries
        tries += 1
        ex.many(INSERT_BLOBS, [(b"x" * 16, PROJECT, "media", b"x")])
        if tries == 1:
            postgres.cut(name_of(store))
        return len(ex.all(NOW))

    assert await backend.write(work) == 1
    assert tries == 2
    assert len(await Rows(store).all(blobs)) == 1


@pytest.mark.parametrize("arrives", [True, False])
async def test_a_commit_without_an_answer_is_looked_up_and_not_repeated_blindly(
    store: Store, monkeypatch: pytest.MonkeyPatch, arrives: bool
) -> None:
    backend = StoreBackend(store)
    tries = 0

    def work(ex: Executor) -> int:
        nonlocal tries
        tries += 1
        ex.many(INSERT_TRAJECTORIES, [trajectory_row()])  # a second time it would be refused
        return tries

    lose_the_next_answer(monkeypatch, arrives)
    assert await backend.write(work) == tries == (1 if arrives else 2)
    assert len(await Rows(store).all(trajectories)) == 1


async def test_a_transaction_that_a_crash_took_the_id_of_was_not_committed(store: Store) -> None:
    async with store.write() as conn:
        mine = await sql.transaction_id(conn)
    async with store.read() as conn:
        assert await sql.is_committed(conn, mine) is True
    async with store.read() as conn:  # an id that this server has not reached: one from before a crash
        assert await sql.is_committed(conn, str(int(mine) + 1_000_000)) is False
    async with store.read() as conn:
        with pytest.raises(DBAPIError):
            await sql.is_committed(conn, "no id")


def trajectory_row() -> tuple[Any, ...]:
    given = {"id": "traj_1", "project_id": PROJECT, "state": "open", "purpose": "train", "origin": "live", "tags": "{}"}
    zeros = ("sequence", "mixed", "call_count", "started_at", "last_call_at")
    texts = ("address_group", "made_by")
    row = {c.name: None for c in trajectories.c} | dict.fromkeys(zeros, 0) | dict.fromkeys(texts, "") | given
    return tuple((row | {"mixed": False})[name] for name in INSERT_TRAJECTORIES.names)


def lose_the_next_answer(monkeypatch: pytest.MonkeyPatch, arrives: bool) -> None:
    """The connection ends while a COMMIT is under way: behind it, or before."""
    connection: Any = AsyncAdapt_asyncpg_connection
    real, gone = connection.commit, "connection was closed in the middle of operation"
    fault: Any = asyncpg.ConnectionDoesNotExistError

    def commit(self: Any) -> None:
        monkeypatch.undo()
        if arrives:
            real(self)
        self._connection.terminate()
        self._handle_exception(fault(gone))

    monkeypatch.setattr(AsyncAdapt_asyncpg_connection, "commit", commit)


async def test_of_two_that_wait_for_each_other_one_is_run_again(store: Store) -> None:
    rows, backend = Rows(store), StoreBackend(store)
    both = [await rows.group(), await rows.group()]
    first_locks = [asyncio.Event(), asyncio.Event()]
    tries = [0, 0]

    async def cross(mine: int) -> None:
        async def then(conn: AsyncConnection, _: Any) -> None:
            tries[mine] += 1
            await conn.execute(update(groups).where(groups.c.id == both[mine]).values(tries=groups.c.tries + 1))
            first_locks[mine].set()
            await first_locks[1 - mine].wait()
            await conn.execute(update(groups).where(groups.c.id == both[1 - mine]).values(tries=groups.c.tries + 1))

        await backend.write(lambda ex: None, then)

    await asyncio.gather(cross(0), cross(1))
    assert sorted(tries) == [1, 2]
    assert [row["tries"] for row in await rows.all(groups)] == [2, 2]


async def test_of_two_proxies_that_make_the_same_run_one_finds_it(store: Store) -> None:
    addresses = [Address(trajectory=f"run {n}", group=f"task {n}") for n in range(16)]
    async with recording(store) as one, recording(store) as other:
        await asyncio.gather(
            *(Talk(proxy).call([user("?")], "!", address) for proxy in (one, other) for address in addresses)
        )
        failed = [proxy.stats().failed_commits for proxy in (one, other)]
    assert failed == [0, 0]
    rows = Rows(store)
    assert (len(await rows.all(groups)), len(await rows.all(trajectories))) == (16, 16)


@pytest.mark.parametrize("how", ["fast", "immediate"])
async def test_a_restart_under_load_loses_no_finished_turn(tmp_path: Path, how: str) -> None:
    server = Postgres(synchronous_commit="on")  # or a crash may take what it had confirmed
    try:
        server.create("hone")
        store = await open_store(tmp_path, RecorderSettings(url=server.url("hone")), migrate=True)
        made = await restarted_under_load(store, server, how)
        assert await recorded(store) == sorted(made)
        await store.close()
    finally:
        server.stop()


async def restarted_under_load(store: Store, server: Postgres, how: str) -> list[str]:
    """Eight agents at work while the server is stopped and started; the calls that were committed, none refused."""
    finished: list[str] = []
    ended = asyncio.Event()

    async def agent(talk: Talk, number: int) -> None:
        history = [user(f"agent {number}")]
        while not ended.is_set():
            call = await talk.call(history, f"turn {len(history)}", Address(trajectory=f"run {number}"))
            finished.append(call.call_id)
            history = [*history, assistant(f"turn {len(history)}"), user("more")]

    async def some_more(turns: int) -> None:
        wanted = len(finished) + turns
        while len(finished) < wanted:
            await asyncio.sleep(0)

    async with recording(store) as recorder, asyncio.TaskGroup() as agents:
        for number in range(8):
            agents.create_task(agent(Talk(recorder), number))
        for _ in range(2):
            await some_more(20)
            await asyncio.to_thread(server.halt, how)
            await asyncio.to_thread(server.start)
        await some_more(20)
        ended.set()
    assert recorder.stats().unrecorded_turns == 0
    return finished


@pytest.mark.slow
async def test_a_sweeper_goes_on_behind_a_restart(tmp_path: Path) -> None:
    server = Postgres(synchronous_commit="on")  # or a crash may take what it had confirmed
    try:
        server.create("hone")
        store = await open_store(tmp_path, RecorderSettings(url=server.url("hone")), migrate=True)
        rows, sweeper = Rows(store), Sweeper(Project(store, PROJECT), RecorderSettings(), "here")
        async with asyncio.timeout(120), sweeper.running():
            await ended_by_it(rows)
            await asyncio.to_thread(server.halt, "immediate")
            await asyncio.to_thread(server.start)
            await ended_by_it(rows)
        await store.close()
    finally:
        server.stop()


async def ended_by_it(rows: Rows) -> None:
    """A run that fell silent long ago, until a sweep has ended it."""
    run = await rows.trajectory(await rows.group(), last_call_at=1.0)
    while (await rows.get(trajectories, run))["state"] == TrajectoryState.OPEN:
        await asyncio.sleep(0)


async def test_a_database_that_stays_away_is_an_error_that_says_so(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    nowhere = Store("postgresql+asyncpg://hone:secret@/hone?host=/nowhere")
    with pytest.raises(RolledBack, match="No such file") as refused:
        await StoreBackend(nowhere, patience_s=0.0).write(lambda ex: None)
    assert "secret" not in str(refused.value)
    await nowhere.close()


# --- a server that hangs


@asynccontextmanager
async def hung(postgres: Postgres) -> AsyncIterator[None]:
    with postgres.hung():
        yield


async def made_impatient(store: Store, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Another store of the same database that gives up soon."""
    for limit in ("CONNECT_S", "BEGIN_S", "ANSWER_S"):
        monkeypatch.setattr(postgresql, limit, 0.5)
    return Store(store.url)


async def test_a_statement_that_a_hung_server_leaves_unanswered_is_given_up(
    store: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await made_impatient(store, monkeypatch)

    async def hangs_midway() -> None:
        async with other.write() as conn:
            await conn.execute(update(projects).values(deletions=7))
            async with hung(postgres):
                await conn.execute(update(projects).values(deletions=8))

    with pytest.raises(RolledBack, match="refused a write"):
        await hangs_midway()
    assert (await Rows(other).get(projects, PROJECT))["deletions"] == 0
    await other.close()


async def test_a_page_of_a_copy_that_a_hung_server_does_not_finish_is_given_up(
    store: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await made_impatient(store, monkeypatch)
    for name in ("a", "b", "c"):
        await Rows(other).group(id=name)
    monkeypatch.setattr(tables, "_AT_ONCE", 1)
    real, asked = tables._query, 0
    with ExitStack() as stack:

        def query(*given: Any) -> Any:
            nonlocal asked
            asked += 1
            if asked == 2:
                stack.enter_context(postgres.hung())
            return real(*given)

        monkeypatch.setattr(tables, "_query", query)
        with pytest.raises(StoreUnavailable, match="refused a read"):
            await anext(tables.iterate_pages(other, groups))
    assert asked == 2
    await other.close()


async def test_no_idle_and_no_new_connection_waits_for_a_hung_server(
    store: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await made_impatient(store, monkeypatch)
    rows = Rows(other)
    await rows.all(groups)  # a connection in the pool
    async with hung(postgres):
        with pytest.raises(StoreUnavailable, match="refused a read"):
            await rows.all(groups)
        with pytest.raises(StoreUnavailable, match="refused a write"):
            await rows.group()
    await rows.group(id="after")
    assert [row["id"] for row in await rows.all(groups)] == ["after"]
    await other.close()


async def test_a_commit_that_a_hung_server_leaves_unanswered_is_looked_up(
    store: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has the COMMIT, and carries it out when it goes on: it is not written again."""
    other = await made_impatient(store, monkeypatch)
    connection: Any = AsyncAdapt_asyncpg_connection
    real, tries = connection.commit, 0

    def commit(self: Any) -> None:
        monkeypatch.setattr(AsyncAdapt_asyncpg_connection, "commit", real)
        with postgres.hung():
            real(self)

    def work(ex: Executor) -> int:
        nonlocal tries
        tries += 1
        return ex.many(INSERT_TRAJECTORIES, [trajectory_row()])  # a second time it would be refused

    monkeypatch.setattr(AsyncAdapt_asyncpg_connection, "commit", commit)
    await StoreBackend(other).write(work)
    assert tries == 1
    assert len(await Rows(store).all(trajectories)) == 1
    await other.close()


async def test_who_listens_to_a_hung_server_is_told(
    store: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = await made_impatient(store, monkeypatch)
    heard = postgresql.PostgresChangeListener(other._reader)
    assert await heard() is not None
    monkeypatch.setattr(postgresql, "READ_ANYWAY_S", 0.0)
    async with hung(postgres):
        with pytest.raises(StoreUnavailable, match="cannot receive notifications"):
            await heard()
    assert await heard() is not None
    heard.close()
    await other.close()


# --- what is heard


async def test_what_others_commit_is_heard_and_not_asked_for(
    store: Store, url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "EVERY_S", 3600.0)
    other = Store(url)
    with store.watch.on(Topic.GROUPS) as news, store.watch.on(Topic.ENGINES) as engines:
        await news.wait()
        while store.watch._counts is None:
            await asyncio.sleep(0)
        await news.wait(0)
        await engines.wait(0)
        await Rows(other).group()
        assert await news.wait()
        assert not await engines.wait(0)
    await other.close()


async def test_who_listens_hears_again_after_its_connection_was_cut(
    store: Store, url: str, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "EVERY_S", 3600.0)
    other = Store(url)
    with store.watch.on(Topic.GROUPS) as news:
        await news.wait()
        while store.watch._counts is None:
            await asyncio.sleep(0)
        await news.wait(0)
        await asyncio.to_thread(postgres.cut, name_of(store))
        await Rows(other).group()
        assert await news.wait()
    await other.close()


# --- what it cannot hold


async def test_text_with_a_nul_is_kept_as_its_escape(store: Store) -> None:
    rows = Rows(store)
    await rows.trajectory(answered=False, session="odd \x00 name")
    assert [row["session"] for row in await rows.all(trajectories)] == [r"odd \u0000 name"]


@pytest.mark.parametrize("odd", ["\x00", "\ud800", r"\u0000", "\\\x00", "😀"])
async def test_a_member_of_json_is_read_whatever_its_other_strings_are(store: Store, odd: str) -> None:
    rows = Rows(store)
    run = await rows.trajectory(answered=False)
    await rows.call(run, response_meta={"odd": [odd], "client": "curl"})
    async with store.read() as conn:
        found = await conn.execute(select(sql.json_member(calls.c.response_meta, "client")))
        assert list(found.scalars()) == ["curl"]


# --- its clock


async def test_by_its_clock_rows_are_looked_up_in_an_index(store: Store) -> None:
    t = trajectories.c
    due = select(t.id).where(t.project_id == PROJECT, t.ended_at <= now() - 60).order_by(t.ended_at)
    async with store.read() as conn:
        await conn.exec_driver_sql("SET LOCAL enable_seqscan = off")  # the table is empty
        said = str(due.compile(dialect=conn.dialect, compile_kwargs={"literal_binds": True}))
        plan = "".join((await conn.exec_driver_sql(f"EXPLAIN {said}")).scalars())
    assert "ix_trajectories_ended" in plan
    assert "ended_at <= (" in plan
    assert "Filter" not in plan


async def test_its_clock_goes_on_within_a_transaction(store: Store) -> None:
    async with store.read() as conn:
        began = await sql.current_time(conn)
        await conn.exec_driver_sql("SELECT pg_sleep(0.01)")
        assert await sql.current_time(conn) >= began + 0.01


# --- migrations


async def test_a_database_of_another_encoding_is_refused_before_it_loses_a_turn(
    postgres: Postgres, tmp_path: Path
) -> None:
    postgres.run("CREATE DATABASE latin ENCODING 'LATIN1' LOCALE 'C' TEMPLATE template0")
    try:
        with pytest.raises(StoreError, match=r"keeps text as LATIN1.* create it again with ENCODING 'UTF8'"):
            await open_store(tmp_path, RecorderSettings(url=postgres.url("latin")), migrate=True)
    finally:
        postgres.drop("latin")


OPEN = """
import asyncio, sys
from pathlib import Path
from recorder.store import bootstrap
from recorder.settings import RecorderSettings
async def main():
    store = await bootstrap.open_store(Path(sys.argv[1]), RecorderSettings(url=sys.argv[2]), migrate=True)
    await store.close()
asyncio.run(main())
"""


def test_processes_that_start_at_once_on_an_empty_database_all_open_it(url: str, tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", "-c", OPEN, str(tmp_path / "data"), url]
    starting = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(3)]
    ends = [(process.communicate()[1].decode(), process.returncode) for process in starting]
    assert ends == [("", 0)] * 3
