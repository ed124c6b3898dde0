"""`hone train --estimate`: told from settings, scenarios and the store, and nothing is left behind."""

from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from proxy.cli import cli
from recorder.queue.judging import cross_checks
from recorder.queue.judging.cross_checks import NewCrossCheck, PartVerdict, SwitchRule
from recorder.registry.aliases import ensure_alias
from recorder.settings import RecorderSettings
from recorder.store.bootstrap import open_store
from recorder.store.database import Project
from tests.recorder.rows import PROJECT, Rows

TOML = """
[engine]
base = "org/base"
[judge]
model = "openai/judge"
[judge.recipes.strict]
rewards = [{ kind = "rubric" }]
[aliases.helpdesk]
[campaign]
agent = "hone:answer"
max_tokens = 50
steps = 2
group_size = 4
scenarios = "tasks.jsonl"
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hone.toml").write_text(TOML)
    (tmp_path / "tasks.jsonl").write_text('{"id": "1", "input": "Where is it?", "rubric": ["Names the order"]}\n')
    return tmp_path


def estimate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["train", "--estimate", *arguments])


def as_json(*arguments: str) -> dict[str, Any]:
    result = estimate("--json", *arguments)
    assert result.exit_code == 0, result.output
    return dict(json.loads(result.output))


def what_lies_in(folder: Path) -> dict[str, str]:
    found = (path for path in folder.rglob("*") if path.is_file())
    return {str(path): hashlib.blake2b(path.read_bytes()).hexdigest() for path in found}


def test_criteria_for_a_judge_that_is_not_set_are_refused_before_anything_starts(folder: Path) -> None:
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', 'rewards = [{ kind = "rubric" }]'))
    before = what_lies_in(folder)
    result = CliRunner().invoke(cli, ["train"])
    assert result.exit_code == 2
    assert "criterion '1' of the scenario '1' needs a judge model" in result.output
    assert what_lies_in(folder) == before


def test_a_judge_that_is_not_set_is_noted_where_it_would_be_asked(folder: Path) -> None:
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', 'rewards = [{ kind = "rubric" }]'))
    missing = "a reward needs a judge model, and judge.model is not set"
    assert missing in as_json()["notes"]
    checked = {"id": "1", "input": "?", "rubric": [{"text": "short", "check": "checks:short"}]}
    (folder / "tasks.jsonl").write_text(json.dumps(checked))
    assert missing not in as_json()["notes"]


def test_ruler_without_a_judge_is_refused_before_anything_starts(folder: Path) -> None:
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', 'rewards = [{ kind = "ruler" }]'))
    before = what_lies_in(folder)
    result = CliRunner().invoke(cli, ["train"])
    assert result.exit_code == 2
    assert "the reward of kind ruler needs a judge model" in result.output
    assert what_lies_in(folder) == before


def test_columns_that_are_nearly_criteria_are_noted(folder: Path) -> None:
    table = [{"prompt": "p", "rubric - 1. criterion": "x", "Rubric - 2. Criterion": "y"}]
    (folder / "tasks.jsonl").write_text(json.dumps(table))
    assert "the column 'Rubric - 2. Criterion' (1 task at " in as_json()["notes"][1]


def test_without_a_store_it_tells_by_lengths_and_makes_nothing(folder: Path) -> None:
    before = what_lies_in(folder)
    found = as_json()
    assert what_lies_in(folder) == before
    assert not (folder / ".hone").exists()
    counts = found["counts"]
    assert (counts["training"], counts["ruler"], counts["rubric"]) == (8, 2, 0)
    assert found["agent"]["answered"] == 8 * 50
    assert found["judge_usd"] is None  # nobody knows what openai/judge takes
    assert found["notes"][0] == "there is no store yet, so the usage of earlier trajectories is unknown"


def test_the_recipe_of_the_campaign_is_counted(folder: Path) -> None:
    found = as_json("--judge-recipe", "strict")
    assert (found["recipe"], found["counts"]["ruler"], found["counts"]["rubric"]) == ("strict", 0, 8)


def test_a_known_price_is_told(folder: Path) -> None:
    (folder / "hone.toml").write_text(TOML.replace("openai/judge", "openai/gpt-4o-mini"))
    assert as_json()["judge_usd"] > 0


def test_the_base_costs_nothing_and_a_strong_judge_is_told_with_its_requests(folder: Path) -> None:
    strong = 'model = "base"\n[judge.strong]\nmodel = "openai/strong"\nevery = 2'
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', strong))
    found = as_json()
    assert found["judge_usd"] == 0
    assert found["counts"]["ruler"] == 2
    strong = found["strong"]
    assert (strong["model"], strong["every"], strong["ruler"], strong["rubric"]) == ("openai/strong", 2, 1, 0)
    assert strong["tokens"]["answered"] == found["judge"]["answered"] // 2
    assert strong["tokens"]["sent"] == found["judge"]["sent"] // 2
    assert strong["usd"] is None  # nobody knows what openai/strong takes
    assert "if the two judges disagree too much, judge.strong (openai/strong) scores every group" in found["notes"][1]
    told = estimate().output
    assert "RULER 1, rubrics 0: it judges one group in 2 too" in told


def test_a_strong_judge_is_asked_as_often_as_repeats_say_and_not_once_a_member_of_a_panel(folder: Path) -> None:
    panel = '[[judge.panel]]\nmodel = "openai/a"\n[[judge.panel]]\nmodel = "openai/b"\n'
    strong = f'repeats = 3\n{panel}[judge.strong]\nmodel = "openai/gpt-4o-mini"\nevery = 1'
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', strong))
    found = as_json()
    assert (found["counts"]["ruler"], found["strong"]["ruler"]) == (2 * 2 * 3, 2 * 3)
    assert found["judge"]["sent"] == 2 * found["strong"]["tokens"]["sent"] > 0
    assert found["judge_usd"] is None
    assert found["strong"]["usd"] > 0


def test_a_strong_judge_is_not_asked_for_what_moves_no_reward(folder: Path) -> None:
    rewards = 'rewards = [{ kind = "ruler" }, { kind = "rubric", weight = 0.0 }]'
    strong = f'model = "openai/judge"\n{rewards}\n[judge.strong]\nmodel = "openai/strong"\nevery = 1'
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', strong))
    found = as_json()
    assert (found["counts"]["rubric"], found["strong"]["rubric"], found["strong"]["ruler"]) == (8, 0, 2)
    assert as_json("--judge-recipe", "strict")["strong"]["rubric"] == 8


async def test_what_the_strong_judge_took_lately_tells_what_it_will(folder: Path) -> None:
    strong = 'model = "openai/judge"\n[judge.strong]\nmodel = "openai/strong"\nevery = 3'
    (folder / "hone.toml").write_text(TOML.replace('model = "openai/judge"', strong))
    store = await open_store(folder / ".hone", RecorderSettings(), migrate=True)
    await ensure_alias(Project(store, PROJECT), "helpdesk", "base", None)
    rows = Rows(store)
    group = await rows.ready_group(members=4)
    said = [PartVerdict(id_, part, 0.5) for id_ in await rows.members(group) for part in ("ruler", "kind")]
    told = NewCrossCheck(
        "helpdesk", "default", "pair", "strong", "openai/strong", parts=said, tokens_in=800, cost_usd=2.0
    )
    for of in (told, replace(told, judge="cheap", cost_usd=9.0), replace(told, failed="judge_down: away")):
        await cross_checks.record_cross_check(
            Project(store, PROJECT), group, of, SwitchRule(0.5, 20, "openai/judge", "openai/strong")
        )
    await store.close()
    found = (await asyncio.to_thread(as_json))["strong"]
    assert found["tokens"]["sent"] == 3 * 200  # of 8 attempts' groups one in three: 3 runs at the mean
    assert found["tokens"]["basis"] == "from the newest 4 trajectories of helpdesk that openai/strong judged"
    assert found["usd"] == 3 * 0.5


async def test_earlier_runs_tell_and_the_store_stays_as_it_is(folder: Path) -> None:
    store = await open_store(folder / ".hone", RecorderSettings(), migrate=True)
    alias = await ensure_alias(Project(store, PROJECT), "helpdesk", "base", None)
    rows = Rows(store)
    run_id = await rows.trajectory(alias_id=alias.id, state="completed", answered=False)
    await rows.call(run_id, usage={"prompt_tokens": 700, "completion_tokens": 30})
    await store.close()
    before = what_lies_in(folder)
    found = await asyncio.to_thread(as_json)
    assert what_lies_in(folder) == before
    assert found["agent"] == {
        "sent": 8 * 700,
        "answered": 8 * 30,
        "basis": "from the newest 1 trajectories of helpdesk",
    }


def test_people_read_a_table(folder: Path) -> None:
    told = estimate().output
    assert [line.split()[:2] for line in told.splitlines()[1:3]] == [["steps", "2"], ["attempts", "8"]]
    assert "RULER 2, rubrics 0, by the judge recipe 'default'" in told
    assert told.endswith("Repeated attempts, and retried or repaired requests, are not counted.\n")


@pytest.mark.parametrize(
    ("arguments", "more", "told"),
    [
        (["--resume", "tasks"], "", "do not use --resume with it"),
        (
            ["--judge-recipe", "lax"],
            "",
            "campaign.judge_recipe is 'lax', not a recipe of [judge.recipes] (known: default, strict)",
        ),
        ([], "[aliases.other]\n", "name the one to train with --alias"),
        (["--agent", ""], "", "no agent"),
        (["--alias", "nobody"], "", "there is no alias 'nobody'"),
        (["--scenarios", "nowhere.jsonl"], "", "nowhere.jsonl cannot be read"),
    ],
)
def test_what_cannot_be_told_is_refused(folder: Path, arguments: list[str], more: str, told: str) -> None:
    (folder / "hone.toml").write_text(TOML + more)
    result = estimate(*arguments)
    assert result.exit_code == 2
    assert told in result.output
    assert not (folder / ".hone").exists()
