"""The ledger keeps what was written, with the transaction that it explains."""

from __future__ import annotations

import pytest

from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.sql import now
from tests.recorder.rows import PROJECT


def row(number: int, code: str = "too_few", kind: str = "group") -> LedgerRow:
    return LedgerRow(PROJECT, kind, f"x{number}", code, {"number": number})


async def test_rows_are_read_back_as_they_were_written(store: Store) -> None:
    async with store.write() as conn:
        await ledger.write_rows(conn, [row(1), row(2, "over_age"), LedgerRow(PROJECT, "step", "s", "abandoned")])
        before = (await conn.execute(now().select())).scalar_one()
    [entry] = await ledger.object_entries(store, "group", "x2")
    assert (entry.project_id, entry.object_kind, entry.object_id) == (PROJECT, "group", "x2")
    assert (entry.code, entry.detail) == ("over_age", {"number": 2})
    assert abs(entry.at - before) < 60
    [bare] = await ledger.object_entries(store, "step", "s")
    assert bare.detail is None


async def test_counts_are_by_kind_and_since(store: Store) -> None:
    async with store.write() as conn:
        await ledger.write_rows(conn, [row(1), row(2), row(3, "over_age"), row(4, kind="call")])
    assert await ledger.count_codes(Project(store, PROJECT), "group") == {"over_age": 1, "too_few": 2}
    assert await ledger.count_codes(Project(store, PROJECT), "group", since=4e9) == {}
    assert await ledger.count_codes(Project(store, "other"), "group") == {}


async def test_the_latest_come_first_and_can_be_narrowed(store: Store) -> None:
    async with store.write() as conn:
        await ledger.write_rows(conn, [row(1), row(2, "over_age"), row(3, kind="call")])
    assert [e.object_id for e in await ledger.latest_entries(Project(store, PROJECT))] == ["x3", "x2", "x1"]
    assert [e.object_id for e in await ledger.latest_entries(Project(store, PROJECT), object_kind="group")] == [
        "x2",
        "x1",
    ]
    assert [e.object_id for e in await ledger.latest_entries(Project(store, PROJECT), code="over_age")] == ["x2"]
    assert [e.object_id for e in await ledger.latest_entries(Project(store, PROJECT), limit=1)] == ["x3"]


async def test_of_trained_and_untrained_the_newest_row_of_a_run_counts(store: Store) -> None:
    said = [(1, "trained"), (2, "trained"), (1, "untrained"), (3, "trained"), (3, "untrained"), (3, "trained")]
    async with store.write() as conn:
        await ledger.write_rows(conn, [row(number, code, "trajectory") for number, code in said])
    assert await ledger.count_codes(Project(store, PROJECT), "trajectory") == {"trained": 2, "untrained": 1}
    trained = await ledger.latest_entries(Project(store, PROJECT), code=ledger.TRAINED)
    assert [entry.object_id for entry in trained] == ["x3", "x2"]
    assert [
        entry.object_id for entry in await ledger.latest_entries(Project(store, PROJECT), code=ledger.UNTRAINED)
    ] == ["x1"]
    assert len(await ledger.latest_entries(Project(store, PROJECT))) == len(said)  # the whole story


async def test_nothing_is_written_when_the_transaction_fails(store: Store) -> None:
    async def fail() -> None:
        async with store.write() as conn:
            await ledger.write_rows(conn, [row(1)])
            raise RuntimeError

    with pytest.raises(RuntimeError):
        await fail()
    assert await ledger.latest_entries(Project(store, PROJECT)) == []


async def test_no_rows_are_no_statement(store: Store) -> None:
    async with store.write() as conn:
        await ledger.write_rows(conn, [])
    assert await ledger.latest_entries(Project(store, PROJECT)) == []
