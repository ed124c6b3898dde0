"""What a campaign cannot begin or go on without, told before anything is started.

Owns: what settings must say beside what they are checked for one by one. Refuses: checking files (`trainer.campaign`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from proxy.settings.hone import HoneSettings
    from trainer.campaign.begin import Plan


def require_own_choices(settings: HoneSettings) -> None:
    """A recipe chooses neither the model that learns nor the one that judges."""
    if settings.campaign.preset is None:
        return
    chosen = {"engine.base": settings.engine.base, "judge.model": settings.judge.model}
    if left := [key for key, value in chosen.items() if not value]:
        raise click.UsageError(f"the preset {settings.campaign.preset!r} leaves to you: set {' and '.join(left)}.")


def require_judge_model(plan: Plan, settings: HoneSettings) -> None:
    """Criteria that no code decides are a judge model's."""
    from recorder.rubric import criteria

    judge, declared = settings.judge, list(settings.declared_aliases())
    alias = plan.settings.alias or (declared[0] if len(declared) == 1 else None)
    recipe = judge.by_recipe(judge.recipe_of(alias, plan.settings.reward_recipe))
    if recipe.model or not any(reward.kind == "rubric" for reward in recipe.in_force()):
        return
    for scenario in (one for part in plan.parts.values() for one in part):
        listed = criteria(scenario.rubric) if isinstance(scenario.rubric, list) else []
        if named := next((one.id for one in listed if one.check is None), None):
            raise click.UsageError(
                f"a reward is a rubric, the scenario {scenario.id!r} leaves criterion {named!r} to a judge model, and "
                "none is set: set judge.model, or give each criterion a `check`."
            )


def require_recipe(begun_with: str | None, settings: HoneSettings) -> None:
    """A campaign is gone on with under the recipe that it was begun with."""
    known = settings.judge.known_recipes()
    if begun_with is not None and begun_with not in known:
        raise click.UsageError(
            f"the campaign was begun with the recipe {begun_with!r} (campaign.reward_recipe), which [judge.recipes] "
            f"does not have any more (known: {', '.join(known)}): add it again, or begin another campaign."
        )
