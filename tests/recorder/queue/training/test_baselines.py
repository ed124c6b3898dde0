"""Which earlier rewards a run may be compared with, and which groups wait until there are enough."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.queue import claims
from recorder.queue.judging.scores import NewPart, record_score
from recorder.queue.training import baselines
from recorder.queue.training.baselines import FEWEST
from recorder.registry import aliases
from recorder.registry.aliases import AliasView
from recorder.store.database import Project
from recorder.store.schema import groups, scores, trajectories
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


@pytest.fixture
async def alias(rows: Rows) -> AliasView:
    """An alias whose runs are compared with earlier ones."""
    return await aliases.ensure_alias(Project(rows.store, PROJECT), "helpdesk", "base", "print", baseline="running")


async def rewarded(
    rows: Rows, alias: AliasView, reward: float | None, *, recipe: str = "recipe", absolute: bool = True, **run: Any
) -> str:
    """A run with a reward; returns its id."""
    group_id = await rows.group(state="ready", alias_id=alias.id)
    run_id = await rows.trajectory(group_id, state="completed", alias_id=alias.id, **run)
    await judge(rows, group_id, run_id, reward, recipe, absolute=absolute)
    return run_id


async def judge(
    rows: Rows, group_id: str, run_id: str, reward: float | None, recipe: str = "recipe", *, absolute: bool = True
) -> None:
    claim = await claims.claim_one_for_judging(rows.store, group_id, "judge", 60)
    assert claim is not None
    score = new_score(recipe, absolute=absolute, parts=[NewPart(run_id, "reward", reward)])
    await record_score(rows.store, claim, score)


async def test_rewards_of_the_alias_and_recipe_come_newest_first(rows: Rows, alias: AliasView) -> None:
    runs = [await rewarded(rows, alias, reward) for reward in (0.0, 0.5, 1.0)]
    found = await baselines.list_earlier_rewards(rows.store, alias.id, "recipe")
    assert [one.trajectory_id for one in found] == runs[::-1]
    assert [one.reward for one in found] == [1.0, 0.5, 0.0]
    assert found[0].at >= found[1].at >= found[2].at


async def test_what_says_nothing_outside_its_group_or_is_not_for_training_does_not_count(
    rows: Rows, alias: AliasView
) -> None:
    other = await aliases.ensure_alias(Project(rows.store, PROJECT), "other", "base", "print")
    await rewarded(rows, other, 1.0)
    await rewarded(rows, alias, 1.0, recipe="another")
    await rewarded(rows, alias, 1.0, absolute=False)  # a ranking
    await rewarded(rows, alias, None)
    await rewarded(rows, alias, 1.0, purpose="val")
    await rewarded(rows, alias, 1.0, selection="not_selected")
    await rewarded(rows, alias, 1.0, origin="shadow")
    counted = await rewarded(rows, alias, 0.5)
    assert [one.trajectory_id for one in await baselines.list_earlier_rewards(rows.store, alias.id, "recipe")] == [
        counted
    ]


async def test_of_a_run_that_was_judged_again_the_current_reward_counts(rows: Rows, alias: AliasView) -> None:
    run = await rewarded(rows, alias, 0.0)
    newer = await rewarded(rows, alias, 0.5)
    group_id = str((await rows.get(trajectories, run))["group_id"])
    await judge(rows, group_id, run, 1.0)
    found = await baselines.list_earlier_rewards(rows.store, alias.id, "recipe")
    assert [(one.trajectory_id, one.reward) for one in found] == [(run, 1.0), (newer, 0.5)]


async def test_pages_lose_and_repeat_nothing_though_rewards_were_given_at_one_moment(
    rows: Rows, alias: AliasView, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = [await rewarded(rows, alias, number / 10) for number in range(7)]
    for score in await rows.all(scores):
        await rows.set(scores, score["id"], created_at=5.0)
    monkeypatch.setattr(baselines, "PAGE", 2)
    found = await baselines.list_earlier_rewards(rows.store, alias.id, "recipe")
    assert sorted(one.trajectory_id for one in found) == sorted(runs)
    assert len(found) == 7


@pytest.mark.sqlite_only("its plan")
async def test_the_query_walks_its_index(rows: Rows, alias: AliasView) -> None:
    text = str(baselines._rewards(alias.id, "recipe").limit(9).compile(compile_kwargs={"literal_binds": True}))
    async with rows.store.read() as conn:
        plan = " ".join(str(row) for row in await conn.exec_driver_sql(f"explain query plan {text}"))
    assert "ix_scores_alias_id_recipe_hash_created_at" in plan
    assert "SCAN" not in plan
    assert "AUTOMATIC" not in plan


async def test_a_runs_tools_are_those_of_its_last_answer(rows: Rows, alias: AliasView) -> None:
    plain, with_tools = [await rewarded(rows, alias, 1.0) for _ in range(2)]
    call = await rows.call(with_tools, tools_blob_id=b"tools")
    await rows.set(trajectories, with_tools, leaf_call_id=call)
    assert await baselines.tool_names(rows.store, [plain, with_tools]) == {plain: None, with_tools: b"tools"}
    found = await baselines.list_earlier_rewards(rows.store, alias.id, "recipe")
    assert {one.trajectory_id: one.tools for one in found} == {plain: None, with_tools: b"tools"}


async def test_groups_wait_until_there_is_something_to_compare_with(
    rows: Rows, alias: AliasView, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(baselines, "FEWEST", 3)
    for number in range(3):
        await rewarded(rows, alias, number / 3)
        assert await baselines.list_lacking_recipes(rows.store, alias.id) == {"recipe": number + 1}
    await rewarded(rows, alias, 1.0, recipe="ranked", absolute=False)
    lacking = await baselines.list_lacking_recipes(rows.store, alias.id)
    assert (
        await claims.waiting_for_training(rows.store, alias.id, lacking)
    ).groups == 1  # what was ranked has its group
    assert (await claims.waiting_for_training(rows.store, alias.id)).groups == 4
    await rewarded(rows, alias, 1.0)
    assert await baselines.list_lacking_recipes(rows.store, alias.id) == {}
    taken = await claims.claim_for_training(rows.store, alias.id, "trainer", 60, limit=9)
    assert len(taken) == 5


async def test_an_alias_that_compares_inside_groups_lacks_nothing(rows: Rows) -> None:
    alias = await rows.alias()
    await rewarded(rows, alias, 1.0)
    assert alias.baseline == "group"
    assert await baselines.list_lacking_recipes(rows.store, alias.id) == {}


async def test_groups_of_other_recipes_are_claimed_while_one_waits(rows: Rows, alias: AliasView) -> None:
    waiting = await rewarded(rows, alias, 1.0, recipe="new")
    for _ in range(FEWEST + 1):
        await rewarded(rows, alias, 1.0, recipe="old")
    lacking = await baselines.list_lacking_recipes(rows.store, alias.id)
    assert lacking == {"new": 1}
    taken = await claims.claim_for_training(rows.store, alias.id, "trainer", 60, limit=99, lacking=lacking)
    assert len(taken) == FEWEST + 1
    assert await rows.state(groups, str((await rows.get(trajectories, waiting))["group_id"])) == "scored"


async def test_the_proxy_says_what_an_alias_compares_with_and_others_leave_it(rows: Rows) -> None:
    await rows.alias()
    changed = await aliases.ensure_alias(
        Project(rows.store, PROJECT), "helpdesk", "base-model", None, baseline="running"
    )
    assert changed.baseline == "running"
    assert (await rows.alias()).baseline == "running"
