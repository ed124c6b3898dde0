"""By what versions are compared, what is refused where nothing can be, and when goals hold."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from judge.settings import RewardSettings
from recorder.views.campaigns.events import CampaignMeasure, Validation
from trainer.campaign_settings import CampaignSettings, GoalSettings
from trainer.errors import CampaignError
from trainer.measures import arms
from trainer.measures.campaign_measure import choose_measure, is_averaged, require_measurable, unmet_goals

RULER = RewardSettings(kind="ruler")
CODE = RewardSettings(kind="function", function="mine:check")
VETO = RewardSettings(kind="rule", rule="max_turns", value=5, effect="veto")


def settings(**given: Any) -> CampaignSettings:
    return CampaignSettings.model_validate(given)


def validated(**figures: float) -> Validation:
    return Validation(
        3, "helpdesk@3", 0.5, None, 20, 0, 1.0, figures={k.replace("__", "."): v for k, v in figures.items()}
    )


@pytest.mark.parametrize(
    ("rewards", "given", "has_val", "expected"),
    [
        ([RULER], {}, True, CampaignMeasure.WINS),
        ([RULER, VETO], {}, True, CampaignMeasure.WINS),
        ([RULER], {}, False, CampaignMeasure.NOTHING),
        ([RULER, CODE], {}, True, CampaignMeasure.NOTHING),
        ([RULER, CODE], {"success": "check"}, True, CampaignMeasure.SUCCESS),
        ([CODE], {}, True, CampaignMeasure.REWARD),
        ([RewardSettings(kind="ruler", weight=0.0), CODE], {}, True, CampaignMeasure.REWARD),
        ([], {}, True, CampaignMeasure.REWARD),
    ],
)
def test_rulers_scores_are_never_a_measure(
    rewards: list[RewardSettings], given: dict[str, Any], has_val: bool, expected: CampaignMeasure
) -> None:
    assert choose_measure(settings(**given), rewards, validated=has_val) is expected
    assert is_averaged(rewards) == (not any(one.kind == "ruler" and one.weight for one in rewards))


def test_a_target_that_nothing_measures_is_refused() -> None:
    with pytest.raises(CampaignError, match=r"campaign\.target cannot be reached: RULER"):
        require_measurable(settings(target=0.9), CampaignMeasure.NOTHING, validated=True)
    require_measurable(settings(target=0.9, val_every=1), CampaignMeasure.WINS, validated=True)
    require_measurable(settings(), CampaignMeasure.NOTHING, validated=False)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"baselines": ["base"]}, "campaign.baselines"),
        ({"beat": {"baseline": "base"}}, "campaign.baselines"),
        ({"goals": [{"metric": "turns", "at_most": 3}]}, "campaign.goals"),
    ],
)
def test_what_needs_validation_is_refused_without(given: dict[str, Any], named: str) -> None:
    with pytest.raises(CampaignError, match=named):
        require_measurable(settings(**given), CampaignMeasure.SUCCESS, validated=False)


@pytest.mark.parametrize("given", [{"beat": {"baseline": "base"}}, {"goals": [{"metric": "turns", "at_most": 3}]}])
def test_a_target_that_is_held_to_validations_needs_them_between_steps(given: dict[str, Any]) -> None:
    for more, measure in ((given, CampaignMeasure.SUCCESS), ({}, CampaignMeasure.WINS)):
        with pytest.raises(CampaignError, match="val_every"):
            require_measurable(settings(target=0.9, **more), measure, validated=True)
        require_measurable(settings(target=0.9, val_every=2, **more), measure, validated=True)
    require_measurable(settings(**given), CampaignMeasure.SUCCESS, validated=True)


def test_goals_are_told_where_they_do_not_hold() -> None:
    goals = [
        GoalSettings(metric="turns", at_most=3),
        GoalSettings(metric="part.polite", at_least=0.5),
        GoalSettings(metric="seconds", at_most=9),
    ]
    assert unmet_goals(goals, validated(turns=3.0, part__polite=0.5, seconds=8.0)) == []
    assert unmet_goals(goals, validated(turns=3.5, part__polite=0.4)) == [
        "turns 3.5 is above 3", "part.polite 0.4 is below 0.5", "seconds was not measured",
    ]  # fmt: skip
    assert len(unmet_goals(goals, None)) == 3


def test_a_goal_has_one_bound() -> None:
    for bounds in ({}, {"at_most": 1, "at_least": 0}):
        with pytest.raises(ValidationError, match="either at_most or at_least"):
            GoalSettings(metric="turns", **bounds)
    with pytest.raises(ValidationError):
        GoalSettings(metric="beauty", at_least=1)


def test_a_baseline_that_nobody_knows_is_refused_with_those_that_there_are() -> None:
    with pytest.raises(CampaignError, match=r"'gpt-9' .* there is: base, gpt-5"):
        arms.require_known_baseline(settings(baselines=["gpt-9"]), ["gpt-5"])
    arms.require_known_baseline(settings(baselines=["gpt-5"], beat={"baseline": "base"}), ["gpt-5"])


def test_no_two_attempts_at_a_scenario_share_a_number() -> None:
    found = arms.campaign_arms(settings(baselines=["gpt-5", "base", "other"]), "helpdesk")
    everyone = [found.live, found.base, *found.others]
    numbers = [n for arm in everyone for n in (*arm.numbers(1000), found.beside(arm))]
    assert len(set(numbers)) == len(numbers)
    models = found.models(1000)
    assert {models.get(n) for n in found.live.numbers(1000)} == {None}
    assert {models[n] for n in found.of("gpt-5").numbers(3)} == {"gpt-5"}
    assert {models[found.beside(arm)] for arm in everyone} == {"helpdesk@0"}
