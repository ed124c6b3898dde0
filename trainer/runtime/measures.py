"""The measure of a planned campaign, from the settings, before anything is started.

Owns: which judge recipe applies, and rejecting what could not be measured or compared. Refuses: choosing the measure
(`trainer.measures.campaign_measure`), and starting anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.registry.keys import Scope
from recorder.views.campaigns.events import CampaignMeasure
from trainer.campaign.record import CampaignPlan
from trainer.campaign_settings import CampaignSettings
from trainer.measures import arms, campaign_measure

OF_THE_REWARD: Final = {"model", "temperature", "rubric", "rewards", "missing"}


@dataclass(frozen=True, slots=True)
class PlannedMeasure:
    """The measure; `averaged`: a mean of rewards over groups is a measure; `recipe`: the reward's composition."""

    measure: CampaignMeasure
    averaged: bool
    recipe: dict[str, Any]


def measure_of(plan: CampaignPlan, settings: HoneSettings) -> PlannedMeasure:
    """The measure of a planned campaign. Raises `CampaignError` for settings that it can never measure."""
    recipe = recipe_of(plan.settings, settings)
    rewards = recipe.in_force()
    found = campaign_measure.choose_measure(plan.settings, rewards, validated=plan.validates)
    campaign_measure.require_measurable(plan.settings, found, validated=plan.validates)
    arms.require_known_baseline(plan.settings, settings.providers())
    return PlannedMeasure(
        found, campaign_measure.is_averaged(rewards), recipe.model_dump(mode="json", include=OF_THE_REWARD)
    )


def recipe_of(campaign: CampaignSettings, settings: HoneSettings) -> JudgeSettings:
    """The judge recipe of attempts made with these settings."""
    declared = list(settings.declared_aliases())
    alias = campaign.alias or (declared[0] if len(declared) == 1 else None)
    return settings.judge.by_recipe(settings.judge.recipe_of(alias, campaign.judge_recipe))


def scopes_of(plan: CampaignPlan, found: CampaignMeasure) -> list[Scope]:
    """The scopes of the agent's key: asking for a version by name needs more than asking for the alias."""
    asks_by_name = found is CampaignMeasure.WINS or bool(arms.baseline_arms(plan.settings))
    return [Scope.INFER, Scope.EVAL] if asks_by_name else [Scope.INFER]
