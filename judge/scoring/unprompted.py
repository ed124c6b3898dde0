"""A recipe without what people say in it, and without a second judge: what a judge, or code, finds by itself.

Owns: which parts are left. Refuses: trying and comparing them (`judge.tricks`, `judge.calibration`).
"""

from __future__ import annotations

from judge.errors import JudgeMisconfigured
from judge.settings import JudgeSettings


def without_people(settings: JudgeSettings, name: str) -> JudgeSettings:
    """The settings of one recipe, as if it were the only one, without its feedback.

    Raises:
        JudgeMisconfigured: there is no recipe of that name, or people's feedback is all there is to it.
    """
    if name not in settings.known_recipes():
        raise JudgeMisconfigured(f"there is no recipe {name!r:.80}: known are {', '.join(settings.known_recipes())}")
    recipe = settings.by_recipe(name)
    rewards = [reward for reward in recipe.in_force() if reward.kind != "feedback"]
    if not rewards:
        raise JudgeMisconfigured(
            f"the recipe {name!r} has nothing that can be tried: set judge.model, or name functions, rules or a rubric "
            "in its rewards (feedback is what people say)"
        )
    return recipe.model_copy(update={"rewards": rewards, "recipes": {}, "strong": None})
