"""The rewards of one group out of their parts, and the hash of the recipe that makes them.

Owns: weights, penalties, vetoes. Refuses: what a missing part means (`judge.scoring.makeup`), where parts come from
(`judge.rewards.kinds`). All pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from hashlib import blake2b
from typing import Final

from judge.llm import prompt
from judge.rewards.part import Part
from judge.scoring.makeup import Found, Makeup
from judge.settings import LIMIT, JudgeSettings, RewardSettings

UNASKED: Final = "nobody was asked: it ties the group, and no mean over runs counts it"


def combine(runs: Sequence[str], found: Found, made: Makeup) -> dict[str, Part]:
    """The reward of each run: the weighted mean of its parts, less its penalties; a vetoed one stands below the others.

    Every reward is finite, and within ±`LIMIT`. A vetoed run's is 0, or the lowest that was not vetoed where that is
    lower: a veto never pays, whatever the others lost by penalties. A reward that holds a part that nobody was asked
    for says so.
    """
    own = {run: {r.name: found[r.name][run] for r in made.counting} for run in runs if run not in made.lacking}
    rewards = {run: _reward(parts, made.counting) for run, parts in own.items()}
    vetoes = {run: why for run, parts in own.items() if (why := _veto(parts, made.counting))}
    lowest = min([0.0, *(reward for run, reward in rewards.items() if run not in vetoes)])
    without = "; ".join(f"without {name}: {why}" for name, why in made.left.items()) or None
    out = {run: Part(None, f"no reward: {why}") for run, why in made.lacking.items()}
    out |= {run: Part(reward, without) for run, reward in rewards.items()}
    out |= {run: Part(lowest, why) for run, why in vetoes.items()}
    unasked = {run for run, parts in own.items() if any(part.unasked for part in parts.values())}
    out |= {run: replace(out[run], explanation=_also(out[run], UNASKED), unasked=True) for run in unasked}
    return {run: out[run] for run in runs}


def _also(part: Part, why: str) -> str:
    return f"{part.explanation}; {why}" if part.explanation else why


def _reward(parts: Mapping[str, Part], counting: Sequence[RewardSettings]) -> float:
    """The mean of a run's scores by weight, less its penalties."""
    scores = [(r.weight, _value(parts[r.name])) for r in counting if r.effect == "score"]
    heaviest = max(weight for weight, _ in scores)
    shares = [weight / heaviest for weight, _ in scores]  # so no sum of weights overflows
    values = [value for _, value in scores]
    mean = math.fsum(s * value for s, value in zip(shares, values, strict=True)) / math.fsum(shares)
    mean = min(max(mean, min(values)), max(values))  # whatever was rounded
    lost = [r.weight * _value(parts[r.name]) for r in counting if r.effect == "penalty"]
    return min(max(mean - sum(lost), -LIMIT), LIMIT)


def _veto(parts: Mapping[str, Part], counting: Sequence[RewardSettings]) -> str | None:
    """By what a run is vetoed, if it is."""
    vetoing = [r.name for r in counting if r.effect == "veto" and _value(parts[r.name]) > 0]
    reasons = (f"{name}: {parts[name].explanation}" if parts[name].explanation else name for name in vetoing)
    return f"vetoed by {'; '.join(reasons)}" if vetoing else None


def _value(part: Part) -> float:
    assert part.value is not None, "a run that lacks a part of the group's makeup has no reward"
    return part.value


def recipe_hash(settings: JudgeSettings, *codes: str) -> str:
    """What a reward depends on beside the trajectories: scores under one recipe may be compared.

    `codes`: the hashes of the user's code, where there is any: of the reward functions, then of a rubric's checks.
    """
    recipe: dict[str, object] = {
        "rewards": [reward.model_dump(exclude={"missing"}) for reward in settings.in_force()],
        "missing": [settings.when_missing(reward) for reward in settings.in_force()],
        "judge": [settings.model, settings.temperature, settings.rubric, settings.max_context_chars, prompt.VERSION],
        "asked": [settings.api_base, settings.extra],
    }
    if settings.subscores:
        recipe["subscores"] = [sub.model_dump() for sub in settings.subscores]
    if settings.panel or settings.repeats > 1:
        members = [member.model_dump(exclude={"api_key"}) for member in settings.panel]
        recipe["panel"] = [members, settings.repeats, settings.combine]
    if code := [one for one in dict.fromkeys(codes) if one]:
        recipe["code"] = code
    return blake2b(json.dumps(recipe, sort_keys=True).encode(), digest_size=16).hexdigest()
