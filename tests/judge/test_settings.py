"""The judge's settings: defaults that work, contradictions refused."""

from typing import Any

import pytest
from pydantic import ValidationError

from judge.errors import JudgeMisconfigured
from judge.scoring.bench import check_settings
from judge.settings import FeedbackSettings, JudgeSettings, RewardSettings


def of(**values: Any) -> JudgeSettings:
    return JudgeSettings.model_validate(values)


def test_a_model_alone_means_ruler() -> None:
    assert [(r.kind, r.name, r.weight) for r in of(model="openai/judge").in_force()] == [("ruler", "ruler", 1.0)]


def test_named_rewards_are_the_only_ones() -> None:
    rewards = of(model="openai/judge", rewards=[{"kind": "function", "function": "a.b:right"}]).in_force()
    assert [(r.kind, r.name) for r in rewards] == [("function", "right")]


@pytest.mark.parametrize(
    ("rewards", "why"),
    [
        ([{"kind": "function"}], "needs `function`"),
        ([{"kind": "ruler", "function": "a:b"}], "takes no `function`"),
        ([{"kind": "function", "function": "a.b"}], "package.module:function"),
        ([{"kind": "function", "function": "a:b; import os"}], "package.module:function"),
        ([{"kind": "feedback"}], "needs `name`"),
        ([{"kind": "ruler", "penalty": True}], "cannot be a penalty"),
        ([{"kind": "ruler", "name": "reward"}], "cannot name a part"),
        ([{"kind": "ruler", "name": "a.b"}], "cannot name a part"),
        ([{"kind": "ruler", "weight": -1}], "greater than or equal to 0"),
        ([{"kind": "ruler", "weight": float("nan")}], "finite|greater"),
        ([{"kind": "ruler"}, {"kind": "ruler", "name": "two"}], "one reward only"),
        ([{"kind": "function", "function": "a:x"}, {"kind": "function", "function": "b:x"}], "called 'x'"),
        ([{"kind": "ruler", "weight": 0}], "weight above 0"),
        ([{"kind": "function", "function": "a:x", "penalty": True}], "weight above 0"),
        ([{"kind": "dice"}], "'ruler', 'function', 'feedback' or 'rubric'"),
        ([{"kind": "ruler", "wait": 1}], "Extra inputs"),
    ],
)
def test_rewards_that_cannot_work_are_refused(rewards: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        of(model="openai/judge", rewards=rewards)


def test_without_a_judge_hone_says_how_to_name_one() -> None:
    with pytest.raises(JudgeMisconfigured, match=r"judge\.model.*\[\[judge\.rewards\]\]"):
        check_settings(of())
    with pytest.raises(JudgeMisconfigured, match="holds RULER but no model"):
        check_settings(of(rewards=[{"kind": "ruler"}]))
    check_settings(of(rewards=[{"kind": "function", "function": "a:b"}]))


def test_a_key_is_not_printed() -> None:
    assert "sk-secret" not in repr(of(api_key="sk-secret"))


@pytest.mark.parametrize("model", [JudgeSettings, RewardSettings, FeedbackSettings])
def test_every_setting_is_explained(model: type[Any]) -> None:
    assert [name for name, field in model.model_fields.items() if not field.description] == []
