"""Tasks that two versions attempted are set beside each other, by scenario or by implicit task."""

from __future__ import annotations

import pytest

from recorder.errors import NotFound
from recorder.registry.versions import get_version_by_name
from recorder.store.database import Project
from recorder.store.schema import score_parts, trajectories
from recorder.views.versions.before_after import compare_answers, list_shared_tasks
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


async def test_a_scenario_is_the_same_in_two_campaigns_and_rewards_are_over_all_its_runs(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    first, second = await learned.campaign(), await learned.campaign()
    await learned.group(10, scenario_id=await learned.scenario(first), campaign_id=first)
    await learned.group(11, scenario_id=await learned.scenario(first), campaign_id=first)
    version = await learned.accepted(1)
    await learned.group(12, scenario_id=await learned.scenario(second), campaign_id=second)
    before = await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    [task] = await list_shared_tasks(rows.store, before, version)
    assert (task.scenario, task.reward_before, task.reward_after, task.rise) == ("order-1", 0.5, 0.5, 0.0)
    assert [(one.external_id, one.trajectories, one.best) for one in task.before] == [
        ("order-11", 2, 1.0),
        ("order-10", 2, 1.0),
    ]
    assert [one.id for one in task.after] == ["grp_0012"]


async def test_what_changed_most_comes_first_and_what_was_not_judged_has_no_reward(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    for number, key in enumerate(("same", "better", "open"), 10):
        await learned.group(number, implicit_key=key)
    version = await learned.accepted(1)
    for number, key in enumerate(("same", "better"), 20):
        await learned.group(number, implicit_key=key)
    await rows.group(id="grp_open", alias_id=learned.alias_id, version_id=version.id, implicit_key="open")
    async with rows.store.write() as conn:
        better = score_parts.c.trajectory_id.in_(["traj_0021_0", "traj_0021_1"])
        await conn.execute(score_parts.update().where(better).values(value=0.9))
    before = await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    tasks = await list_shared_tasks(rows.store, before, version)
    assert tasks[0].key == "better"
    assert {task.key: task.reward_after for task in tasks} == {"better": 0.9, "same": 0.5, "open": None}
    assert {task.key: task.rise for task in tasks if task.rise is None} == {"open": None}


async def test_groups_of_traffic_that_pin_no_version_are_of_the_one_that_answered_them(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    await learned.group(10, implicit_key="task", version_id=None)
    version = await learned.accepted(1)
    await learned.group(11, implicit_key="task", version_id=None)
    await learned.group(12, implicit_key="task", version_id=None)
    base = await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    await rows.set(trajectories, "traj_0012_0", version_id=base.id)  # one answer of each
    [task] = await list_shared_tasks(rows.store, base, version)
    assert ([one.id for one in task.before], [one.id for one in task.after]) == (["grp_0010"], ["grp_0011"])


async def test_rewards_of_a_ranking_show_no_rise(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    await learned.group(10, implicit_key="task")
    version = await learned.accepted(1)
    await learned.group(11, implicit_key="task", absolute=False)
    before = await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    [task] = await list_shared_tasks(rows.store, before, version)
    assert (task.reward_before, task.reward_after, task.relative, task.rise) == (0.5, 0.5, True, None)


async def test_nothing_is_told_of_tasks_that_only_one_of_them_met(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    await learned.group(10, implicit_key="before")
    version = await learned.accepted(1)
    await learned.group(11, implicit_key="after")
    await learned.group(12)  # of no task that is known again
    before = await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0")
    assert await list_shared_tasks(rows.store, before, version) == []


async def test_the_attempts_at_a_task_are_told_best_first(rows: Rows) -> None:
    learned = Learned(rows.store, (await rows.alias()).id)
    await learned.group(10, implicit_key="task")
    version = await learned.accepted(1)
    await learned.group(11, implicit_key="task")
    tasks = await list_shared_tasks(
        rows.store, await get_version_by_name(Project(rows.store, PROJECT), "helpdesk@0"), version
    )
    told = await compare_answers(rows.store, tasks, "task")
    assert [(one.id, one.reward) for one in told.before] == [("traj_0010_1", 1.0), ("traj_0010_0", 0.0)]
    assert [(one.id, one.answer, one.cut) for one in told.after] == [
        ("traj_0011_1", None, False), ("traj_0011_0", None, False),
    ]  # fmt: skip
    with pytest.raises(NotFound, match="'another'"):
        await compare_answers(rows.store, tasks, "another")
