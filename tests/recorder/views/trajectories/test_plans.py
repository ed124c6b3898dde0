"""No page, poll or sweep of a big store walks a whole table: how SQLite plans what each of them asks."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from sqlalchemy import select

from benchmarks.pages import Bench, deeds, listening, walks
from recorder.capture.recorder import Recorder
from recorder.maintenance.deletion import delete_trajectory
from recorder.maintenance.sweep import sweep
from recorder.settings import RecorderSettings
from recorder.states import TrajectoryState
from recorder.store.bootstrap import DEFAULT_PROJECT
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from tests.recorder.rows import Rows

pytestmark = pytest.mark.sqlite_only("its plans")

# Counted over an index alone: groups by their state, second judgements of the few groups that have one.
COUNTED = [
    "SEARCH groups USING COVERING INDEX ix_groups_project_id_state_try_after (project_id=?)",
    "SEARCH second_scores USING COVERING INDEX ix_second_scores_project_id_alias_recipe_id (project_id=?)",
]


@pytest.fixture
async def bench(store: Store, tmp_path: Path) -> AsyncIterator[Bench]:
    alias = await Rows(store).alias()
    settings = RecorderSettings(group_window_s=1e-6, retention_days=80)
    recorder = Recorder(store, settings)
    await recorder.start()
    yield Bench(store, recorder, alias.id, tmp_path, settings, runs=16)
    await recorder.stop()


async def test_nothing_that_is_polled_or_listed_walks_a_table_that_grows(bench: Bench) -> None:
    found = {}
    for name, deed in deeds(bench):
        if not name.startswith("retention"):
            with listening(bench.store) as heard:
                await deed()
            assert heard or "turn" in name  # turns go past SQLAlchemy
            found[name] = [line.partition(" | ")[0] for line in await walks(bench.store, heard)]
    assert {name: lines for name, lines in found.items() if lines} == {"hone status": COUNTED}


async def test_retention_finds_the_oldest_by_an_index(bench: Bench) -> None:
    with listening(bench.store) as heard:
        await sweep(Project(bench.store, DEFAULT_PROJECT), bench.settings)
    assert any("ORDER BY trajectories.ended_at" in text for text in heard)
    assert await walks(bench.store, heard) == []


async def test_a_run_is_deleted_by_indexes_alone(bench: Bench) -> None:
    """Whatever else waits to be indexed: where a store is copied, or its index is behind, that is every call."""
    await dict(deeds(bench))["32 runs ended, and their groups closed"]()
    async with bench.store.read() as conn:
        ended = select(trajectories.c.id).where(trajectories.c.state == TrajectoryState.COMPLETED).limit(1)
        run = (await conn.execute(ended)).scalar_one()
    with listening(bench.store) as heard:
        await delete_trajectory(Project(bench.store, DEFAULT_PROJECT), run)
    assert any(text.startswith("DELETE FROM unindexed") for text in heard)
    assert await walks(bench.store, heard) == []


async def test_a_walk_is_seen(bench: Bench) -> None:
    with listening(bench.store) as heard:
        async with bench.store.read() as conn:
            await conn.exec_driver_sql("SELECT count(*) FROM calls WHERE model = ?", ("x",))
    assert len(await walks(bench.store, heard)) == 1
