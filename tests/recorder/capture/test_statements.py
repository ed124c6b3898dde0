"""The statements of the hot path, of lineage and the index: rows in order, PostgreSQL too, and none walks a table."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

import pytest
from sqlalchemy import ClauseElement
from sqlalchemy.dialects import registry

from recorder.capture import statements as writes
from recorder.capture.lookups import statements as lookups
from recorder.capture.statements import INSERT_CALLS, INSERT_CHOICES, INSERT_GROUPS, INSERT_NODES, INSERT_TRAJECTORIES
from recorder.search import indexer as indexing
from recorder.store.schema import trajectories
from recorder.store.statement import Statement


def test_rows_have_the_order_of_the_schema() -> None:
    for statement in (INSERT_CALLS, INSERT_CHOICES, INSERT_NODES, INSERT_TRAJECTORIES, INSERT_GROUPS):
        table = statement.text.split()[2].strip('"')
        columns = trajectories.metadata.tables[table].c.keys()
        assert list(statement.names) == columns


every_statement = pytest.mark.parametrize(
    "statement",
    [
        pytest.param(value, id=name)
        for module in (writes, lookups, indexing)
        for name, value in vars(module).items()
        if isinstance(value, Statement)
    ],
)


@every_statement
def test_every_statement_is_one_for_postgresql_too(statement: Statement) -> None:
    elsewhere = statement.core("postgresql")
    assert isinstance(elsewhere, ClauseElement)
    compiled = elsewhere.compile(dialect=registry.load("postgresql")())
    assert set(compiled.params) == set(statement.names)


@every_statement
def test_no_statement_of_the_hot_path_walks_a_table(empty_database: Path, statement: Statement) -> None:
    values = {n: ["a", "b"] if f"POSTCOMPILE_{n}]" in statement.text else "a" for n in statement.names}
    text, flat = statement.spelled(values)
    with contextlib.closing(sqlite3.connect(empty_database)) as connection:
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, flat)]
    walked = [step for step in plan if step.startswith("SCAN") and not step.startswith("SCAN each_")]  # a parameter
    assert [step for step in walked if step not in ("SCAN CONSTANT ROW", "SCAN up")] == []
    assert [step for step in plan if step.endswith("(project_id=?)")] == []  # as good as all rows


def test_a_leaf_is_looked_for_among_the_calls_of_its_trajectory(empty_database: Path) -> None:
    text, flat = lookups.LEAVES_IN.spelled({"trajectory": "a", "nodes": [b"a"] * 64})
    with contextlib.closing(sqlite3.connect(empty_database)) as connection:
        plan = [row[3] for row in connection.execute("EXPLAIN QUERY PLAN " + text, flat)]
    assert "(trajectory_id=?)" in plan[0]
    assert [step for step in plan if "node_id" in step] == []
