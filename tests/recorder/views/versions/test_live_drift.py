"""A live version that is too far from the base is found, with the newest trajectories that it sampled."""

from __future__ import annotations

import pytest

from recorder.registry import alias_moves, live_findings
from recorder.registry.aliases import get_alias
from recorder.registry.live_findings import LiveFinding
from recorder.store.database import Project
from recorder.views.versions.live_drift import LiveDrift, find_drift
from recorder.views.versions.live_rewards import live_rounds
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def drift(learned: Learned, most: float) -> LiveDrift | None:
    return await find_drift(learned.store, await get_alias(Project(learned.store, PROJECT), learned.alias), most)


async def test_it_is_found_by_the_figure_of_its_step_with_its_transcripts(learned: Learned) -> None:
    assert await drift(learned, 0.1) is None  # version 0 has no figure
    version = await learned.gated(1, metrics={"drift.kl_base": 0.3125})
    await alias_moves.set_live(learned.store, learned.alias_id, version.id, why="gate")
    assert await drift(learned, 0.3125) is None
    found = await drift(learned, 0.25)
    assert found is not None
    assert (found.version_id, found.trajectories) == (version.id, [])
    assert found.describe() == (
        "its KL from the base is 0.312 nats a token on the drift set, where trainer.kl_base_max is 0.25"
    )
    await learned.group(2)
    await learned.group(3)
    found = await drift(learned, 0.25)
    assert found is not None
    assert list(found.trajectories) == ["traj_0003_1", "traj_0003_0", "traj_0002_1"]
    assert "`hone show traj_0003_1`" in found.describe()


async def test_what_is_kept_in_spite_of_drift_is_not_kept_in_spite_of_a_fall(learned: Learned) -> None:
    await learned.group(1)
    version = await learned.accepted(2)
    alias = await get_alias(Project(learned.store, PROJECT), learned.alias)
    await live_findings.write_finding(learned.store, alias, version.id, LiveFinding("kl_base_max", "it is far"), {})
    async with learned.store.read() as conn:
        found = await live_findings.find_undecided(conn, version.id)
        assert found == LiveFinding("kl_base_max", "it is far")
    await alias_moves.set_live(learned.store, learned.alias_id, version.id, why="promote")
    async with learned.store.read() as conn:
        assert await live_findings.find_undecided(conn, version.id) is None
        assert await live_findings.list_kept(conn, [version.id]) == set()
    assert await live_findings.has_finding(learned.store, version.id, "kl_base_max")
    assert not await live_findings.has_finding(learned.store, version.id, "reward_fall")
    assert await live_rounds(learned.store, alias) == []
