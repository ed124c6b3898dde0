"""One reward out of its parts."""

import math
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.rewards.part import Part
from judge.scoring.combine import combine, recipe_hash
from judge.settings import JudgeSettings, RewardSettings

RULER = RewardSettings(kind="ruler", weight=3)
CHECK = RewardSettings(kind="function", function="checks:right", weight=1)
SEEN = RewardSettings(kind="function", function="checks:seen", weight=0)
RULE = RewardSettings(kind="function", function="checks:rule", weight=0.5, penalty=True)
MISSING: st.SearchStrategy[Literal["renormalise", "hold"]] = st.sampled_from(("renormalise", "hold"))
GONE = Part(None, "it raised")


def test_parts_are_averaged_by_weight() -> None:
    assert combine({"ruler": Part(0.8), "right": Part(0.0)}, [RULER, CHECK], "renormalise").value == pytest.approx(0.6)


def test_a_part_without_weight_moves_nothing_there_or_not() -> None:
    for seen in (Part(9.0), GONE):
        assert combine({"ruler": Part(0.8), "seen": seen}, [RULER, SEEN], "hold").value == 0.8


def test_the_others_share_the_weight_of_a_missing_part() -> None:
    assert combine({"ruler": Part(0.8), "right": GONE}, [RULER, CHECK], "renormalise").value == pytest.approx(0.8)


def test_hold_gives_no_reward_while_a_part_is_missing() -> None:
    held = combine({"ruler": Part(0.8), "right": GONE}, [RULER, CHECK], "hold")
    assert held == Part(None, "no reward: right: it raised")


def test_a_part_that_does_not_apply_is_not_missing() -> None:
    assert combine({"right": Part(1.0)}, [RULER, CHECK], "hold").value == 1.0


def test_without_any_part_there_is_no_reward_rather_than_zero() -> None:
    assert combine({"ruler": GONE, "right": GONE}, [RULER, CHECK], "renormalise").value is None
    assert combine({}, [RULER], "renormalise") == Part(None, "no reward: no part of it applies")


def test_a_penalty_is_taken_off_and_a_rule_that_was_not_checked_is_not_kept() -> None:
    assert combine({"ruler": Part(0.8), "rule": Part(1.0)}, [RULER, RULE], "renormalise").value == pytest.approx(0.3)
    assert combine({"ruler": Part(0.8), "rule": Part(0.0)}, [RULER, RULE], "renormalise").value == 0.8
    assert combine({"ruler": Part(0.8), "rule": GONE}, [RULER, RULE], "renormalise").value is None


@given(st.floats(0, 1), st.floats(0, 1), MISSING)
def test_a_mean_stays_between_its_parts(one: float, other: float, missing: Literal["renormalise", "hold"]) -> None:
    value = combine({"ruler": Part(one), "right": Part(other)}, [RULER, CHECK], missing).value
    assert value is not None
    assert math.isfinite(value)
    assert min(one, other) - 1e-12 <= value <= max(one, other) + 1e-12


def test_the_recipe_is_what_a_reward_depends_on() -> None:
    base: dict[str, Any] = {"model": "openai/judge"}
    recipe = recipe_hash(JudgeSettings.model_validate(base))
    equal: list[dict[str, Any]] = [
        {"timeout_s": 5},
        {"api_key": "sk-x"},
        {"concurrency": 1},
        {"rewards": [{"kind": "ruler"}]},
    ]
    for same in equal:
        assert recipe_hash(JudgeSettings.model_validate(base | same)) == recipe
    others: list[dict[str, Any]] = [
        {"model": "openai/other"},
        {"rubric": "Be kind."},
        {"temperature": 1},
        {"rewards": [{"kind": "ruler", "weight": 2}]},
        {"feedback": {"missing": "hold"}},
        {"max_context_chars": 10_000},
    ]
    assert len({recipe, *(recipe_hash(JudgeSettings.model_validate(base | other)) for other in others)}) == 7
