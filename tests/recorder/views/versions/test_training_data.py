"""What a version was trained on is told by task, source and objective, and what was excluded with why."""

from __future__ import annotations

import pytest
from sqlalchemy import insert

from recorder.reasons import explain_reason
from recorder.registry.aliases import get_alias
from recorder.registry.versions import VersionView
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.store.schema import steps, uses
from recorder.views.campaigns.events import STEP
from recorder.views.lists.filters import TrajectoryFilter
from recorder.views.lists.trajectories import list_trajectories
from recorder.views.versions import training_data
from recorder.views.versions.ancestry import load_ancestry_version
from recorder.views.versions.training_data import (
    TrainedGroup,
    TrainingData,
    explain_exclusions,
    group_by_task,
    load_training_data,
)
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


def group(id_: str, key: str, trained: int, reward: float | None, rewarded: int = 2) -> TrainedGroup:
    return TrainedGroup(id_, None, "trained", None, key, None, trained, rewarded, reward)


def test_groups_of_one_task_are_one_task_and_the_mean_is_over_trajectories() -> None:
    tasks = group_by_task([group("1", "a", 1, 0.5), group("2", "b", 2, None, 0), group("3", "a", 3, 1.0, 6)])
    assert [(one.key, one.trained, one.reward, [g.id for g in one.groups]) for one in tasks] == [
        ("a", 4, 0.875, ["1", "3"]),
        ("b", 2, None, ["2"]),
    ]


def test_exclusions_are_told_in_words_the_most_frequent_first() -> None:
    told = explain_exclusions({"too_few": 1, "zero_variance": 4, "sealed-late": 1, "made_up": 2, "none": 0})
    assert [(one.code, one.trajectories) for one in told] == [
        ("zero_variance", 4), ("made_up", 2), ("sealed-late", 1), ("too_few", 1),
    ]  # fmt: skip
    assert (told[0].why, told[1].why) == (explain_reason("zero_variance"), "made_up")


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def data_of(learned: Learned, version: VersionView) -> TrainingData:
    alias = await get_alias(Project(learned.store, PROJECT), "helpdesk")
    trained = (await load_ancestry_version(learned.store, alias, version)).trained
    assert trained is not None
    return await load_training_data(learned.store, trained.step_id)


async def test_a_step_is_told_by_task_source_objective_and_exclusion(learned: Learned) -> None:
    version = await learned.accepted(1, implicit_key="task")
    found = await data_of(learned, version)
    [task] = found.tasks
    assert (task.key, task.trained, task.reward, task.groups[0].rewarded) == ("task", 1, 0.5, 2)
    assert (found.trajectories, found.sources, found.task_count) == (1, {"live": 1}, 1)
    assert [(one.code, one.trajectories) for one in found.excluded] == [("completed", 1)]
    async with learned.store.write() as conn:
        [step_id] = (await conn.execute(steps.select())).scalars()
        row = {"step_id": step_id, "objective": "imitate", "kind": "file", "source_id": "a.jsonl:1", "times": 2}
        await conn.execute(insert(uses).values(**row))
    found = await data_of(learned, version)
    assert [(one.objective, one.kind, one.count, one.times) for one in found.objectives] == [
        ("group", "trajectory", 1, 1),
        ("imitate", "file", 1, 2),
    ]


async def test_a_campaigns_step_is_told_with_the_groups_that_it_did_not_take(learned: Learned) -> None:
    campaign = await learned.campaign()
    version = await learned.accepted(1)
    async with learned.store.write() as conn:
        await conn.execute(steps.update().values(campaign_id=campaign))
        event = {"step": 1, "version": version.name, "sampled_by": "helpdesk@0", "left_out": {"zero_variance": 8}}
        more = dict.fromkeys(("success", "reward", "kl", "kl_base", "tokens_per_s")) | {
            "attempts": 16, "errored": 0, "trained": 8,
        }  # fmt: skip
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", campaign, STEP, event | more)])
    found = await data_of(learned, version)
    assert [(one.code, one.trajectories) for one in found.excluded] == [("zero_variance", 8)]


async def test_many_tasks_are_cut_and_counted(learned: Learned, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(training_data, "TASKS", 0)
    found = await data_of(learned, await learned.accepted(1))
    assert (found.tasks, found.task_count, found.trajectories) == ((), 1, 1)


async def test_the_trajectories_of_a_version_are_listed_by_a_filter(learned: Learned) -> None:
    await learned.accepted(1)
    await learned.accepted(2)

    async def listed(version: str) -> list[str]:
        page = await list_trajectories(Project(learned.store, PROJECT), TrajectoryFilter(trained_by=version))
        return [line.id for line in page.lines]

    assert await listed("helpdesk@1") == ["traj_0001_1"]
    assert await listed("helpdesk@2") == ["traj_0002_1"]
    assert await listed("helpdesk@0") == []
