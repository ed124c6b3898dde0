"""By what a planned campaign is measured, as the settings have it, before anything is started.

Owns: which recipe judges it, and refusing what could not be measured or compared with. Refuses: choosing the yardstick
(`trainer.measures.campaign_measure`), and starting anything.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

from judge.settings import JudgeSettings
from proxy.settings.hone import HoneSettings
from recorder.registry.keys import Scope
from recorder.views.campaigns.events import CampaignMeasure
from trainer.campaign.setup import CampaignPlan
from trainer.campaign_settings import CampaignSettings
from trainer.measures import arms, campaign_measure

OF_THE_REWARD: Final = {"model", "temperature", "rubric", "rewards", "missing"}


@dataclass(frozen=True, slots=True)
class PlannedMeasure:
    """The yardstick; `averaged`: a mean of rewards over groups says something; `recipe`: what makes the reward."""

    yardstick: CampaignMeasure
    averaged: bool
    recipe: dict[str, Any]


def measure_of(plan: CampaignPlan, settings: HoneSettings) -> PlannedMeasure:
    """By what a planned campaign is measured. Raises `CampaignError` for what could never be said of it."""
    recipe = recipe_of(plan.settings, settings)
    rewards = recipe.in_force()
    found = campaign_measure.choose_measure(plan.settings, rewards, validated=plan.validates)
    campaign_measure.require_measurable(plan.settings, found, validated=plan.validates)
    arms.require_known_baseline(plan.settings, settings.providers())
    return PlannedMeasure(
        found, campaign_measure.is_averaged(rewards), recipe.model_dump(mode="json", include=OF_THE_REWARD)
    )


def recipe_of(campaign: CampaignSettings, settings: HoneSettings) -> JudgeSettings:
    """The recipe that attempts made by these settings are judged by."""
    declared = list(settings.declared_aliases())
    alias = campaign.alias or (declared[0] if len(declared) == 1 else None)
    return settings.judge.by_recipe(settings.judge.recipe_of(alias, campaign.judge_recipe))


def scopes_of(plan: CampaignPlan, found: CampaignMeasure) -> list[Scope]:
    """What the agent's key must allow: asking for a version by name needs more than asking for the alias."""
    asks_by_name = found is CampaignMeasure.WINS or bool(arms.baseline_arms(plan.settings))
    return [Scope.INFER, Scope.EVAL] if asks_by_name else [Scope.INFER]
