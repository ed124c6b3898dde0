"""The rewards of a group out of their parts."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.rewards.part import RewardPart
from judge.scoring.reward_parts import combine_parts, recipe_hash, select_parts
from judge.settings import LIMIT, JudgeSettings

RULER: dict[str, Any] = {"kind": "ruler", "weight": 3}
CHECK: dict[str, Any] = {"kind": "function", "function": "checks:right", "weight": 1}
SEEN: dict[str, Any] = {"kind": "function", "function": "checks:seen", "weight": 0}
RULE: dict[str, Any] = {"kind": "function", "function": "checks:rule", "weight": 0.5, "effect": "penalty"}
VETO: dict[str, Any] = {"kind": "function", "function": "checks:never", "effect": "veto"}
LIKED: dict[str, Any] = {"kind": "feedback", "name": "liked"}
GONE = RewardPart(None, "it raised")


def rewards(*given: dict[str, Any], **parts: list[float | RewardPart]) -> list[RewardPart]:
    """The rewards of runs that have these parts, in order."""
    settings = JudgeSettings.model_validate({"model": "openai/judge", "rewards": given})
    columns = {
        name: [p if isinstance(p, RewardPart) else RewardPart(p) for p in column] for name, column in parts.items()
    }
    found = {name: {str(i): part for i, part in enumerate(column)} for name, column in columns.items()}
    runs = [str(i) for i in range(max(map(len, columns.values())))]
    return list(combine_parts(runs, found, select_parts(runs, found, settings)).values())


def values(*given: dict[str, Any], **parts: list[float | RewardPart]) -> list[float | None]:
    return [part.value for part in rewards(*given, **parts)]


def test_parts_are_averaged_by_weight() -> None:
    assert values(RULER, CHECK, ruler=[0.8], right=[0.0]) == pytest.approx([0.6])


def test_a_part_without_weight_moves_nothing_there_or_not() -> None:
    assert values(RULER, SEEN, ruler=[0.8, 0.8], seen=[1.0, GONE]) == [0.8, 0.8]


def test_a_run_that_crashes_its_check_gains_nothing_over_one_that_fails_it() -> None:
    crashed, failed = rewards(CHECK, CHECK | {"name": "other"}, right=[0.5, 0.9], other=[GONE, 0.0])
    assert crashed == RewardPart(None, "no reward: other: it raised")
    assert failed.value == 0.45


def test_a_part_that_left_the_group_is_named_with_every_reward() -> None:
    nobody = RewardPart(None, "no feedback 'liked'", of_run=False)
    found = rewards(CHECK, LIKED, right=[0.5, 0.9], liked=[nobody, 1.0])
    assert found == [
        RewardPart(0.5, "without liked: no feedback 'liked'"),
        RewardPart(0.9, "without liked: no feedback 'liked'"),
    ]


def test_a_part_that_does_not_apply_is_not_missing() -> None:
    assert values(RULER, CHECK, ruler=[], right=[1.0]) == [1.0]


def test_without_any_part_there_is_no_reward_rather_than_zero() -> None:
    assert values(RULER, CHECK, ruler=[GONE], right=[GONE]) == [None]
    assert rewards(RULER, RULE, ruler=[], rule=[1.0]) == [RewardPart(None, "no reward: no part of it applies")]


def test_a_penalty_is_taken_off_and_a_rule_that_was_not_checked_is_not_kept() -> None:
    assert values(RULER, RULE, ruler=[0.8] * 3, rule=[1.0, 0.0, GONE]) == [pytest.approx(0.3), 0.8, None]


def test_a_veto_leaves_no_more_than_nothing_nor_than_the_worst_that_has_none() -> None:
    found = rewards(
        RULER, VETO, ruler=[0.9, 0.2, 0.8], never=[RewardPart(1.0, "it deleted a table"), 0.0, RewardPart(0.1)]
    )
    assert found == [
        RewardPart(0.0, "vetoed by never: it deleted a table"),
        RewardPart(0.2),
        RewardPart(0.0, "vetoed by never"),
    ]
    parts: dict[str, list[float | RewardPart]] = {"ruler": [0.9, 0.2], "rule": [0.0, 1.0], "never": [1.0, 0.0]}
    assert values(RULER, RULE, VETO, **parts) == pytest.approx([-0.3, -0.3])
    assert values(RULER, VETO, ruler=[0.9, 0.2], never=[1.0, 1.0]) == [0.0, 0.0]
    assert values(RULER, VETO, ruler=[0.9, 0.2], never=[GONE, 0.0]) == [None, 0.2]
    assert values(RULER, VETO | {"weight": 0}, ruler=[0.9, 0.2], never=[1.0, 0.0]) == [0.9, 0.2]


@given(st.floats(0, 1), st.floats(0, 1), st.floats(5e-324, 1.7e308), st.floats(5e-324, 1.7e308))
def test_a_mean_stays_between_its_parts(one: float, other: float, its: float, others: float) -> None:
    (value,) = values(RULER | {"weight": its}, CHECK | {"weight": others}, ruler=[one], right=[other])
    assert value is not None
    assert min(one, other) <= value <= max(one, other)


BOUNDS = st.floats(-LIMIT, LIMIT)
WEIGHTS = st.floats(0, 1.7e308)


@given(st.lists(st.tuples(BOUNDS, WEIGHTS, st.sampled_from(("score", "penalty", "veto"))), max_size=6), BOUNDS)
def test_a_reward_is_finite_whatever_the_weights_and_penalties(
    given_: list[tuple[float, float, str]], first: float
) -> None:
    recipe = [CHECK | {"name": "first", "low": -LIMIT, "high": LIMIT}]
    parts: dict[str, list[float | RewardPart]] = {"first": [first, 0.5]}
    for number, (value, weight, effect) in enumerate(given_):
        low = -LIMIT if effect == "score" else 0
        recipe.append(CHECK | {"name": f"p{number}", "weight": weight, "effect": effect, "low": low, "high": LIMIT})
        parts[f"p{number}"] = [value if effect == "score" else abs(value), 0.0]
    found = values(*recipe, **parts)
    assert all(value is not None and math.isfinite(value) and abs(value) <= LIMIT for value in found)


@given(st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1), st.booleans()), min_size=1, max_size=8))
def test_a_veto_never_pays(members: list[tuple[float, float, bool]]) -> None:
    means, lost, vetoed = (list(column) for column in zip(*members, strict=True))
    found = values(RULER, RULE, VETO, ruler=list(means), rule=list(lost), never=[float(one) for one in vetoed])
    without = values(RULER, RULE, ruler=list(means), rule=list(lost))
    kept = [value for value, out in zip(found, vetoed, strict=True) if not out]
    lowest = min([0.0, *(value for value in kept if value is not None)])
    assert [value for value, out in zip(without, vetoed, strict=True) if not out] == kept
    assert all(value == lowest for value, out in zip(found, vetoed, strict=True) if out)


def test_the_recipe_is_what_a_reward_depends_on() -> None:
    base: dict[str, Any] = {"model": "openai/judge"}
    recipe = recipe_hash(JudgeSettings.model_validate(base))
    equal: list[dict[str, Any]] = [
        {"timeout_s": 5},
        {"api_key": "sk-x"},
        {"concurrency": 1},
        {"rewards": [{"kind": "ruler"}]},
        {"missing": "exclude"},  # as it is by default
    ]
    for same in equal:
        assert recipe_hash(JudgeSettings.model_validate(base | same)) == recipe
    others: list[dict[str, Any]] = [
        {"model": "openai/other"},
        {"rubric": "Be kind."},
        {"temperature": 1},
        {"rewards": [{"kind": "ruler", "weight": 2}]},
        {"rewards": [CHECK]},
        {"rewards": [CHECK | {"high": 2}]},
        {"rewards": [CHECK, RULE]},
        {"rewards": [CHECK, RULE | {"effect": "veto"}]},
        {"missing": "hold"},
        {"max_context_chars": 10_000},
        {"api_base": "http://127.0.0.1:9/v1"},
        {"extra": {"seed": 7}},
        {"extra": {"seed": 8}},
    ]
    hashes = {recipe, *(recipe_hash(JudgeSettings.model_validate(base | other)) for other in others)}
    assert len(hashes) == 1 + len(others)
    assert recipe_hash(JudgeSettings.model_validate(base), "code") not in hashes
