"""Of which parts the rewards of a group are made: exclude, drop_part, hold, and ranges."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judge.rewards.part import RewardPart
from judge.scoring.reward_parts import PartTable, RewardParts, clip_to_range, combine_parts, select_parts
from judge.settings import JudgeSettings, RewardSettings

MISSING = ("exclude", "drop_part", "hold")
CRASHED = RewardPart(None, "it raised")  # a check that failed on the run
AWAY = RewardPart(None, "the judge is down", of_run=False)


def check(name: str, **more: Any) -> dict[str, Any]:
    return {"kind": "function", "function": f"checks:{name}"} | more


def recipe(*rewards: dict[str, Any], **more: Any) -> JudgeSettings:
    return JudgeSettings.model_validate({"model": "openai/judge", "rewards": rewards} | more)


def made(settings: JudgeSettings, **parts: list[RewardPart]) -> RewardParts:
    """The makeup for runs r0, r1 … that have these parts, in order."""
    found = {name: {f"r{i}": part for i, part in enumerate(column)} for name, column in parts.items()}
    return select_parts([f"r{i}" for i in range(max(map(len, parts.values())))], found, settings)


def names(makeup: RewardParts) -> list[str]:
    return [reward.name for reward in makeup.counting]


@pytest.mark.parametrize("missing", ["exclude", "drop_part"])
def test_a_run_that_its_check_failed_on_has_no_reward_and_costs_the_others_no_part(missing: str) -> None:
    parts = {"a": [RewardPart(0.5), RewardPart(0.9)], "b": [CRASHED, RewardPart(0.0)]}
    found = made(recipe(check("a"), check("b"), missing=missing), **parts)
    assert (names(found), found.left, found.lacking) == (["a", "b"], {}, {"r0": "b: it raised"})


def test_a_part_that_failed_for_no_fault_of_a_run_leaves_the_whole_group_where_asked() -> None:
    parts = {"a": [RewardPart(0.5), RewardPart(0.9)], "b": [AWAY, RewardPart(0.0)]}
    found = made(recipe(check("a"), check("b", missing="drop_part")), **parts)
    assert (names(found), found.left, found.lacking) == (["a"], {"b": "the judge is down"}, {})
    found = made(recipe(check("a"), check("b")), **parts)
    assert (names(found), found.left, found.lacking) == (["a", "b"], {}, {"r0": "b: the judge is down"})


def test_a_held_part_holds_its_group_and_nobody_waits_for_a_run_without_a_reward() -> None:
    settings = recipe(check("a"), check("b", missing="hold"))
    assert made(settings, a=[RewardPart(0.5), RewardPart(0.9)], b=[CRASHED, RewardPart(0.0)]).waits == "b: it raised"
    found = made(settings, a=[CRASHED, RewardPart(0.9)], b=[AWAY, RewardPart(0.0)])
    assert (found.waits, found.lacking) == (None, {"r0": "a: it raised"})


def test_a_run_without_a_reward_costs_the_others_no_part_by_what_it_lacks_besides() -> None:
    settings = recipe(check("a"), {"kind": "feedback", "name": "liked"})
    found = made(
        settings, a=[CRASHED, RewardPart(0.1), RewardPart(0.2)], liked=[AWAY, RewardPart(1.0), RewardPart(0.0)]
    )
    assert (names(found), found.left, list(found.lacking)) == (["a", "liked"], {}, ["r0"])


def test_feedback_that_nobody_gave_leaves_the_group_and_the_last_part_stays() -> None:
    liked = {"kind": "feedback", "name": "liked"}
    parts = {
        "a": [RewardPart(0.5), RewardPart(0.9), RewardPart(0.1)],
        "liked": [AWAY, RewardPart(1.0), RewardPart(0.0)],
    }
    assert names(made(recipe(check("a"), liked), **parts)) == ["a"]
    alone = made(recipe(liked), liked=parts["liked"])
    assert (names(alone), alone.left, list(alone.lacking)) == (["liked"], {}, ["r0"])


def test_where_no_part_of_the_mean_applies_nobody_has_a_reward() -> None:
    settings = recipe({"kind": "ruler"}, check("a", effect="penalty"))
    assert made(settings, ruler=[], a=[RewardPart(0.0), RewardPart(1.0)]).lacking == {
        "r0": "no part of it applies",
        "r1": "no part of it applies",
    }


@pytest.mark.parametrize("effect", ["penalty", "veto"])
def test_a_rule_that_was_not_checked_is_not_kept_whatever_parts_may_do(effect: str) -> None:
    rule = {"kind": "feedback", "name": "complaint", "effect": effect}
    found = made(
        recipe(check("a"), rule, missing="drop_part"),
        a=[RewardPart(1.0), RewardPart(1.0)],
        complaint=[AWAY, RewardPart(0.0)],
    )
    assert (names(found), list(found.lacking)) == (["a", "complaint"], ["r0"])


def test_the_parts_own_word_comes_before_the_judges_and_feedback_may_leave_by_default() -> None:
    liked = {"kind": "feedback", "name": "liked"}
    settings = recipe(check("a"), liked, check("b", missing="hold"))
    assert [settings.when_missing(reward) for reward in settings.rewards] == ["exclude", "drop_part", "hold"]
    settings = recipe(check("a"), liked | {"missing": "drop_part"}, check("b"), missing="hold")
    assert [settings.when_missing(reward) for reward in settings.rewards] == ["hold", "drop_part", "hold"]
    settings = recipe(check("a"), liked, missing="exclude")
    assert [settings.when_missing(reward) for reward in settings.rewards] == ["exclude", "exclude"]


@pytest.mark.parametrize("value", [-0.01, 2.5, float("nan"), float("inf"), -float("inf")])
def test_a_value_outside_its_range_is_no_value_and_says_so(value: float) -> None:
    reward = RewardSettings(kind="function", function="checks:a")
    part = clip_to_range(reward, RewardPart(value, "since it is so", {"calls": 7.0}, of_run=False))
    assert part.value is None
    assert part.explanation == f"{value!r} is outside 0 to 1 (`low` and `high` of the reward): since it is so"
    assert (part.extra, part.of_run) == ({"calls": 7.0}, False)


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6), st.floats())
def test_what_is_in_its_range_is_left_as_it_is(one: float, other: float, value: float) -> None:
    low, high = sorted((one, other))
    if low == high:
        return
    part = RewardPart(value)
    kept = clip_to_range(RewardSettings(kind="function", function="checks:a", low=low, high=high), part)
    assert (kept is part) == (low <= value <= high)


# Any group: up to four parts of any effect, where anything may be missing, under any rule for what is missing.

EFFECTS = ("score", "score", "penalty", "veto")
PARTS = st.one_of(st.floats(0, 1).map(RewardPart), st.just(CRASHED), st.just(AWAY))


@st.composite
def groups(draw: st.DrawFn) -> tuple[JudgeSettings, list[str], PartTable]:
    runs = [f"r{i}" for i in range(draw(st.integers(1, 5)))]
    rewards = [check("p0", weight=draw(st.floats(1e-9, 1e9)), missing=draw(st.sampled_from((None, *MISSING))))]
    for number in range(1, draw(st.integers(1, 4))):
        effect = draw(st.sampled_from(EFFECTS))
        allowed = (None, *MISSING) if effect == "score" else (None, "exclude", "hold")
        weight, missing = draw(st.floats(0, 1e300)), draw(st.sampled_from(allowed))
        rewards.append(check(f"p{number}", effect=effect, weight=weight, missing=missing))
    settings = recipe(*rewards, missing=draw(st.sampled_from((None, *MISSING))))
    return settings, runs, {r.name: {run: draw(PARTS) for run in runs} for r in settings.rewards}


@given(groups())
def test_within_a_group_every_reward_is_made_of_the_same_parts(
    given_: tuple[JudgeSettings, list[str], PartTable],
) -> None:
    settings, runs, found = given_
    whole = select_parts(runs, found, settings)
    rewarded = [run for run in runs if run not in whole.lacking]
    assert all(found[reward.name][run].value is not None for reward in whole.counting for run in rewarded)
    for name in whole.left:  # only where somebody lacks it for no fault of their own, and never a rule
        assert any(found[name][run] is AWAY for run in rewarded)
        assert next(r for r in settings.rewards if r.name == name).effect == "score"
    assert {r.name for r in whole.counting} | whole.left.keys() == {r.name for r in settings.rewards if r.weight > 0}
    assert not whole.waits or not rewarded


@given(groups(), st.data())
def test_a_check_that_fails_never_pays(given_: tuple[JudgeSettings, list[str], PartTable], data: st.DataObject) -> None:
    """Whoever makes a check fail on itself has no reward then, in the group where it would have had one."""
    settings, runs, found = given_
    run = data.draw(st.sampled_from(runs))
    name = data.draw(st.sampled_from([reward.name for reward in settings.rewards if reward.weight > 0]))
    crashed = {**found, name: {**found[name], run: CRASHED}}
    assert combine_parts(runs, crashed, select_parts(runs, crashed, settings))[run].value is None
