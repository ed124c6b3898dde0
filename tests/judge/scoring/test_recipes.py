"""Several recipes in one judge context: which of them judges a group, and what an unknown recipe leads to."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from judge.errors import FunctionsDown, RecipeUnknown
from judge.scoring.group_score import GroupScore, score_group
from judge.scoring.setup import open_judge_context
from judge.scoring.worker import JudgeWorker
from judge.settings import JudgeSettings
from recorder.queue import campaigns
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.settings import RecorderSettings
from recorder.states import GroupState, Purpose
from recorder.store import ledger
from recorder.store.changes import Topic
from recorder.store.database import Project, Store
from recorder.views.trajectories.transcripts import load_group
from tests.judge.judge_server import JudgeServer
from tests.judge.recorded import PROJECT, Recorded

pytestmark = pytest.mark.slow

Make = Callable[..., JudgeSettings]
ANSWERS = ["worth 0.2", "worth 0.9"]
CODE = "def a_tenth(t): return 0.1\ndef a_half(t): return 0.5\n"


def by(function: str) -> dict[str, Any]:
    return {"rewards": [{"kind": "function", "function": function}]}


@pytest.fixture
def settings_of(settings: Make, tmp_path: Path) -> Make:
    """Two recipes beside RULER."""
    (tmp_path / "checks.py").write_text(CODE)

    def make(of_alias: str | None = None, **more: Any) -> JudgeSettings:
        recipes = {"tenth": by("checks:a_tenth"), "half": by("checks:a_half")}
        made = settings(**{"folder": tmp_path, "recipes": recipes} | more)
        return made.for_aliases({"helpdesk": of_alias} if of_alias else {})

    return make


async def score(store: Store, settings: JudgeSettings, group_id: str) -> GroupScore:
    async with open_judge_context(settings, Project(store, PROJECT)) as context:
        return await score_group(await load_group(store, group_id), context)


async def of_campaign(recorded: Recorded, name: str, recipe: str | None, answers: list[str] = ANSWERS) -> str:
    """A group of a campaign that was begun with a recipe."""
    begun_with = {"judge_recipe": recipe}
    store, alias_id = recorded.store, recorded.alias_id
    campaign = await campaigns.create_campaign(Project(store, PROJECT), alias_id, f"campaign of {name}", begun_with)
    await campaigns.add_scenarios(store, campaign.id, "train", [NewScenario("s", "Where is it?")])
    (scenario,) = await campaigns.list_scenarios(store, campaign.id, "train")
    await campaigns.bind_groups(
        Project(store, PROJECT), campaign.id, alias_id, [GroupBinding(name, scenario.id, len(answers))]
    )
    purpose = Purpose.VAL if len(answers) == 1 else Purpose.TRAIN  # a lone run can only be measured
    group_id, _ = await recorded.group(name, answers, purpose=purpose)
    return group_id


def values(scored: GroupScore) -> list[float | None]:
    return [part.value for part in scored.rewards.values()]


@pytest.mark.parametrize(
    ("of_alias", "recipe", "expected"),
    [
        (None, None, [0.2, 0.9]),
        (None, "half", [0.5, 0.5]),
        ("tenth", None, [0.1, 0.1]),
        ("tenth", "half", [0.5, 0.5]),
        ("tenth", "default", [0.2, 0.9]),
    ],
)
async def test_a_campaigns_recipe_goes_before_the_aliases_and_that_before_the_default(
    recorded: Recorded, settings_of: Make, of_alias: str | None, recipe: str | None, expected: list[float]
) -> None:
    group_id = await of_campaign(recorded, "g", recipe)
    assert values(await score(recorded.store, settings_of(of_alias), group_id)) == expected


async def test_what_is_in_no_campaign_is_judged_by_its_aliases_recipe(recorded: Recorded, settings_of: Make) -> None:
    group_id, _ = await recorded.group("g", ANSWERS)
    assert values(await score(recorded.store, settings_of("half"), group_id)) == [0.5, 0.5]


async def test_a_recipe_takes_what_it_leaves_out_from_the_top(settings: Make) -> None:
    top = {"rubric": "brief", "missing": "hold", **by("checks:a_tenth")}
    strict = settings(**top, recipes={"strict": {"rubric": "strict"}}).by_recipe("strict")
    assert (strict.rubric, strict.missing, strict.in_force()[0].function) == ("strict", "hold", "checks:a_tenth")


async def test_the_hash_is_of_the_recipe_that_judged_and_of_no_other(
    recorded: Recorded, settings_of: Make, tmp_path: Path
) -> None:
    group_id, _ = await recorded.group("g", ANSWERS)
    alone = await score(recorded.store, settings_of(recipes={}, **by("checks:a_tenth")), group_id)
    tenth = await score(recorded.store, settings_of("tenth"), group_id)
    half = await score(recorded.store, settings_of("half"), group_id)
    assert alone.new.recipe_hash == tenth.new.recipe_hash != half.new.recipe_hash
    (tmp_path / "others.py").write_text("def odd(t): return 0.3\n")
    others = {"tenth": by("checks:a_tenth"), "odd": by("others:odd")}
    before = await score(recorded.store, settings_of("tenth", recipes=others), group_id)
    (tmp_path / "others.py").write_text("def odd(t): return 0.4\n")
    after = await score(recorded.store, settings_of("tenth", recipes=others), group_id)
    assert tenth.new.recipe_hash == before.new.recipe_hash == after.new.recipe_hash


async def test_code_that_cannot_be_imported_keeps_no_other_recipe_from_judging(
    recorded: Recorded, settings_of: Make
) -> None:
    group_id, _ = await recorded.group("g", ANSWERS)
    recipes = {"tenth": by("checks:a_tenth"), "broken": by("nowhere:at_all")}
    with pytest.raises(FunctionsDown):
        await score(recorded.store, settings_of("broken", recipes=recipes), group_id)
    assert values(await score(recorded.store, settings_of("tenth", recipes=recipes), group_id)) == [0.1, 0.1]


@pytest.mark.parametrize("answers", [ANSWERS, ["worth 0.2"]])
async def test_a_group_whose_recipe_is_not_known_waits_and_nobody_is_asked(
    recorded: Recorded, settings_of: Make, server: JudgeServer, answers: list[str]
) -> None:
    store, settings = recorded.store, settings_of(recipes={}, backoff_s=60.0)
    group_id = await of_campaign(recorded, "g", "gone", answers)
    stop = asyncio.Event()
    async with open_judge_context(settings, Project(store, PROJECT)) as context:
        running = asyncio.create_task(JudgeWorker(Project(store, PROJECT), context, RecorderSettings()).run(stop))
        with store.watch.on(Topic.GROUPS) as news:
            async with asyncio.timeout(60):
                while (await load_group(store, group_id)).state in (GroupState.READY, GroupState.JUDGING):
                    await news.wait(1.0)
        stop.set()
        await running
    found = await load_group(store, group_id)
    assert (found.state, found.reason) == (GroupState.UNSCORED, "recipe_unknown")
    (row,) = await ledger.object_entries(store, "group", group_id)
    assert row.detail is not None
    assert "its campaign names the recipe 'gone'" in row.detail["detail"]["message"]
    assert "known: default" in row.detail["detail"]["message"]
    assert server.requests == []


async def test_where_the_default_recipe_is_empty_who_names_none_is_told(recorded: Recorded, settings_of: Make) -> None:
    group_id, _ = await recorded.group("g", ANSWERS)
    with pytest.raises(RecipeUnknown, match="the default one is empty"):
        await score(recorded.store, settings_of(model=""), group_id)
    assert values(await score(recorded.store, settings_of("half", model=""), group_id)) == [0.5, 0.5]
