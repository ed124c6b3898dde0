"""A version's held-out attempts are read from its gate and from its campaign's validations, with few rows each."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import insert

from benchmarks.pages import listening, walks
from recorder.queue import gate_requests
from recorder.queue.campaigns import NewScenario, add_scenarios, list_scenarios
from recorder.queue.training.steps import step_of_version
from recorder.registry.versions import VersionView, get_version_by_name
from recorder.store.database import Project
from recorder.store.schema import attempts, campaigns, score_parts, steps, trajectories
from recorder.store.sql import now
from recorder.views.versions.held_out import HeldOutComparison
from recorder.views.versions.held_out_rows import load_held_out
from recorder.views.versions.training_data import load_training_data
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def base(learned: Learned) -> VersionView:
    return await get_version_by_name(Project(learned.store, PROJECT), "helpdesk@0")


async def held_out(learned: Learned, version: VersionView, parent: VersionView) -> list[HeldOutComparison]:
    return await load_held_out(Project(learned.store, PROJECT), version, parent, version.state_at)


async def attempted(learned: Learned, campaign: str, name: str, version: str, **values: Any) -> str:
    """An attempt at a scenario, with the trajectory that a version answered; its group's id."""
    group = await learned.rows.group(id=f"grp_{name}", external_id=name, alias_id=learned.alias_id)
    run = await learned.rows.trajectory(
        group, id=f"traj_{name}", state="completed", answered=False, external_id="0", address_group=name, purpose="val"
    )
    call = await learned.rows.call(run, id=f"call_{name}", version_id=version)
    await learned.rows.set(trajectories, run, leaf_call_id=call)
    row = {
        "id": f"att_{name}", "project_id": PROJECT, "campaign_id": campaign, "number": 0, "purpose": "val",
        "state": "done", "group_external_id": name, "trajectory_external_id": "0", **values,
    }  # fmt: skip
    async with learned.store.write() as conn:
        await conn.execute(insert(attempts).values(**row))
    return group


async def with_scenarios(learned: Learned, campaign: str, *names: str) -> dict[str, str]:
    await add_scenarios(learned.store, campaign, "val", [NewScenario(name, "Where is it?") for name in names])
    return {one.external_id: one.id for one in await list_scenarios(learned.store, campaign, "val")}


async def test_the_gates_attempts_at_held_out_scenarios_are_compared_by_success(learned: Learned) -> None:
    version, parent = await learned.step(1), await base(learned)
    request = await gate_requests.request_gate(learned.store, version, parent, 4)
    ids = await with_scenarios(learned, request, "won", "lost", "later")
    of_task = {"won": (1.0, 0.0), "lost": (0.0, 1.0), "later": (1.0, 0.0)}
    for name, successes in of_task.items():
        for arm, success in enumerate(successes):
            said = {"scenario_id": ids[name], "number": arm, "step_number": 1 + (name == "later"), "success": success}
            by = (version.id, parent.id)[arm]
            await attempted(learned, request, f"{name}-{arm}", by, **said, **{"purpose": "eval"})
    await learned.rows.set(campaigns, request, steps_done=1)  # the second round is not measured yet
    [found] = await held_out(learned, version, parent)
    assert (found.about.source, found.about.beside, found.about.unit) == ("gate scenarios", "helpdesk@0", "success")
    assert [(one.scenario, one.trajectory_before, one.trajectory_after) for one in found.won] == [
        ("won", "traj_won-1", "traj_won-0")
    ]
    assert ([one.scenario for one in found.lost], found.won_count, found.lost_count) == (["lost"], 1, 1)


async def judged(learned: Learned, number: int, version: VersionView, parent: VersionView, *rewards: float) -> None:
    """A pair of a gate: the version's answer and its parent's, judged. Ids sort by time: these began long ago."""
    group = await learned.rows.group(id=f"grp_pair{number}", state="ready", version_id=version.id)
    for by, name in ((version, "own"), (parent, "other")):
        run = await learned.rows.trajectory(
            group, id=f"traj_00{name}{number}", state="completed", purpose="eval", origin="shadow", version_id=by.id,
            answered=False,
        )  # fmt: skip
        call = await learned.rows.call(run, id=f"call_{name}{number}", prompt_node_id=b"task%d" % (number // 2))
        await learned.rows.set(trajectories, run, leaf_call_id=call)
    await learned.rows.score(group)
    async with learned.store.write() as conn:
        for name, value in zip(("own", "other"), rewards, strict=True):
            of_run = score_parts.c.trajectory_id == f"traj_00{name}{number}"
            await conn.execute(score_parts.update().where(of_run).values(value=value))


async def test_the_judged_pairs_of_a_gate_are_compared_by_wins_and_by_task(learned: Learned) -> None:
    version, parent = await learned.gated(1), await base(learned)
    for number, rewards in enumerate(((0.9, 0.1), (0.8, 0.2), (0.1, 0.2), (0.3, 0.3))):
        await judged(learned, number, version, parent, *rewards)
    [found] = await held_out(learned, version, parent)
    assert (found.about.source, found.about.unit) == ("gate pairs", "wins")
    [won], [lost] = found.won, found.lost
    assert (won.key, won.before, won.after, won.attempts_after) == (b"task0".hex(), 0.0, 1.0, 2)
    assert (lost.key, lost.before, lost.after) == (b"task1".hex(), 0.75, 0.25)


async def test_the_first_rows_of_a_version_are_read_and_no_others(learned: Learned) -> None:
    version, parent = await learned.gated(1), await base(learned)
    await judged(learned, 0, version, parent, 0.9, 0.1)
    assert await load_held_out(Project(learned.store, PROJECT), version, parent, None) == []
    with learned.rows.statements(of_reads=True) as seen:
        assert await held_out(learned, version, parent)
    assert len(seen) <= 8
    assert all(" LIMIT " in one for one in seen if "JOIN trajectories" in one)


async def campaign_version(learned: Learned) -> tuple[str, VersionView, VersionView]:
    """A campaign, the version that its step made, and its parent."""
    campaign, parent = await learned.campaign(), await base(learned)
    version = await learned.accepted(1)
    async with learned.store.write() as conn:
        made = steps.update().where(steps.c.version_id == version.id)
        await conn.execute(made.values(campaign_id=campaign, ended_at=now()))
    return campaign, version, parent


async def test_a_campaigns_validations_before_and_after_are_compared(learned: Learned) -> None:
    campaign, version, parent = await campaign_version(learned)
    ids = await with_scenarios(learned, campaign, "won", "even")
    for step, by in ((0, parent), (1, version)):
        for name, success in (("won", float(step)), ("even", 1.0)):
            said = {"scenario_id": ids[name], "step_number": step, "success": success}
            await attempted(learned, campaign, f"{name}-{step}", by.id, **said)
        await learned.validated(campaign, step, by.name, 0.5, 2)
    [found] = await held_out(learned, version, parent)
    assert (found.about.source, found.about.campaign, found.about.beside) == ("validation", "orders", "helpdesk@0")
    assert [(one.scenario, one.before, one.after) for one in found.won] == [("won", 0.0, 1.0)]
    assert (found.even_count, found.lost_count) == (1, 0)


async def test_a_version_that_no_validation_measured_has_none(learned: Learned) -> None:
    campaign, version, parent = await campaign_version(learned)
    await learned.validated(campaign, 0, "helpdesk@0", 0.5, 2)
    assert await held_out(learned, version, parent) == []
    await learned.validated(campaign, 1, "helpdesk@1", 0.5, 2)  # its attempts are deleted
    assert await held_out(learned, version, parent) == []


@pytest.mark.sqlite_only("its plans")
async def test_no_table_that_grows_is_walked(learned: Learned) -> None:
    campaign, version, parent = await campaign_version(learned)
    ids = await with_scenarios(learned, campaign, "won")
    for step, by in ((0, parent), (1, version)):
        said = {"scenario_id": ids["won"], "step_number": step, "success": float(step)}
        await attempted(learned, campaign, f"won-{step}", by.id, **said)
        await learned.validated(campaign, step, by.name, 0.5, 1)
    request = await gate_requests.request_gate(learned.store, version, parent, 4)
    ids = await with_scenarios(learned, request, "held")
    for arm, by in enumerate((version, parent)):
        said = {"scenario_id": ids["held"], "number": arm, "step_number": 0, "success": 1.0 - arm}
        await attempted(learned, request, f"held-{arm}", by.id, **said, **{"purpose": "eval"})
    await judged(learned, 0, version, parent, 0.9, 0.1)
    made = await step_of_version(learned.store, version.id)
    assert made is not None
    with listening(learned.store) as heard:
        found = await held_out(learned, version, parent)
        assert (await load_training_data(learned.store, made.id)).tasks
    assert [one.about.source for one in found] == ["validation", "gate scenarios", "gate pairs"]
    assert await walks(learned.store, heard) == []
