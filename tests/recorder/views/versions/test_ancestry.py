"""The line of descent tells of each version where it stands, what it was worth, and what it was trained on."""

from __future__ import annotations

import pytest

from recorder.errors import Conflict, NotFound
from recorder.registry import alias_moves, versions
from recorder.registry.aliases import AliasView, get_alias
from recorder.store.database import Project
from recorder.views.versions.ancestry import list_ancestry
from recorder.views.versions.detail import version_detail
from recorder.views.versions.evidence import PASSED
from tests.recorder.learning import FIGURES, Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def alias_of(learned: Learned) -> AliasView:
    return await get_alias(Project(learned.store, PROJECT), learned.alias)


async def test_what_is_live_its_ancestors_and_what_came_to_nothing_are_told_apart(learned: Learned) -> None:
    await learned.accepted(1)
    spoilt = await learned.step(2)
    await versions.reject_version(learned.store, spoilt.id, "kl: too far", lessons="left_out", who="controller")
    await learned.accepted(3)
    waiting = await learned.gated(4)
    await alias_moves.set_canary(learned.store, learned.alias_id, waiting.id, 0.25)
    line = await list_ancestry(learned.store, await alias_of(learned))
    assert [(v.number, v.state, v.in_line, v.role, v.share, v.parent) for v in line] == [
        (4, "canary", False, "canary", 0.25, "helpdesk@3"),
        (3, "live", True, "live", None, "helpdesk@1"),
        (2, "rejected", False, None, None, "helpdesk@1"),
        (1, "retired", True, "previous", None, "helpdesk@0"),
        (0, "retired", True, None, None, None),
    ]
    assert [(v.trained.step, v.trained.groups, v.trained.trajectories) for v in line if v.trained] == [
        (4, 1, 1), (3, 1, 1), (2, 1, 1), (1, 1, 1),
    ]  # fmt: skip
    assert [v.decided.why for v in line if v.decided] == [None, None, "kl: too far", None]


async def test_a_part_of_a_line_is_told_by_its_numbers(learned: Learned) -> None:
    for number in (1, 2, 3):
        await learned.accepted(number)
    alias = await alias_of(learned)
    assert [v.number for v in await list_ancestry(learned.store, alias, limit=2)] == [3, 2]
    assert [v.number for v in await list_ancestry(learned.store, alias, before=2, limit=2)] == [1, 0]


async def test_a_versions_measure_is_its_validation_before_its_gate(learned: Learned) -> None:
    first = await learned.accepted(1)
    await learned.accepted(2, {"kl_live": 0.01})
    campaign = await learned.campaign()
    await learned.validated(campaign, 1, first.name, 0.25, 4)
    await learned.validated(campaign, 2, first.name, 0.5, 96)  # the newer counts
    await learned.gated(3)
    line = await list_ancestry(learned.store, await alias_of(learned))
    told = {v.number: (m.kind, m.value, m.of, m.source) for v in line if (m := v.measure) is not None}
    assert told == {
        1: ("success", 0.5, 96, "validation"),
        3: ("success", FIGURES["success"], FIGURES["pairs"], "gate"),
    }
    assert all(v.measure.interval for v in line if v.measure)


async def test_a_versions_reward_is_of_what_it_sampled_and_not_of_the_step_that_made_it(learned: Learned) -> None:
    await learned.accepted(1, metrics={"reward_mean": 0.9})  # on a group that version 0 sampled
    await learned.group(2)
    await learned.set_rewards(2, 0.25, 0.35)
    line = await list_ancestry(learned.store, await alias_of(learned))
    told = {v.number: (r.version, r.trajectories, r.groups, r.mean) for v in line if (r := v.reward) is not None}
    assert told == {1: ("helpdesk@1", 2, 1, pytest.approx(0.3)), 0: ("helpdesk@0", 2, 1, 0.5)}
    whole = await version_detail(Project(learned.store, PROJECT), "helpdesk@1")
    assert whole.version.reward == line[0].reward


async def test_a_version_is_told_whole_beside_its_parent_or_another(learned: Learned) -> None:
    await learned.accepted(1, implicit_key="task")
    await learned.accepted(2, implicit_key="task")
    await learned.group(3, implicit_key="task")
    await learned.group(4, implicit_key="another")
    whole = await version_detail(Project(learned.store, PROJECT), "helpdesk@2")
    assert (whole.compared_with, [m.move for m in whole.moves]) == ("helpdesk@1", ["gate", "gated"])
    assert whole.step is not None
    assert (whole.step.number, whole.step.seconds) == (2, {"train": 3.5, "load": 0.25})
    assert whole.trained_on is not None
    [trained] = whole.trained_on.tasks
    assert [(one.id, one.rewarded, one.reward, one.state) for one in trained.groups] == [
        ("grp_0002", 2, 0.5, "trained")
    ]
    assert (list(whole.held_out), [one.text for one in whole.evidence][:1]) == ([], [PASSED["sane"]])
    [task] = whole.tasks
    assert ([one.id for one in task.before], [one.id for one in task.after]) == (["grp_0002"], ["grp_0003"])
    other = await version_detail(Project(learned.store, PROJECT), "helpdesk@2", "helpdesk@0")
    assert [[one.id for one in task.before] for task in other.tasks] == [["grp_0001"]]
    base = await version_detail(Project(learned.store, PROJECT), "helpdesk@0")
    assert (base.compared_with, base.tasks, base.step, base.trained_on) == (None, (), None, None)


async def test_what_is_not_there_or_of_another_alias_is_refused(learned: Learned) -> None:
    await learned.rows.alias("other")
    with pytest.raises(NotFound, match="helpdesk@9"):
        await version_detail(Project(learned.store, PROJECT), "helpdesk@9")
    with pytest.raises(Conflict, match="of another alias"):
        await version_detail(Project(learned.store, PROJECT), "helpdesk@0", "other@0")
