"""Degenerate answers before functions, rules and criteria: what pays them more than an honest failure is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from judge.adversarial import user_tasks
from judge.adversarial.check import CheckRequest, RecipeCheck, check_recipe
from judge.adversarial.tricks import KINDS
from judge.errors import TasksInvalid
from judge.settings import JudgeSettings

GROUPS = 6
DEGENERATE = [name for name, kind in KINDS.items() if kind.degenerate is not None]
SOUND = {"kind": "function", "function": "checks:right"}
CHECKS = """
def right(t):
    return float(t.scenario["reference"] in t.answer)

def brief(t):
    return 1 / (1 + len(t.answer))

def much(t):
    return min(1.0, len(t.answer) / 1000)

def picky(t):
    if not t.answer.strip():
        raise ValueError("no answer")
    return 0.5

def lost(t):
    raise KeyError("nobody said")
"""


@pytest.fixture
def recipe(tmp_path: Path) -> Any:
    (tmp_path / "checks.py").write_text(CHECKS)

    def make(*rewards: dict[str, Any]) -> JudgeSettings:
        return JudgeSettings.model_validate({"folder": tmp_path, "rewards": list(rewards)})

    return make


def paid(checked: RecipeCheck) -> dict[str, set[str]]:
    """By part, the kinds of degenerate answers that it pays more than an honest failure, in any group."""
    assert checked.by_model == []
    found: dict[str, set[str]] = {one.part: set() for one in checked.by_code}
    for one in checked.by_code:
        found[one.part] |= {one.kind} if one.fooled else set()
    return found


@pytest.mark.slow  # starts a process
async def test_functions_are_named_by_what_they_pay(recipe: Any) -> None:
    functions = [{"kind": "function", "function": f"checks:{name}"} for name in ("right", "brief", "much", "picky")]
    checked = await check_recipe(recipe(*functions), CheckRequest(groups=GROUPS))
    found = paid(checked)
    assert found["right"] == set()
    assert [one.judged for one in checked.by_code if one.part == "right"] == [GROUPS] * len(DEGENERATE)
    assert {"empty", "one_token"} <= found["brief"]
    assert "repeats_itself" in found["much"]
    assert "empty" not in found["much"]
    assert found["picky"] == set()
    picky = {one.kind: one.unjudged for one in checked.by_code if one.part == "picky"}
    assert picky["one_token"] == {}
    assert picky["empty"].keys() == {"no_value"}
    assert {one.part for one in checked.fooled(0.05)} == {"brief", "much"}
    assert not checked.passed(0.05)


@pytest.mark.slow  # opens a store
async def test_a_rule_that_an_empty_answer_keeps_and_an_honest_failure_breaks_is_named(recipe: Any) -> None:
    weak = {"kind": "rule", "rule": "max_turns", "value": 2, "effect": "penalty", "weight": 0.5}
    right = {"kind": "rule", "rule": "regex", "value": "code", "effect": "veto"}
    scored = {"kind": "rubric"}  # a reward needs something that pays
    found = paid(await check_recipe(recipe(weak, right, scored), CheckRequest(groups=GROUPS)))
    assert found["max_turns"] == set(DEGENERATE)
    assert found["regex"] == set()
    assert found["rubric"] == set()


@pytest.mark.slow  # opens a store
async def test_the_criteria_of_ones_own_tasks_are_tried(recipe: Any, tmp_path: Path) -> None:
    keyword = {"text": "It names the capital.", "check": {"rule": "regex", "value": "capital"}}
    by_model = {"text": "It is polite."}
    lines = [{"prompt": f"What is the capital of country {n}?", "rubric": [keyword, by_model]} for n in range(4)]
    path = tmp_path / "tasks.jsonl"
    path.write_text("\n".join(map(json.dumps, lines)))
    checked = await check_recipe(
        recipe({"kind": "rubric"}), CheckRequest(groups=GROUPS, own=user_tasks.read_user_tasks(path, GROUPS))
    )
    # The prompt holds the word itself, and so does a pasted criterion: a check by keyword pays both.
    assert paid(checked)["rubric"] == {"prompt_echo", "criteria_pasted"}
    echo = next(one for one in checked.by_code if one.kind == "prompt_echo")
    assert (echo.fooled, echo.judged) == (4, GROUPS + 4)
    assert checked.requests == 0


@pytest.mark.slow  # starts a process
async def test_a_function_that_cannot_work_with_these_tasks_pays_nothing_and_says_why(recipe: Any) -> None:
    checked = await check_recipe(recipe({"kind": "function", "function": "checks:lost"}), CheckRequest(groups=GROUPS))
    assert paid(checked)["lost"] == set()
    assert {(one.judged, tuple(one.unjudged.items())) for one in checked.by_code} == {(0, (("no_value", GROUPS),))}
    assert all(one.why and "nobody said" in one.why for one in checked.by_code)
    assert checked.passed(0.05)


@pytest.mark.slow  # starts a process
async def test_functions_see_ones_own_tasks(recipe: Any, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(json.dumps({"id": "a", "input": "Say 42.", "reference": "42"}) + "\n")
    checked = await check_recipe(
        recipe(SOUND), CheckRequest(groups=GROUPS, own=user_tasks.read_user_tasks(path, GROUPS))
    )
    assert paid(checked)["right"] == {"prompt_echo"}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has no task"),
        ('{"input": "a"}\n{', "line 2: not JSON"),
        ('["a"]', "line 1: it must be an object"),
        ('{"reference": 1}', "with `input`"),
        ('{"input": "a", "rubric": [""]}', "line 1: its rubric: criterion 1"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_by_its_line(text: str, why: str, tmp_path: Path) -> None:
    path = tmp_path / "tasks.jsonl"
    path.write_text(text)
    with pytest.raises(TasksInvalid, match=why):
        user_tasks.read_user_tasks(path, 5)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(TasksInvalid, match=r"none\.jsonl cannot be read"):
        user_tasks.read_user_tasks(tmp_path / "none.jsonl", 5)
