"""Calls that are counted as the follower counts them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from sqlalchemy import select

from recorder.queue import leases
from recorder.queue.leases import Lease
from recorder.search.indexer import index_calls
from recorder.store.database import Project, Store
from recorder.store.schema import counted_calls, traffic, trajectory_facets, trajectory_totals
from recorder.totals.follower import LEASE
from recorder.totals.time_rows import RowKey, Totals, read_totals
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.totals.facts import count_all


class CallCounter:
    """The follower of one project, step by step."""

    def __init__(self, store: Store) -> None:
        self.project = Project(store, PROJECT)

    async def lease(self, owner: str = "here") -> Lease:
        lease = await leases.acquire_lease(self.project, LEASE, owner, 60)
        assert lease is not None
        return lease

    async def queue(self, call_ids: Sequence[str]) -> None:
        """Queue calls, as the indexer does."""
        for call_id in call_ids:
            await Rows(self.project.store).insert(counted_calls, {"call_id": call_id, "project_id": PROJECT})

    async def index(self) -> None:
        while await index_calls(self.project):
            pass

    async def count(self) -> int:
        """Count until nothing waits; return how many calls that were."""
        return await count_all(self.project)

    async def rows(self) -> dict[RowKey, Totals]:
        """All totals by time."""
        async with self.project.store.read() as conn:
            found = (await conn.execute(select(traffic))).all()
        return {RowKey(row.step_s, row.dimension, row.at, row.value, row.origin): read_totals(row) for row in found}

    async def values(self, dimension: str, step_s: int = 60) -> dict[str, int]:
        """The calls of each value of a dimension."""
        found: dict[str, int] = {}
        for key, totals in (await self.rows()).items():
            if (key.dimension, key.step_s) == (dimension, step_s):
                found[key.value] = found.get(key.value, 0) + totals.calls
        return found

    async def of_trajectories(self) -> dict[str, dict[str, Any]]:
        return {row["trajectory_id"]: dict(row) for row in await Rows(self.project.store).all(trajectory_totals)}

    async def facets(self) -> set[tuple[str, str, str]]:
        found = await Rows(self.project.store).all(trajectory_facets)
        return {(row["facet"], row["value"], row["trajectory_id"]) for row in found}


@pytest.fixture
def counting(store: Store) -> CallCounter:
    return CallCounter(store)
