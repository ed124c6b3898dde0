"""Every commit counts up the topics of what it changed, whoever wrote it; what nobody waits for counts nothing."""

from __future__ import annotations

import ast
import importlib
import pkgutil
import re
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from sqlalchemy import Insert, Table, Update, delete, false, insert, select, update
from sqlalchemy.sql.dml import UpdateBase

import recorder
from recorder.capture.recorder import Recorder
from recorder.messages.calls import Address
from recorder.queue import campaigns, claims, leases
from recorder.queue.training import adapter_trials
from recorder.registry import replicas
from recorder.setting_changes.change_rows import write_change
from recorder.states import TrajectoryState
from recorder.store import changes, schema
from recorder.store.changes import TOPIC_OF, Topic, mark_quiet, topic_of
from recorder.store.database import Project, Store
from recorder.store.sql import now
from recorder.store.statement import Statement
from recorder.store.transitions import MACHINES, guarded_update
from tests.recorder.rows import Rows
from tests.recorder.talk import PROJECT, Talk, assistant, choice, user

pytestmark = pytest.mark.slow

# Who waits for one of these asks for it when a request or a turn needs it, or at a time that it knows.
NOBODY_WAITS = {
    "attempts", "blobs", "calibrations", "calls", "changes", "choices", "counted_calls", "dataset_trajectories",
    "datasets", "draws", "drift_scores", "feedback", "issued", "judge_replies", "judge_turns", "keys", "ledger",
    "node_blobs", "nodes", "notification_cursors", "notifications", "pass_budgets", "projects", "prompts",
    "review_requests", "said", "saved_filters", "scenarios", "score_parts", "scores", "second_scores", "sign_ins",
    "step_baselines", "step_groups", "step_trajectories", "steps", "tool_calls", "tool_requests", "traffic",
    "trajectory_facets", "trajectory_totals", "unindexed", "unmerged", "uses", "verdicts",
}  # fmt: skip
TABLES = [schema.metadata.tables[name] for name in TOPIC_OF]
ROOT = Path(recorder.__file__).parent.parent


async def counts(store: Store) -> dict[str, int]:
    async with store.read() as conn:
        return dict(await changes.read_counts(conn))


async def counted(store: Store, before: Mapping[str, int]) -> dict[str, int]:
    """By how much each topic counted up since."""
    after = await counts(store)
    return {topic: n - before.get(topic, 0) for topic, n in after.items() if n != before.get(topic, 0)}


@pytest.fixture
async def filled(store: Store, rows: Rows) -> Store:
    """A store with a row in every table that stands for a topic."""
    alias = await rows.alias()
    await rows.ready_group(alias_id=alias.id)
    await adapter_trials.begin_trial(Project(store, PROJECT), alias.id)
    await leases.acquire_lease(Project(store, PROJECT), "name", "holder", 60)
    await campaigns.create_campaign(Project(store, PROJECT), alias.id, "spring", {})
    await replicas.report_replica(Project(store, PROJECT), "http://engine", state="up")
    await replicas.report_proxy(Project(store, PROJECT), "proxy_1", "http://proxy", generations={}, in_flight={})
    await write_change(Project(store, PROJECT), "learn.paused", before=False, after=True, who="somebody")
    return store


# --- what counts


def test_every_table_stands_for_a_topic_or_for_none_on_purpose() -> None:
    assert TOPIC_OF.keys() | NOBODY_WAITS == schema.metadata.tables.keys()
    assert not TOPIC_OF.keys() & NOBODY_WAITS
    assert set(TOPIC_OF.values()) == set(Topic)


@pytest.mark.parametrize("table", TABLES, ids=str)
async def test_a_written_row_counts_up_its_tables_topic_once(filled: Store, table: Table) -> None:
    before = await counts(filled)
    column = next(iter(table.c))
    async with filled.write() as conn:
        for _ in range(2):
            await conn.execute(update(table).values({column: column}))
    assert await counted(filled, before) == {TOPIC_OF[table.name]: 1}


@pytest.mark.parametrize("table", TABLES, ids=str)
def test_a_row_that_is_made_and_one_that_is_deleted_count(table: Table) -> None:
    assert {topic_of(insert(table)), topic_of(delete(table))} == {TOPIC_OF[table.name]}
    assert topic_of(select(table)) is None


async def test_a_proxy_that_comes_and_goes_is_counted_each_time(store: Store) -> None:
    before = await counts(store)
    await replicas.report_proxy(Project(store, PROJECT), "proxy_1", "http://proxy", generations={}, in_flight={})
    assert await counted(store, before) == {Topic.PROXIES: 1}
    await replicas.forget_proxy(store, "proxy_1")
    await replicas.forget_proxy(store, "proxy_1")
    assert await counted(store, before) == {Topic.PROXIES: 2}


@pytest.mark.parametrize("name", sorted(MACHINES.keys() & TOPIC_OF.keys()))
def test_every_change_of_a_state_counts(name: str) -> None:
    table = schema.metadata.tables[name]
    reached = {to for targets in MACHINES[name].values() for to in targets}
    assert {topic_of(guarded_update(table, to)) for to in reached} == {TOPIC_OF[name]}


async def test_what_was_rolled_back_counts_nothing_then_or_later(filled: Store) -> None:
    before = await counts(filled)

    async def write_and_fail() -> None:
        async with filled.write() as conn:
            await conn.execute(update(schema.groups).values(reason="x"))
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await write_and_fail()
    async with filled.write() as conn:
        await conn.execute(select(now()))
    assert await counted(filled, before) == {}


async def test_a_statement_that_met_no_row_counts_nothing(filled: Store) -> None:
    before = await counts(filled)
    async with filled.write() as conn:
        gone = update(schema.groups).where(schema.groups.c.id == "none")
        await conn.execute(gone.values(reason="x"))
        await conn.execute(guarded_update(schema.trajectories, TrajectoryState.COMPLETED).where(false()))
    assert await counted(filled, before) == {}


# --- what does not: heartbeats, and turns


async def test_heartbeats_count_nothing(filled: Store, rows: Rows) -> None:
    await rows.ready_group()
    lease = await leases.acquire_lease(Project(filled, PROJECT), "other", "holder", 60)
    claim = await claims.claim_for_judging(Project(filled, PROJECT), "holder", 60)
    assert lease is not None
    assert claim is not None
    before = await counts(filled)
    await leases.renew_lease(filled, lease, 60)
    await claims.renew_claim(filled, claim, 60)
    async with filled.write() as conn:
        await leases.require_lease(conn, lease)
    assert await replicas.touch_replica(Project(filled, PROJECT), "http://engine")
    assert await replicas.touch_proxy(filled, "proxy_1")
    assert await counted(filled, before) == {}


async def test_turns_count_nothing_and_the_end_of_their_run_does(recorder: Recorder, talk: Talk, store: Store) -> None:
    before = await counts(store)
    await talk.call([user("a")], [choice(assistant("b"))], Address(group="g", trajectory="t"))
    again = [user("a"), assistant("b"), user("c")]
    made = await talk.call(again, [choice(assistant("d"))], Address(group="g", trajectory="t"))
    assert await counted(store, before) == {}
    await recorder.close(PROJECT, made.attribution.trajectory.id)
    assert await counted(store, before) == {Topic.RUNS: 1}


def compiled() -> Iterator[tuple[str, Statement]]:
    """Every statement of the recorder that is compiled once."""
    for module in pkgutil.walk_packages(recorder.__path__, "recorder."):
        if "migrations" not in module.name:
            for name, value in vars(importlib.import_module(module.name)).items():
                if isinstance(value, Statement):
                    yield f"{module.name}.{name}", value


def test_no_compiled_statement_changes_what_anybody_waits_for() -> None:
    loud = {}
    for name, statement in compiled():
        core = statement.core("sqlite")
        if isinstance(core, UpdateBase) and isinstance(core.table, Table) and core.table.name in TOPIC_OF:
            assert core.table.name in ("groups", "trajectories"), name
            assert not isinstance(core, Update) or "state=" not in statement.text.split("WHERE")[0], name
            assert isinstance(core, Insert | Update), name
            loud[name] = topic_of(core) or topic_of(statement.core("postgresql"))
    assert loud
    assert set(loud.values()) == {None}


# --- nobody writes past it


def sources() -> Iterator[tuple[str, ast.AST]]:
    for package in ("recorder", "proxy", "judge", "trainer"):
        for path in (ROOT / package).rglob("*.py"):
            if "migrations" not in path.parts:
                yield str(path.relative_to(ROOT)), ast.parse(path.read_text())


def test_databases_are_opened_where_commits_count_and_nowhere_else() -> None:
    doors = {
        name
        for name, tree in sources()
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and ast.unparse(node.func) in ("sqlite3.connect", "create_async_engine")
    }
    assert doors == {
        "recorder/store/database.py",  # counts
        "recorder/store/postgres.py",  # for database.py
        "recorder/store/write_backends.py",  # writes compiled statements alone
        "recorder/store/changes.py",  # never writes
        "recorder/store/wal_checkpoint.py",  # writes no rows
        "recorder/maintenance/transfer/store_copy.py",  # reads the store, and writes a file that is none yet
    }


def test_nothing_is_written_as_text() -> None:
    text = re.compile(r"\s*(insert\s+(or\s+\w+\s+)?into|delete\s+from|update\s+\w+\s+set)\s", re.IGNORECASE)
    constants = [
        (name, node.value) for name, tree in sources() for node in ast.walk(tree) if isinstance(node, ast.Constant)
    ]
    assert constants
    assert [found for found in constants if isinstance(found[1], str) and text.match(found[1])] == []


def test_a_quiet_statement_says_so() -> None:
    loud = update(schema.leases).values(lease_owner=None)
    assert (topic_of(loud), topic_of(mark_quiet(loud))) == (Topic.LEASES, None)
