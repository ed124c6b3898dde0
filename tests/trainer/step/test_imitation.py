"""A step that imitates beside its groups, and a fit on demonstrations alone, on a real store."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sqlalchemy import insert, update

from recorder.errors import VersionPending
from recorder.messages.trainability import Exclusion
from recorder.queue import feedback
from recorder.queue.training import steps, uses
from recorder.states import GroupState, Purpose, VersionState
from recorder.store import schema
from recorder.store.database import Project
from recorder.views.lists.trajectories import TrajectoryLine, list_trajectories
from recorder.views.trajectories import transcripts
from recorder.views.trajectory_detail.loader import load_detail
from tests.trainer.step.left import group_state
from tests.trainer.world import PROJECT, World
from trainer.artifacts import adapters
from trainer.demonstrations import candidates
from trainer.errors import ConditionInvalid
from trainer.objectives.imitate_rows import ImitationExclusion
from trainer.step.fits import context
from trainer.step.fits.demonstration_reader import DemonstrationSource

pytestmark = pytest.mark.slow

BOTH: list[dict[str, Any]] = [
    {"name": "group"},
    {"name": "imitate", "weight": 0.5, "where": ["reward >= 0.9", "best_of_group = yes"]},
]


async def used(world: World, version_id: str, ids: list[str]) -> dict[str, int]:
    return await uses.count_uses(world.store, "imitate", ids, version_id)


async def members(world: World, group_id: str) -> list[str]:
    return [one.id for one in (await transcripts.load_group(world.store, group_id)).members]


async def test_a_step_imitates_beside_its_groups_and_its_ledger_names_each_objective_of_a_trajectory(
    world: World,
) -> None:
    first = await world.group("g1", [1.0, 0.0, 0.2], seed=1)
    await world.group("val", [1.0, 0.0], seed=3, purpose=Purpose.VAL)
    best, *others = await members(world, first)
    async with await world.trainer(objectives=BOTH) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        assert await used(world, report.version.id, [best, *others]) == {best: 1}
        detail = await load_detail(world.store, best)
        assert [one.version for one in detail.outcome.training_uses] == ["org/helpdesk@1"]
        assert [(one.objective, one.version) for one in detail.outcome.objective_uses] == [
            ("imitate", "org/helpdesk@1")
        ]
        metrics = report.metrics
        assert metrics["objective.group.tokens"] == 3 * 12
        assert metrics["objective.imitate.tokens"] == 12
        assert metrics["loss"] == pytest.approx(metrics["objective.group.loss"] + metrics["objective.imitate.loss"])
        shares = [metrics[f"objective.{name}.gradient_share"] for name in ("group", "imitate")]
        assert sum(shares) == pytest.approx(1.0)
        assert min(shares) > 0.01
        assert (metrics["demonstrations"], metrics["rendered_tokens"]) == (1, 0)
        assert metrics["ratio_mean"] == pytest.approx(1.0, abs=1e-3)  # of the tokens that an engine sampled

        await world.promote(report.version)
        second = await world.group("g2", [0.0, 1.0, 0.5], seed=2)
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
        newer = (await members(world, second))[1]
        assert await used(world, report.version.id, [best, newer]) == {best: 1, newer: 1}  # `epochs` is 1


async def test_a_step_imitates_at_most_as_many_as_its_groups_trained_the_newest_first(world: World) -> None:
    older = [await world.group(f"old {n}", [1.0, 0.0], seed=10 + n) for n in range(3)]
    async with await world.trainer(objectives=[BOTH[0], {**BOTH[1], "where": "reward > 0.5"}]) as trainer:
        (claim, *_) = await world.claim(trainer)
        report = await trainer.train_once([claim])
        assert report.version is not None
        best = [(await members(world, id_))[0] for id_ in older]
        assert report.metrics["demonstrations"] == 2
        assert await used(world, report.version.id, best) == {best[1]: 1, best[2]: 1}


async def test_conditions_that_cannot_be_read_are_refused_before_anything_is_sampled(world: World) -> None:
    with pytest.raises(ConditionInvalid, match="no field 'rewards'"):
        await world.trainer(objectives=[BOTH[0], {**BOTH[1], "where": "rewards > 1"}])


async def test_a_fit_on_traffic_makes_a_version_and_leaves_groups_alone(world: World) -> None:
    groups = [await world.group(f"g{n}", [1.0, 0.0], seed=n) for n in range(6)]
    parent = await world.live()
    async with await world.trainer(sft={"epochs": 2, "lr": 1e-2, "batch_tokens": 60}) as trainer:
        report = await trainer.fit_once(DemonstrationSource(["reward >= 0.9"]))
        version, found = report.version, report.read
        assert version is not None
        assert (version.name, version.state, version.parent_id) == ("org/helpdesk@1", VersionState.WRITTEN, parent.id)
        adapters.read_adapter(Path(str(version.path)), version.manifest_sha256)
        assert await group_state(world, groups[0]) == (GroupState.SCORED, None)
        assert len(found.found) == 6
        best = [(await members(world, id_))[0] for id_ in groups]
        counted = await used(world, version.id, best)
        assert len(counted) == 5  # one task of six is held out
        assert set(counted.values()) == {report.best}
        assert len(report.epochs) == 2
        assert report.held_out_before is not None
        assert report.epochs[1].trained["loss"] < report.epochs[0].trained["loss"]
        assert version.metrics["epoch"] == report.best
        assert version.metrics["held_out_loss"] == min((one.held_out or {})["loss"] for one in report.epochs)
        assert await steps.count_schedule_steps(world.store, world.alias.id, None) == 0
        with pytest.raises(VersionPending):
            await trainer.fit_once(DemonstrationSource(["reward >= 0.9"]))

        await world.promote(version)
        assert await steps.count_schedule_steps(world.store, world.alias.id, None) == 0  # no step of a schedule
        step = await trainer.train_once(await world.claim(trainer))
        assert step.version is not None
        assert step.version.parent_id == version.id
        await world.promote(step.version)
        assert await steps.count_schedule_steps(world.store, world.alias.id, None) == 1


async def test_corrections_are_imitated_and_a_newer_one_is_used_though_an_older_one_was(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The toy base has no tokenizer: the texts stand for ids here."""
    monkeypatch.setattr(context, "ChatTemplate", ToyTemplate)
    group = await world.group("g", [1.0, 0.0], seed=1)
    ids = await members(world, group)
    project, where = Project(world.store, PROJECT), DemonstrationSource(["demonstration = yes"])
    await feedback.add_feedback(project, ids[1], "demonstration", "7 8 9")
    async with await world.trainer(sft={"epochs": 1, "held_out_share": 0}) as trainer:
        report = await trainer.fit_once(where)
        (one,) = report.read.found
        assert (one.source_id, one.is_rendered, one.trained_tokens) == (ids[1], True, 3)
        assert [list(row.token_ids[row.trained]) for row in one.rows] == [[7, 8, 9]]
        assert report.version is not None
        await world.promote(report.version)
        again = await trainer.fit_once(where)
        assert (again.version, again.read.left) == (None, {ImitationExclusion.ALREADY_USED: 1})
        await feedback.add_feedback(project, ids[1], "demonstration", "5 6")
        newer = await trainer.fit_once(where)
        assert [list(row.token_ids[row.trained]) for row in newer.read.found[0].rows] == [[5, 6]]


async def test_of_much_traffic_only_what_was_corrected_is_read_whole(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(context, "ChatTemplate", ToyTemplate)
    project, whole = Project(world.store, PROJECT), list[str]()
    for n in range(3):
        await world.group(f"g{n}", [1.0, 0.0], seed=n)
    corrected = (await members(world, (await trajectories_of(world))[0].group_id or ""))[0]
    await feedback.add_feedback(project, corrected, "demonstration", "7 8 9")

    async def counted(store: Any, ids: list[str], **how: Any) -> Any:
        whole.extend(ids)
        return await transcripts.load_trajectories(store, ids, **how)

    monkeypatch.setattr(candidates, "load_trajectories", counted)
    async with await world.trainer(sft={"epochs": 1, "held_out_share": 0}) as trainer:
        report = await trainer.fit_once(DemonstrationSource(["demonstration = yes"]))
    assert [one.source_id for one in report.read.found] == whole == [corrected]


class ToyTemplate:
    tool_mark = None

    def __init__(self, base: Path, template: Path | None = None) -> None:
        pass

    def split(self, messages: Any, index: int, tools: Any) -> tuple[Any, Any]:
        text = messages[index]["content"]
        return np.array([1, 2, 3], np.int32), np.array([int(word) for word in text.split()], np.int32)


async def test_scenarios_that_are_measured_are_never_imitated(world: World) -> None:
    for n in range(3):
        await world.group(f"g{n}", [1.0, 0.0], seed=n)
    groups = [one.group_id for one in (await trajectories_of(world))[::2]]
    campaign = {"id": "camp", "project_id": PROJECT, "alias_id": world.alias.id, "name": "c", "settings": {}}
    scenario = {"project_id": PROJECT, "campaign_id": "camp", "input": "x", "external_id": "order 1"}
    async with world.store.write() as conn:
        await conn.execute(insert(schema.campaigns).values(campaign | {"state": "done", "started_at": 0.0}))
        for id_, split in (("train", "train"), ("val", "val")):
            await conn.execute(insert(schema.scenarios).values(scenario | {"id": id_, "split": split}))
        for group_id, scenario_id in zip(groups[:2], ("train", "val"), strict=True):
            own = update(schema.groups).where(schema.groups.c.id == group_id)
            await conn.execute(own.values(scenario_id=scenario_id))
    async with await world.trainer(sft={"epochs": 1}) as trainer:
        report = await trainer.fit_once(DemonstrationSource(["reward >= 0.9"]))
    assert len(report.read.found) == 1
    # both: a training scenario with the id of a measured one is taken for it
    assert report.read.left == {ImitationExclusion.HELD_OUT_SCENARIO: 2}


async def test_answers_of_another_model_are_found_by_its_name_and_are_not_used_as_recorded(world: World) -> None:
    await world.group("g", [1.0, 0.0])
    best, other = await trajectories_of(world)
    async with world.store.write() as conn:
        calls, runs = schema.calls.c, schema.trajectories.c
        of_other = {"model": "frontier", "base_fingerprint": None}
        await conn.execute(update(schema.calls).where(calls.trajectory_id == other.id).values(of_other))
        await conn.execute(update(schema.trajectories).where(runs.id == other.id).values(alias_id=None))
    async with await world.trainer() as trainer:
        report = await trainer.fit_once(DemonstrationSource(["model = frontier"]))
    # the base has no tokenizer, so nothing can be rendered
    assert (report.version, report.read.left) == (None, {Exclusion.BASE_FINGERPRINT: 1})
    assert report.read.named == [f"{other.id}: base_fingerprint"]
    assert report.reason == "no demonstration can be imitated: {'base_fingerprint': 1}"
    async with await world.trainer(sft={"epochs": 1}) as trainer:
        report = await trainer.fit_once(DemonstrationSource(["model = m"]))
    assert [one.source_id for one in report.read.found] == [best.id]


async def trajectories_of(world: World) -> list[TrajectoryLine]:
    """The trajectories, oldest first."""
    page = await list_trajectories(Project(world.store, PROJECT))
    return list(reversed(page.lines))
