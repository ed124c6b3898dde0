"""docs/rewards.md: its example is a hone.toml that is taken as it says, and it tells every kind, effect and rule."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import get_args

from judge.llm.turn_critique import MAX_CRITIQUE_CHARS
from judge.rewards.follow_ups import WORTH
from judge.rewards.kinds import REWARDS
from judge.scoring.setup import check_settings
from judge.settings import Effect, Missing, RecipeSettings
from proxy.settings.hone import HoneSettings
from proxy.settings.loader import load_settings
from recorder.base.rules import Rule
from recorder.processes.user_code_host import number
from recorder.views.follow_ups.events import FollowUpKind

PAGE = Path(__file__).parents[3] / "docs" / "rewards.md"
EXAMPLES = re.findall(r"```toml\n(.*?)```", PAGE.read_text("utf-8"), re.DOTALL)


def test_the_example_is_judged_by_as_the_page_says(tmp_path: Path) -> None:
    settings = _taken(EXAMPLES[0], tmp_path)
    judge = settings.judge
    check_settings(judge)
    assert settings.campaign.judge_recipe == "brief"
    named = {alias: judge.recipe_of(alias) for alias in ("helpdesk", "search")}
    assert named == {"helpdesk": "support", "search": "default"}
    parts = {name: [part.name for part in judge.by_recipe(name).in_force()] for name in judge.known_recipes()}
    assert parts == {
        "default": ["ruler", "forbidden_tools"],
        "support": ["thumbs", "polite", "max_turns"],
        "brief": ["ruler", "forbidden_tools"],
    }


def test_a_single_trajectory_is_judged_by_what_came_next_as_the_page_says(tmp_path: Path) -> None:
    settings = _taken(EXAMPLES[1], tmp_path)
    check_settings(settings.judge)
    assert [part.kind for part in settings.judge.in_force()] == ["follow_up"]
    assert settings.judge.follow_up_wait_s == type(settings.judge).model_fields["follow_up_wait_s"].default
    assert settings.trainer.baseline == "running"


def test_parts_that_give_values_of_turns_are_those_that_the_page_names(tmp_path: Path) -> None:
    settings = _taken(EXAMPLES[2], tmp_path)
    check_settings(settings.judge)
    assert [(part.kind, part.name) for part in settings.judge.in_force()] == [
        ("function", "each_turn"),
        ("feedback", "thumbs"),
    ]
    assert settings.trainer.turn_weight == 0.5
    assert type(settings.trainer).model_fields["turn_weight"].default == 0
    (returned,) = re.findall(r"# returns (\{.*\})", EXAMPLES[2])
    assert number(ast.literal_eval(returned))["turns"] == [1, None, 0]


def test_the_judge_rates_turns_as_the_page_says(tmp_path: Path) -> None:
    settings = _taken(EXAMPLES[3], tmp_path)
    check_settings(settings.judge)
    assert [(part.kind, part.weight) for part in settings.judge.in_force()] == [("ruler", 1), ("turns", 0)]
    assert settings.trainer.turn_weight > 0
    assert settings.trainer.hindsight.hints == ["critique"]
    page = " ".join(PAGE.read_text("utf-8").split())
    assert f"of at most {MAX_CRITIQUE_CHARS} characters" in page
    assert f"`judge.max_tokens` ({settings.judge.max_tokens})" in page


def test_a_steadier_judge_is_one_of_several_as_the_page_says(tmp_path: Path) -> None:
    judge = _taken(EXAMPLES[4], tmp_path).judge
    check_settings(judge)
    assert [(member.model, member.weight) for member in judge.members] == [
        ("openai/gpt-5-mini", 2),
        ("hosted_vllm/qwen3-32b", 1),
    ]
    assert [sub.name for sub in judge.subscores] == ["correctness", "tone"]
    assert (judge.repeats, judge.combine, judge.quorum, judge.min_agreement) == (4, "median", 6, 0.2)


def test_no_other_example_is_untested() -> None:
    assert len(EXAMPLES) == 5


def _taken(example: str, folder: Path) -> HoneSettings:
    file = folder / "hone.toml"
    file.write_text(example)
    return load_settings(file, {}).settings


def test_every_kind_rule_effect_and_setting_of_a_recipe_is_told() -> None:
    text = PAGE.read_text("utf-8")
    rows = set(re.findall(r"^\| `(\w+)` \|", text, re.MULTILINE))
    assert rows == {*REWARDS, *get_args(Rule), *FollowUpKind, *WORTH}
    for word in (*get_args(Effect), *get_args(Missing), *RecipeSettings.model_fields):
        assert f"`{word}`" in text
