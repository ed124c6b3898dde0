"""One reward out of its parts, and the hash of the recipe that makes it.

Owns: weights, penalties, and what a missing part means. Refuses: where parts come from (`judge.rewards.kinds`). All
pure.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from hashlib import blake2b
from typing import Literal

from judge.llm import prompt
from judge.rewards.part import Part
from judge.settings import JudgeSettings, RewardSettings


def combine(
    parts: Mapping[str, Part], rewards: Sequence[RewardSettings], missing: Literal["renormalise", "hold"]
) -> Part:
    """The reward of one trajectory: the weighted mean of its parts, less its penalties.

    `parts` by name. A reward that is not in it does not apply to this trajectory (RULER, where there is nobody to
    compare with) and is passed over. A part without a value is missing: under `renormalise` the others share its
    weight, under `hold` there is no reward. A missing penalty leaves no reward either way: a rule that could not be
    checked is not kept.
    """
    counting = [reward for reward in rewards if reward.weight > 0 and reward.name in parts]
    absent = [reward for reward in counting if parts[reward.name].value is None]
    present = [(reward, value) for reward in counting if (value := parts[reward.name].value) is not None]
    means = [(reward.weight, value) for reward, value in present if not reward.penalty]
    if any(reward.penalty or missing == "hold" for reward in absent) or not means:
        reasons = [f"{reward.name}: {parts[reward.name].explanation}" for reward in absent]
        return Part(None, "no reward: " + ("; ".join(reasons) or "no part of it applies"))
    total = sum(weight for weight, _ in means)
    mean = sum(weight / total * value for weight, value in means)
    return Part(mean - sum(reward.weight * value for reward, value in present if reward.penalty))


def recipe_hash(settings: JudgeSettings, code: str = "") -> str:
    """What a reward depends on beside the trajectories: scores under one recipe may be compared.

    `code`: the hash of the reward functions' code, where there are any.
    """
    recipe: dict[str, object] = {
        "rewards": [reward.model_dump() for reward in settings.in_force()],
        "missing": settings.feedback.missing,
        "judge": [settings.model, settings.temperature, settings.rubric, settings.max_context_chars, prompt.VERSION],
    }
    if code:
        recipe["code"] = code
    return blake2b(json.dumps(recipe, sort_keys=True).encode(), digest_size=16).hexdigest()
