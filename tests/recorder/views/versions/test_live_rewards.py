"""What live traffic earned by version and task: which trajectories count, and which versions are compared."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.ids import new_id
from recorder.queue import claims
from recorder.queue.judging.scores import NewPart, record_score
from recorder.registry import alias_moves, live_findings, moves
from recorder.registry.aliases import get_alias
from recorder.registry.live_findings import LiveFinding
from recorder.stats.falls import Round, ScenarioFigure
from recorder.store.database import Project
from recorder.views.versions.live_rewards import live_rounds
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score

FELL = LiveFinding("reward_fall", "it fell")


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def rounds(learned: Learned) -> list[Round]:
    return await live_rounds(learned.store, await get_alias(Project(learned.store, PROJECT), learned.alias))


async def earned(
    learned: Learned,
    rewards: list[float],
    version: str,
    key: str,
    *,
    absolute: bool = True,
    recipe: str = "newest",
    unasked: bool = False,
    of_group: dict[str, Any] | None = None,
    **of_trajectory: Any,
) -> None:
    """A scored group of trajectories at one task."""
    rows = learned.rows
    of = {"id": new_id("grp"), "state": "ready", "alias_id": learned.alias_id, "implicit_key": key}
    group = await rows.group(**of | (of_group or {}))
    run: dict[str, Any] = {"state": "completed", "alias_id": learned.alias_id, "version_id": version}
    members = [await rows.trajectory(group, answered=False, id=new_id("traj"), **run | of_trajectory) for _ in rewards]
    claim = await claims.claim_one_for_judging(learned.store, group, "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", reward, unasked=unasked) for id_, reward in zip(members, rewards, strict=True)]
    await record_score(learned.store, claim, new_score(recipe, parts=parts, absolute=absolute))


async def test_each_version_of_the_line_is_a_round_of_tasks(learned: Learned) -> None:
    base = await learned.live()
    first = (await learned.accepted(1)).id
    await earned(learned, [1.0, 0.5], base, "a")
    await earned(learned, [1.0], base, "b")
    await earned(learned, [0.0, 0.0, 0.3], first, "a")
    before, now = await rounds(learned)
    assert before == {"a": ScenarioFigure(2, 0.75, 0.25), "b": ScenarioFigure(1, 1.0, 0.0)}
    assert now["a"].attempts == 3
    assert now["a"].mean == pytest.approx(0.1)
    assert now["a"].std == pytest.approx(0.1414, abs=1e-4)


async def test_what_does_not_compare_or_was_not_sampled_for_training_does_not_count(learned: Learned) -> None:
    base = await learned.live()
    await earned(learned, [0.5], base, "a")
    await earned(learned, [1.0], base, "a", absolute=False)
    await earned(learned, [1.0], base, "a", unasked=True)
    await earned(learned, [1.0], base, "a", origin="shadow")
    await earned(learned, [1.0], base, "a", purpose="val")
    await earned(learned, [1.0], base, "a", mixed=True)
    campaign = await learned.campaign()
    await earned(learned, [1.0], base, "a", of_group={"campaign_id": campaign})
    assert await rounds(learned) == [{"a": ScenarioFigure(1, 0.5, 0.0)}]
    await earned(learned, [0.0], base, "b", recipe="another")
    assert await rounds(learned) == [{"b": ScenarioFigure(1, 0.0, 0.0)}]  # by the recipe of the newest alone


async def test_without_a_trajectory_of_the_live_version_there_is_nothing_to_compare(learned: Learned) -> None:
    await earned(learned, [0.5], await learned.live(), "a")
    await learned.accepted(1)
    assert await rounds(learned) == []


async def test_a_version_that_is_kept_is_the_first_of_those_compared_with(learned: Learned) -> None:
    base, project = await learned.live(), Project(learned.store, PROJECT)
    first = await learned.accepted(1)
    await earned(learned, [1.0], base, "a")
    await earned(learned, [0.0], first.id, "a")
    alias = await get_alias(project, learned.alias)
    for _ in range(2):  # it is written once
        await live_findings.write_finding(learned.store, alias, first.id, FELL, {"now": 0.0})
    async with learned.store.read() as conn:
        assert await live_findings.find_undecided(conn, first.id) == FELL
    for _ in range(2):  # and decided once
        await alias_moves.set_live(learned.store, learned.alias_id, first.id, why="promote", reason="harder tasks")
    async with learned.store.read() as conn:
        assert await live_findings.find_undecided(conn, first.id) is None
    assert await live_findings.has_finding(learned.store, first.id, "reward_fall")
    found = [(move.move, move.why) for move in await moves.list_moves(project, version_ids=[first.id])]
    assert found[:2] == [("kept", "harder tasks"), ("reward_fall", "it fell")]
    assert await rounds(learned) == [{"a": ScenarioFigure(1, 0.0, 0.0)}]
    second = await learned.accepted(2)
    await earned(learned, [0.0], second.id, "a")
    assert len(await rounds(learned)) == 2
