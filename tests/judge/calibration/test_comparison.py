"""Judges held against labels of recorded groups: whom they agree with, what is taken, what no judge may see."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from judge.calibration.comparison import CalibrationResult, calibrate, measure_agreements
from judge.calibration.judged_groups import JudgedGroup
from judge.calibration.labels import PeopleComparison, count_pairs, labelled_pairs
from judge.errors import JudgeDown, JudgeMisconfigured, JudgeUsage, LabelsInvalid
from judge.llm.judge_model import JudgeAnswer, Messages
from judge.llm.repair import Ask
from judge.scoring.reward_parts import judge_hash
from judge.settings import JudgeSettings
from recorder.queue import feedback
from recorder.queue.judging import scores
from recorder.queue.judging.calibrations import JudgeAgreement
from recorder.store.database import Project, Store
from recorder.views.review.human_labels import PreferenceLabel, list_preferences, list_ratings
from tests.judge.judge_server import by_worth, documents, entries
from tests.judge.recorded import PROJECT, Recorded

pytestmark = pytest.mark.slow

GROUPS = 12  # of three runs: 36 pairs
Json = dict[str, Any]


def settings(**more: Any) -> JudgeSettings:
    return JudgeSettings.model_validate({"model": "openai/strong", "api_base": "http://127.0.0.1:9/v1"} | more)


def asking(score: Callable[[Json], float], usd: float, seen: list[str] | None = None) -> Ask:
    """A judge that scores so, at a price."""

    async def ask(messages: Messages) -> JudgeAnswer:
        if seen is not None:
            seen.extend(message["content"] for message in messages)
        said = json.dumps({"trajectories": entries({"messages": messages}, score)})
        return JudgeAnswer(said, "stop", "scripted-1", JudgeUsage(100, 0, 20, usd))

    return ask


@pytest.fixture
async def groups(recorded: Recorded) -> dict[str, list[str]]:
    """Groups by their names, with their runs in order; the last number of each answer is its worth."""
    made = {}
    for number in range(GROUPS):
        answers = [f"{'very ' * size}long answer, worth 0.{worth}" for size, worth in ((9, 2), (5, 5), (1, 8))]
        _, made[f"order-{number}"] = await recorded.group(f"order-{number}", answers)
    return made


def labels(groups: dict[str, list[str]]) -> list[PeopleComparison]:
    """What people say: the last run is best, the first worst; runs named as their agent named them."""
    return [PeopleComparison(name, {"0": 0.0, "1": 1.0, "2": 2.0}) for name in groups]


async def held(store: Store, told: list[PeopleComparison], tolerance: float = 0.05, **asks: Ask) -> CalibrationResult:
    recipes = {name: {"rubric": f"- by {name}"} for name in asks}
    return await calibrate(Project(store, PROJECT), settings(recipes=recipes), list(asks), told, tolerance, asks=asks)


async def test_the_cheapest_that_agrees_with_people_is_taken(store: Store, groups: dict[str, list[str]]) -> None:
    found = await held(
        store,
        labels(groups),
        dear=asking(by_worth, 0.05),
        cheap=asking(by_worth, 0.001),
        wrong=asking(lambda document: 1 - by_worth(document), 0.0001),
    )
    assert (found.choice.best, found.choice.taken, found.groups, found.labels) == ("cheap", "cheap", GROUPS, GROUPS)
    by_name = {one.name: one for one in found.judges}
    assert {name: one.figures["accuracy"].value for name, one in by_name.items()} == {"dear": 1, "cheap": 1, "wrong": 0}
    assert by_name["wrong"].figures["tau"].value == -1
    assert by_name["cheap"].figures["kappa"].value == pytest.approx(1)
    assert by_name["wrong"].figures["length_bias"].value == 1  # the longer ones are the worse
    assert by_name["cheap"].figures["length_bias"].value == 0
    assert by_name["cheap"].pairs == 3 * GROUPS
    assert by_name["cheap"].usd == pytest.approx(0.001)


async def test_a_judge_is_measured_under_the_name_that_its_scores_have(
    store: Store, groups: dict[str, list[str]]
) -> None:
    half = asking(lambda document: round(by_worth(document)), 0.0)  # it cannot tell 0.5 from 0.2
    (found,) = (await held(store, labels(groups), half=half)).judges
    (one,) = found.agreements
    assert (one.judge, one.agreement, one.pairs) == ("half", found.figures["accuracy"].value, 3 * GROUPS)
    assert 0.5 < one.agreement < 1
    recipe = {"half": {"rubric": "- by half", "rewards": [{"kind": "ruler"}, {"kind": "feedback", "name": "liked"}]}}
    with_feedback = settings(recipes=recipe).by_recipe("half")
    assert one.judge_hash == judge_hash(with_feedback)  # people's part of a recipe is not measured
    assert one.judge_hash != judge_hash(settings())


async def test_few_pairs_and_code_alone_are_no_measurement(store: Store, groups: dict[str, list[str]]) -> None:
    one = [PeopleComparison(name, {"0": 0.0, "2": 1.0}) for name in groups]
    (few,) = (await held(store, one, few=asking(by_worth, 0.0))).judges
    assert few.agreements == []
    by_group = count_pairs(labelled_pairs("g", {str(n): n for n in range(9)}, {str(n): n for n in range(9)}))
    assert measure_agreements("code", [JudgedGroup("g")], by_group) == []  # no model's verdict is in its rewards
    (known,) = measure_agreements("judge", [JudgedGroup("g", judge_hash="a"), JudgedGroup("h")], by_group)
    assert known == JudgeAgreement("a", "judge", 1.0, 36)


async def test_a_judge_that_loves_the_first_place_is_seen(store: Store, groups: dict[str, list[str]]) -> None:
    async def ask(messages: Messages) -> JudgeAnswer:
        ids = [one["id"] for one in documents({"messages": messages})[1:]]
        found = [{"id": id_, "explanation": "", "score": 1 - at / 3} for at, id_ in enumerate(ids)]
        return JudgeAnswer(json.dumps({"trajectories": found}), "stop", None, JudgeUsage())

    found = await held(store, labels(groups), first=ask)
    bias = found.judges[0].figures["position_bias"]
    assert bias.value is not None
    assert bias.interval is not None
    assert bias.interval.low > 0.1
    assert found.judges[0].usd is None


async def test_few_labels_decide_nothing(store: Store, groups: dict[str, list[str]]) -> None:
    one = [PeopleComparison(name, {"0": 0.0, "2": 1.0}) for name in groups]
    found = await held(store, one, cheap=asking(by_worth, 0.001))
    assert (found.choice.taken, found.choice.more) == (None, 30 - GROUPS)
    assert found.judges[0].figures["accuracy"].value == 1


async def test_labels_of_the_record_are_found_and_no_prompt_holds_them(
    store: Store, recorded: Recorded, groups: dict[str, list[str]]
) -> None:
    group_id, (worse, better) = await recorded.group("liked", ["worth 0.1", "worth 0.9"])
    comment = "the blue one is nicer"
    await feedback.write_preferences(Project(store, PROJECT), group_id, [(better, worse)], by="ada", comment=comment)
    for run, stars in ((worse, 1), (better, 7)):
        await feedback.add_feedback(Project(store, PROJECT), run, "stars", stars)
    await feedback.add_feedback(Project(store, PROJECT), better, "stars", 8)
    await feedback.add_feedback(Project(store, PROJECT), better, "comment", "text")
    assert await list_preferences(Project(store, PROJECT)) == [PreferenceLabel(group_id, better, worse)]
    assert await list_ratings(Project(store, PROJECT), "stars") == {group_id: {worse: 1.0, better: 8.0}}
    assert await list_ratings(Project(store, PROJECT), "comment") == {}
    seen: list[str] = []
    found = await held(store, [PeopleComparison(group_id, {worse: 0, better: 1})], judge=asking(by_worth, 0.0, seen))
    assert found.judges[0].pairs == 1
    assert seen
    assert not any(word in text for text in seen for word in (comment, "stars", "preference", "ada"))
    assert await scores.list_scores(store, group_id) == []


async def test_a_label_of_what_is_not_there_is_named_and_nobody_is_asked(
    store: Store, groups: dict[str, list[str]]
) -> None:
    seen: list[str] = []
    ask = asking(by_worth, 0.0, seen)
    for told, why in (
        (PeopleComparison("nowhere", {"0": 0, "1": 1}, "labels, line 3"), "labels, line 3: no group 'nowhere'"),
        (
            PeopleComparison("order-1", {"0": 0, "7": 1}, "labels, line 4"),
            "labels, line 4: group 'order-1' has no trajectory '7'",
        ),
    ):
        with pytest.raises(LabelsInvalid, match=why):
            await held(store, [told], judge=ask)
    assert seen == []


async def test_a_name_that_is_no_judge_is_refused(store: Store, groups: dict[str, list[str]]) -> None:
    with pytest.raises(JudgeMisconfigured, match="'strnog' is not a judge: name a recipe"):
        await calibrate(Project(store, PROJECT), settings(), ["default", "strnog"], labels(groups), 0.05)


async def test_a_model_is_a_judge_by_its_name(store: Store, groups: dict[str, list[str]]) -> None:
    asks = {"openai/other": asking(by_worth, 0.0)}
    found = await calibrate(Project(store, PROJECT), settings(), ["openai/other"], labels(groups), 0.05, asks=asks)
    assert (found.judges[0].name, found.judges[0].model) == ("openai/other", "openai/other")


async def test_a_judge_that_is_down_once_costs_a_group_and_always_ends_it(
    store: Store, groups: dict[str, list[str]]
) -> None:
    asked, well = 0, asking(by_worth, 0.0)

    async def ask(messages: Messages) -> JudgeAnswer:
        nonlocal asked
        asked += 1
        if asked == 1:
            raise JudgeDown("judge_timeout", "it did not answer")
        return await well(messages)

    async def never(messages: Messages) -> JudgeAnswer:
        raise JudgeDown("judge_down", "it is down")

    [one] = (await held(store, labels(groups), judge=ask)).judges
    assert (one.groups, list(one.unjudged.values())) == (GROUPS - 1, ["it did not answer"])
    with pytest.raises(JudgeDown, match="it is down"):
        await held(store, labels(groups), judge=never)
