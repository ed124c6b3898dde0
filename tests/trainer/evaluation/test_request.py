"""What an evaluation may be asked for: whom names mean, what is refused before anything starts, what is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from judge.settings import JudgeSettings
from trainer.campaign_settings import CampaignSettings
from trainer.errors import CampaignError, ScenariosInvalid
from trainer.evaluation.request import (
    EvaluationMeasures,
    EvaluationRequest,
    choose_measures,
    evaluation_identity,
    plan_evaluation,
    resolve_names,
)

VERSIONS = {"helpdesk@0", "helpdesk@1", "helpdesk@2"}
RULER = JudgeSettings(model="openai/judge").in_force()
RUBRIC = JudgeSettings.model_validate({"rewards": [{"kind": "rubric"}]}).in_force()
BOTH = JudgeSettings.model_validate(
    {"rewards": [{"kind": "ruler"}, {"kind": "rubric", "name": "criteria"}], "model": "openai/judge"}
).in_force()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "tasks.jsonl").write_text('{"id": "a", "input": "hello"}\n{"id": "b", "input": "again"}\n')
    return tmp_path / "tasks.jsonl"


def settings(**more: Any) -> CampaignSettings:
    return CampaignSettings.model_validate({"agent": "my_agent:run"} | more)


def asked(file: Path, *names: str, **more: Any) -> EvaluationRequest:
    return plan_evaluation(settings(**more), names, file, attempts=2, seeds=3, providers=["openai/gpt-5"])


def test_what_is_asked_for_is_counted(file: Path) -> None:
    assert asked(file, "live", "base", "openai/gpt-5", "helpdesk@7").total == 4 * 2 * 2 * 3


@pytest.mark.parametrize(
    ("names", "why"),
    [
        ([], "no version is named"),
        (["live", "base", "live"], "'live' is named twice"),
        (["live", "gpt-9"], r"no version 'gpt-9' .*openai/gpt-5"),
        (["live", "helpdesk@"], "no version 'helpdesk@'"),
        (["live", "@3x"], "no version '@3x'"),
    ],
)
def test_names_that_mean_nothing_are_refused(file: Path, names: list[str], why: str) -> None:
    with pytest.raises(CampaignError, match=why):
        asked(file, *names)


def test_an_agent_and_a_file_are_needed(file: Path) -> None:
    with pytest.raises(CampaignError, match="no agent"):
        asked(file, "live", agent=None)
    with pytest.raises(ScenariosInvalid, match="cannot be read"):
        asked(file.with_name("nowhere.jsonl"), "live")
    with pytest.raises(CampaignError, match="1001 attempts at a scenario are too many"):
        plan_evaluation(settings(), ["live"], file, attempts=1001, seeds=1)


def test_names_mean_versions_and_models() -> None:
    names = ["live", "base", "helpdesk@1", "gpt-5"]
    arms = resolve_names(names, "helpdesk", "helpdesk@2", VERSIONS, ["gpt-5"])
    assert [(arm.name, arm.model) for arm in arms] == [
        ("live", "helpdesk@2"), ("base", "helpdesk@0"), ("helpdesk@1", "helpdesk@1"), ("gpt-5", "gpt-5"),
    ]  # fmt: skip
    numbers = [number for arm in arms for number in arm.numbers(2)]
    assert len(set(numbers)) == 8
    assert numbers[:2] == [0, 1]


@pytest.mark.parametrize(
    ("names", "why"),
    [
        (["live", "base"], "'live' and 'base' are the same version, helpdesk@0"),
        (["helpdesk@0", "base"], "are the same version"),
        (["base", "helpdesk@9"], "no version 'helpdesk@9' of 'helpdesk'"),
        (["base", "other@1"], "no version 'other@1' of 'helpdesk'"),
    ],
)
def test_one_version_by_two_names_and_one_that_is_not_there_are_refused(names: list[str], why: str) -> None:
    with pytest.raises(CampaignError, match=why):
        resolve_names(names, "helpdesk", "helpdesk@0", VERSIONS, [])


def test_what_is_told_follows_from_the_reward_and_from_who_tells_success() -> None:
    assert choose_measures(settings(), RULER, 2) == EvaluationMeasures(success=False, reward=False, wins=True)
    assert choose_measures(settings(), RUBRIC, 1) == EvaluationMeasures(success=False, reward=True, wins=False)
    assert choose_measures(settings(success="my:solved"), RULER, 2) == EvaluationMeasures(
        success=True, reward=False, wins=False
    )
    assert choose_measures(settings(success="checked"), RUBRIC, 2) == EvaluationMeasures(
        success=True, reward=True, wins=False
    )
    assert choose_measures(settings(success="criteria"), BOTH, 2) == EvaluationMeasures(
        success=True, reward=False, wins=False
    )


def test_scores_of_ruler_are_never_averaged() -> None:
    with pytest.raises(CampaignError, match="nothing can be measured where RULER is a part of the reward"):
        choose_measures(settings(), BOTH, 2)
    with pytest.raises(CampaignError, match=r"one version alone.* or name a second version"):
        choose_measures(settings(), RULER, 1)


def test_without_a_reward_only_a_function_tells_anything() -> None:
    with pytest.raises(CampaignError, match="no judge rewards these attempts"):
        choose_measures(settings(), JudgeSettings().in_force(), 2)
    assert choose_measures(settings(success="my:solved"), JudgeSettings().in_force(), 2).success


def test_an_evaluation_is_another_one_where_what_decides_it_changed(file: Path) -> None:
    one = asked(file, "live", "base")
    arms = resolve_names(["live", "base"], "helpdesk", "helpdesk@1", VERSIONS, [])
    same = evaluation_identity(one, arms, {"rubric": "be kind"})
    assert same == evaluation_identity(asked(file, "live", "base", concurrency=2), arms, {"rubric": "be kind"})
    moved = resolve_names(["live", "base"], "helpdesk", "helpdesk@2", VERSIONS, [])
    assert same != evaluation_identity(one, moved, {"rubric": "be kind"})
    assert same != evaluation_identity(one, arms, {"rubric": "be strict"})
    assert same != evaluation_identity(asked(file, "live", "base", success="checked"), arms, {"rubric": "be kind"})
    file.write_text('{"id": "a", "input": "hello"}\n')
    assert same != evaluation_identity(asked(file, "live", "base"), arms, {"rubric": "be kind"})
