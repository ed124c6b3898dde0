"""A recipe tried on the set: a sound judge passes, each other is found out by the one kind that it falls for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from judge.adversarial.check import CheckRequest, RecipeCheck, check_recipe, count_model_parts, count_requests
from judge.adversarial.tricks import KINDS, RecipeContext, TrialResult
from judge.errors import JudgeDown, JudgeMisconfigured, JudgeUsage
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.settings import JudgeSettings
from tests.judge.adversarial.scripted import FALLS_FOR, judge, score_by, sound, tasks

pytestmark = pytest.mark.slow

GROUPS = 6  # of each kind: all or none fool a scripted judge
RUBRIC = {"kind": "rubric"}
known = tasks(GROUPS)


def settings(**more: Any) -> JudgeSettings:
    """Of a judge that nobody could reach: a scripted one stands in its place."""
    return JudgeSettings.model_validate({"model": "openai/scripted", "api_base": "http://127.0.0.1:9/v1"} | more)


def wanted(*kinds: str, **more: Any) -> CheckRequest:
    return CheckRequest(kinds=kinds, groups=GROUPS, **more)


def over(checked: RecipeCheck) -> list[str]:
    return [one.kind for one in checked.fooled(0.05)]


async def test_a_sound_judge_is_fooled_by_nothing() -> None:
    told: list[TrialResult] = []
    checked = await check_recipe(settings(), wanted(), told.append, judge(sound, known))
    assert [(one.part, one.kind, one.fooled, one.judged) for one in checked.by_model] == [
        ("ruler", kind, 0, GROUPS) for kind in KINDS
    ]
    assert checked.passed(0.05)
    assert checked.passed(0.0)
    assert len(told) == checked.requests == GROUPS * len(KINDS)
    assert checked.versions == {"scripted-1"}
    assert checked.spent.tokens_out == 40 * checked.requests
    assert checked.spent.cost_usd == pytest.approx(0.001 * checked.requests)


@pytest.mark.parametrize(
    "kind",
    [*(pytest.param(one, marks=() if at < 3 else pytest.mark.long) for at, one in enumerate(FALLS_FOR)), "position"],
)
async def test_a_judge_that_falls_for_one_kind_is_found_out_by_that_kind_alone(kind: str) -> None:
    checked = await check_recipe(settings(), wanted(), ask=judge(score_by(kind), known))
    assert over(checked) == [kind]
    assert not checked.passed(0.05)
    found = next(one for one in checked.by_model if one.kind == kind)
    assert found.fooled == found.judged == GROUPS
    assert all(one.detail and "at place" in one.detail for one in found.examples)


async def test_who_tells_nothing_apart_is_fooled_by_everything() -> None:
    checked = await check_recipe(settings(), wanted(), ask=judge(lambda _: 0.5, known))
    assert over(checked) == list(KINDS)


async def test_a_rubric_is_tried_by_itself_beside_ruler() -> None:
    recipe = settings(rewards=[{"kind": "ruler"}, RUBRIC])
    assert count_model_parts(recipe, "default") == 2
    checked = await check_recipe(
        recipe, wanted("claims_success", "omits_misdeed"), ask=judge(score_by("claims_success"), known)
    )
    assert {(one.part, one.kind): one.fooled for one in checked.by_model} == {
        ("ruler", "claims_success"): GROUPS,
        ("ruler", "omits_misdeed"): 0,
        ("rubric", "claims_success"): 0,
        ("rubric", "omits_misdeed"): 0,
    }
    asked = {one.part: one.requests for one in checked.by_model if one.kind == "claims_success"}
    assert asked == {"ruler": GROUPS, "rubric": 3 * GROUPS}


async def test_values_of_turns_are_tried_where_they_pay_and_turns_that_were_cut_out_are_among_them() -> None:
    recipe = settings(rewards=[{"kind": "turns"}, {"kind": "turns", "name": "measured", "weight": 0}])
    assert count_model_parts(recipe, "default") == 1
    checked = await check_recipe(
        recipe, wanted("claims_success", "omits_misdeed"), ask=judge(score_by("claims_success"), known)
    )
    assert {one.kind: one.fooled for one in checked.by_model} == {"claims_success": GROUPS, "omits_misdeed": 0}
    assert checked.requests == 2 * 3 * GROUPS


async def test_the_same_seed_shows_a_judge_the_same() -> None:
    async def shown() -> list[str]:
        orders: list[str] = []

        async def ask(messages: Messages) -> JudgeAnswer:
            orders.append(messages[-1]["content"].splitlines()[1])  # the ids in their order
            return await judge(sound, known)(messages)

        await check_recipe(settings(), wanted("longer"), ask=ask)
        return sorted(orders)

    assert await shown() == await shown()


async def test_a_reply_that_cannot_be_read_fools_nobody_and_is_counted() -> None:
    async def ask(messages: Messages) -> JudgeAnswer:
        return JudgeAnswer("Both were fine.", "stop", "scripted-1", JudgeUsage(10, 0, 5))

    checked = await check_recipe(settings(), wanted("longer"), ask=ask)
    [one] = checked.by_model
    assert (one.judged, one.unjudged, one.share) == (0, {"judge_unreadable": GROUPS}, None)
    assert one.requests == 2 * GROUPS
    assert one.spent.tokens_in == 20 * GROUPS
    assert not checked.passed(1.0)


async def test_a_judge_that_is_down_ends_it_and_what_was_found_is_told() -> None:
    sound_judge, asked = judge(sound, known), 0

    async def ask(messages: Messages) -> JudgeAnswer:
        nonlocal asked
        asked += 1
        if asked > 2 * GROUPS:
            raise JudgeDown("judge_down", "openai/judge is down or broken")
        return await sound_judge(messages)

    checked = await check_recipe(settings(), wanted(), ask=ask)
    assert [one.kind for one in checked.by_model] == list(KINDS)[:2]
    assert checked.stopped == "openai/judge is down or broken"
    assert not checked.passed(0.05)
    assert asked == 3 * GROUPS


async def test_a_judge_that_is_down_once_is_asked_on() -> None:
    sound_judge, asked = judge(sound, known), 0

    async def ask(messages: Messages) -> JudgeAnswer:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise JudgeDown("judge_timeout", "openai/judge did not answer")
        return await sound_judge(messages)

    checked = await check_recipe(settings(), wanted("longer", "empty"), ask=ask)
    assert [(one.judged, one.unjudged) for one in checked.by_model] == [
        (GROUPS - 1, {"judge_timeout": 1}),
        (GROUPS, {}),
    ]
    assert checked.stopped is None


async def test_as_many_groups_are_judged_at_once_as_the_settings_say() -> None:
    open_now = most = 0

    async def ask(messages: Messages) -> JudgeAnswer:
        nonlocal open_now, most
        open_now += 1
        most = max(most, open_now)
        await asyncio.sleep(0)
        open_now -= 1
        return await judge(sound, known)(messages)

    await check_recipe(settings(concurrency=2), wanted("longer"), ask=ask)
    assert most <= 2


async def test_a_dry_run_asks_nobody_and_counts_what_would_be_asked() -> None:
    counted = await count_requests(settings(), wanted())
    assert counted.requests == GROUPS * len(KINDS)
    checked = await check_recipe(settings(), wanted(), ask=judge(sound, known))
    assert counted.tokens_in == pytest.approx(checked.spent.tokens_in, rel=0.01)


async def test_a_recipe_is_tried_by_its_name_and_says_what_is_not() -> None:
    feedback = {"kind": "feedback", "name": "thumbs"}
    recipes = {
        "mixed": {"rewards": [{"kind": "ruler"}, feedback], "rubric": "- The shorter is better."},
        "people": {"rewards": [feedback]},
    }
    recipe = settings(recipes=recipes)
    of_mixed = tasks(GROUPS, told=RecipeContext("- The shorter is better.", "scripted"))
    checked = await check_recipe(recipe, wanted("criteria_pasted", recipe="mixed"), ask=judge(sound, of_mixed))
    assert checked.not_tried == {"thumbs": "it is human feedback"}
    assert checked.passed(0.05)
    for name, why in (("people", "no part that can be tested"), ("mixde", "known are default, mixed, people")):
        with pytest.raises(JudgeMisconfigured, match=why):
            await check_recipe(recipe, wanted(recipe=name))


async def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    await check_recipe(settings(), wanted("empty"), ask=judge(sound, known))
    assert list(tmp_path.iterdir()) == []
