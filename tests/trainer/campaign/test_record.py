"""What a campaign is begun with: its parts, the recipe that judges its runs; and that it keeps all of it."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from proxy.cli import cli
from recorder.queue import campaigns
from recorder.registry.aliases import AliasView, ensure_alias
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import DEFAULT_PROJECT, open_store
from recorder.store.database import Project, Store
from trainer.campaign import record as beginning
from trainer.campaign.record import CampaignPlan, begin_or_find
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError, ScenariosInvalid
from trainer.progress import Event
from trainer.tasks.scenarios import Scenario


class Nobody:
    """Hears nothing."""

    def tell(self, event: Event) -> None:
        """Forget it."""


def plan(recipe: str | None) -> CampaignPlan:
    return CampaignPlan("tasks", CampaignSettings(agent="hone:answer", judge_recipe=recipe), [Scenario("1", "?")], [])


async def opened(data: Path) -> tuple[Store, AliasView]:
    store = await open_store(data, RecorderSettings(), migrate=True)
    return store, await ensure_alias(Project(store, DEFAULT_PROJECT), "helpdesk", "base", None)


async def test_an_unfinished_campaign_is_not_gone_on_with_under_another_recipe(tmp_path: Path) -> None:
    store, alias = await opened(tmp_path)
    begun = await begin_or_find(store, alias, plan("strict"), Nobody())
    assert (await begin_or_find(store, alias, plan("strict"), Nobody())).id == begun.id
    with pytest.raises(CampaignError, match="changed: judge_recipe strict → None"):
        await begin_or_find(store, alias, plan(None), Nobody())
    await store.close()


async def begin(data: Path, recipe: str) -> None:
    store, alias = await opened(data)
    await begin_or_find(store, alias, plan(recipe), Nobody())
    await store.close()


def test_a_campaign_whose_recipe_is_gone_is_not_gone_on_with_and_nothing_starts(tmp_path: Path) -> None:
    asyncio.run(begin(tmp_path / "data", "strict"))
    settings = tmp_path / "hone.toml"
    settings.write_text("[judge.recipes.lax]\nmissing = 'hold'\n")
    given = ["train", "--resume", "tasks", "--data", str(tmp_path / "data"), "--config", str(settings)]
    done = CliRunner().invoke(cli, given)
    assert done.exit_code == 2
    assert (
        "began with the judge recipe 'strict' (campaign.judge_recipe), which [judge.recipes] no longer has"
        in done.output
    )
    assert "known: default, lax" in done.output
    assert not (tmp_path / "data" / "logs").exists()


def written(folder: Path, name: str, *lines: dict[str, Any]) -> Path:
    file = folder / f"{name}.jsonl"
    file.write_text("".join(json.dumps(line) + "\n" for line in lines))
    return file


def numbered(folder: Path, count: int) -> Path:
    return written(folder, "all", *({"id": f"task-{n}", "input": f"order {n}"} for n in range(count)))


def planned(file: Path, **settings: Any) -> CampaignPlan:
    given = {"agent": "hone:answer", "scenarios": file} | settings
    return beginning.plan_campaign(CampaignSettings.model_validate(given))


def test_one_file_is_split_into_parts_and_another_line_moves_none(tmp_path: Path) -> None:
    before = planned(numbered(tmp_path, 200), split=[0.8, 0.1, 0.1]).parts
    after = planned(numbered(tmp_path, 201), split=[0.8, 0.1, 0.1]).parts
    assert sum(len(tasks) for tasks in before.values()) == 200
    assert all(tasks for tasks in before.values())
    for part, tasks in before.items():
        assert [task for task in after[part] if task.id != "task-200"] == tasks


def test_two_shares_leave_nothing_for_the_end(tmp_path: Path) -> None:
    parts = planned(numbered(tmp_path, 50), split=[0.5, 0.5]).parts
    assert parts["train"]
    assert parts["val"]
    assert not parts["test"]


@pytest.mark.parametrize(
    ("shares", "said"),
    [
        ([0.8, 0.1], "must be above 0 and add up to 1"),
        ([1.0, 0.0], "must be above 0 and add up to 1"),
        ([1.2, -0.2], "must be above 0 and add up to 1"),
        ([1.0], "at least 2 items"),
        ([0.25] * 4, "at most 3 items"),
    ],
)
def test_shares_that_are_no_parts_of_a_whole_are_refused(shares: list[float], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        CampaignSettings(split=shares)


@pytest.mark.parametrize("file", ["val_scenarios", "test_scenarios"])
def test_a_split_and_files_of_parts_are_refused_together(file: str) -> None:
    with pytest.raises(ValueError, match="remove val_scenarios and test_scenarios"):
        CampaignSettings.model_validate({"split": [0.7, 0.2, 0.1], file: "held-out.jsonl"})


def test_a_scenario_in_two_files_is_refused_with_both_places(tmp_path: Path) -> None:
    train = written(tmp_path, "train", {"id": "a", "input": "Where?"}, {"id": "b", "input": 2})
    for kind in ("val_scenarios", "test_scenarios"):
        other = written(tmp_path, kind, {"id": "c", "input": 3}, {"id": "d", "input": "where? "})
        with pytest.raises(ScenariosInvalid) as refused:
            planned(train, **{kind: other})
        assert f"{train}, line 1" in str(refused.value)
        assert f"{other}, line 2" in str(refused.value)


def test_scenarios_that_all_tempt_are_refused_where_none_of_them_is_learnt_from(tmp_path: Path) -> None:
    file = written(tmp_path, "train", {"id": "a", "input": 1, "adversarial": True})
    assert planned(file).train
    with pytest.raises(CampaignError, match=r"campaign\.adversarial_share is 0"):
        planned(file, adversarial_share=0)


async def test_all_parts_are_kept_as_they_were_begun_with(tmp_path: Path) -> None:
    adversarial = Scenario("t", "?", adversarial=True)
    settings = CampaignSettings(agent="hone:answer")
    given = CampaignPlan("tasks", settings, [Scenario("1", 1), adversarial], [Scenario("2", 2)], [Scenario("3", 3)])
    store, alias = await opened(tmp_path)
    begun = await begin_or_find(store, alias, given, Nobody())
    kept = {part: await campaigns.list_scenarios(store, begun.id, part) for part in given.parts}
    assert {part: [one.external_id for one in tasks] for part, tasks in kept.items()} == {
        "test": ["3"],
        "val": ["2"],
        "train": ["1", "t"],
    }
    assert [one.adversarial for one in kept["train"]] == [False, True]
    assert (await begin_or_find(store, alias, given, Nobody())).id == begun.id
    for other in (
        CampaignPlan("tasks", settings, [Scenario("1", 1), Scenario("t", "?")], given.val, given.test),
        CampaignPlan("tasks", settings, given.train, given.val, []),
        CampaignPlan("tasks", settings.model_copy(update={"split": [0.5, 0.5]}), given.train, given.val, given.test),
    ):
        with pytest.raises(CampaignError, match=r"changed: (the (train|test) scenarios|split None → )"):
            await begin_or_find(store, alias, other, Nobody())
    await store.close()


async def test_one_that_was_ended_before_its_scenarios_were_written_gets_them_or_is_refused(tmp_path: Path) -> None:
    store, alias = await opened(tmp_path)
    settings = CampaignSettings(agent="hone:answer")
    kept = await campaigns.create_campaign(
        Project(store, DEFAULT_PROJECT), alias.id, "tasks", settings.model_dump(mode="json")
    )
    await campaigns.add_scenarios(store, kept.id, "test", beginning.new_scenarios([Scenario("3", 3)]))
    with pytest.raises(CampaignError, match="ended before its scenarios were written"):
        await begin_or_find(store, alias, CampaignPlan("tasks", settings, None, []), Nobody())
    given = CampaignPlan("tasks", settings, [Scenario("1", 1)], [Scenario("2", 2)], [Scenario("3", 3)])
    assert (await begin_or_find(store, alias, given, Nobody())).id == kept.id
    for part in given.parts:
        assert len(await campaigns.list_scenarios(store, kept.id, part)) == 1
    await store.close()
