"""Checks before groups can be judged: a judge is set, it has a key, and the reward functions can be called.

Owns: these checks, one call of each reward function with a made-up trajectory, and one short request to each judge
model if the caller wants it. Refuses: the output (`judge.commands`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Set
from itertools import chain
from typing import Any, Final

from judge.errors import FunctionsDown, JudgeMisconfigured
from judge.panel_settings import BASE
from judge.rewards.functions import FunctionPool, RewardResult
from judge.rewards.part import RewardPart
from judge.scoring.reward_parts import clip_to_range
from judge.scoring.setup import check_settings, describe_parts
from judge.settings import DEFAULT, ONE_BY_ONE, JudgeSettings, RewardSettings
from recorder.base.findings import Finding, FindingLevel
from recorder.errors import ModelFailed
from recorder.llm import litellm_edge
from recorder.llm.client import LlmClient, ModelEndpoint

# In the form of `judge.rewards.functions.function_input`.
SAMPLE: dict[str, Any] = {
    "id": "sample",
    "messages": [{"role": "user", "content": "Say hello."}, {"role": "assistant", "content": "Hello."}],
    "tools": [],
    "answer": None,
    "turns": [{"role": "assistant", "content": "Hello."}],
    "tags": {},
    "scenario": None,
}


ASK_TOKENS: Final = 16
ASK_S: Final = 10.0
_LIMIT_REACHED: Final = "output limit was reached"  # OpenAI's error of a model that thinks

NO_MODEL: Final = Finding(
    "judge",
    FindingLevel.NOTE,
    "a reward is a rubric and judge.model is not set: only criteria with a `check` can be judged.",
    "Trajectories with other criteria are judged once it is set.",
)


RULES_ALONE: Final = Finding(
    "judge",
    FindingLevel.NOTE,
    "a reward is of kind follow_up and judge.model is not set: rules decide only thanks, repeats and tool errors.",
    "Trajectories with other follow-ups get no reward until it is set.",
)


BASE_IS_ASKED: Final = (
    f"{BASE} (the base model of a group's alias) is asked through a running proxy, `hone up` or `hone serve`. It needs "
    "no key; without a proxy its groups wait."
)


async def check_judge(settings: JudgeSettings, *, ask: bool = False) -> list[Finding]:
    """All findings. `ask`: send each judge model one request, of at most `ASK_TOKENS` tokens."""
    try:
        check_settings(settings)
    except JudgeMisconfigured as e:
        return [Finding("judge", FindingLevel.WRONG, f"{e}.", "Until then trajectories are recorded and not judged.")]
    recipes = {name: settings.by_recipe(name) for name in settings.known_recipes()}
    findings = [_parts(name, recipe) for name, recipe in recipes.items()]
    rewards = [reward for recipe in recipes.values() for reward in recipe.in_force()]
    kinds = {reward.kind for reward in rewards}
    if "rubric" in kinds and not settings.model:
        findings.append(NO_MODEL)
    if "follow_up" in kinds and not settings.model:
        findings.append(RULES_ALONE)
    models = _asked(settings, kinds)
    keys = [await asyncio.to_thread(_key, model) for model in models]
    findings.extend(keys)
    if ask:
        usable = [model for model, key in zip(models, keys, strict=True) if key.verdict is not FindingLevel.WRONG]
        findings.extend(await asyncio.gather(*(_reply(model) for model in usable if model.model != BASE)))
    return [*findings, *chain.from_iterable([await _functions(recipe) for recipe in _distinct(recipes.values())])]


def _parts(name: str, recipe: JudgeSettings) -> Finding:
    """The parts of a recipe's reward."""
    label = "rewards" if name == DEFAULT else f"rewards by the recipe {name!r}"
    if recipe.in_force():
        return Finding("judge", FindingLevel.FINE, f"{label} are {describe_parts(recipe)}.")
    what = (
        "judge.rewards is empty and judge.model is not set: only trajectories whose alias or campaign names a "
        "recipe are judged."
    )
    return Finding("judge", FindingLevel.NOTE, what, "Set either, if others are to be judged too.")


def _distinct(recipes: Iterable[JudgeSettings]) -> list[JudgeSettings]:
    """The recipes without those that have the same functions in the same ranges as an earlier one."""
    found: dict[frozenset[tuple[str, float, float]], JudgeSettings] = {}
    for recipe in recipes:
        found.setdefault(frozenset((r.function, r.low, r.high) for r in recipe.in_force() if r.function), recipe)
    return list(found.values())


def _asked(settings: JudgeSettings, kinds: Set[str]) -> list[JudgeSettings]:
    """The judge models in use, each once."""
    members = list(settings.members) if "ruler" in kinds else []
    asked = [settings.as_member(member) for member in members]
    if kinds & ONE_BY_ONE and settings.model:
        asked.append(settings)
    if asked and (strong := settings.by_strong()) is not None:
        asked.append(strong)
    return list({(one.model, one.api_base): one for one in asked}.values())


def _key(settings: JudgeSettings) -> Finding:
    """Whether there is a key for the judge model."""
    if settings.model == BASE:
        return Finding("judge key", FindingLevel.FINE, BASE_IS_ASKED)
    if settings.api_key is not None:
        return Finding("judge key", FindingLevel.FINE, f"{settings.model} is sent judge.api_key.")
    if settings.api_base is not None:
        return Finding("judge key", FindingLevel.FINE, f"{settings.model} is asked without a key.")
    missing = litellm_edge.load_litellm().validate_environment(settings.model).get("missing_keys") or []
    if not missing:
        return Finding("judge key", FindingLevel.FINE, f"the key for {settings.model} is in the environment.")
    return Finding(
        "judge key",
        FindingLevel.WRONG,
        f"{settings.model} needs {', '.join(missing)}, which is not set.",
        "Set it, or judge.api_key (HONE_JUDGE__API_KEY; a panel's members and judge.strong have an `api_key` each).",
    )


async def _reply(settings: JudgeSettings) -> Finding:
    """Whether the judge model answers one short request."""
    limits = {"max_tokens": ASK_TOKENS, "retries": 0, "timeout_s": min(ASK_S, settings.timeout_s)}
    endpoint = ModelEndpoint(
        settings.model, settings.api_base, settings.api_key.get_secret_value() if settings.api_key else ""
    )
    client = LlmClient(endpoint, settings.model_copy(update=limits), settings.temperature)
    try:
        await client.ask([{"role": "user", "content": "Reply with OK."}])
    except ModelFailed as e:
        if _LIMIT_REACHED in str(e):  # a thinking model thought for longer than the limit
            return Finding("judge model", FindingLevel.FINE, f"{endpoint.label()} answers.")
        todo = "Start it, or correct judge.model, judge.api_base and its key."
        return Finding("judge model", FindingLevel.WRONG, f"the judge {e}.", todo)
    return Finding("judge model", FindingLevel.FINE, f"{endpoint.label()} answers.")


async def _functions(settings: JudgeSettings) -> list[Finding]:
    """Whether every reward function can be imported and returns a number in its range."""
    rewards = [reward for reward in settings.in_force() if reward.function]
    if not rewards:
        return []
    pool = FunctionPool(settings)
    try:
        return [_answer(reward, await pool.call(reward.function, SAMPLE)) for reward in rewards]
    except FunctionsDown as e:
        return [Finding("reward functions", FindingLevel.WRONG, str(e))]
    finally:
        await pool.close()


def _answer(reward: RewardSettings, result: RewardResult) -> Finding:
    part = clip_to_range(reward, RewardPart(result.score, result.explanation))
    if part.value is not None:
        return Finding(
            "reward functions", FindingLevel.FINE, f"{reward.function} returns {part.value:g} for a made-up trajectory."
        )
    return Finding(
        "reward functions",
        FindingLevel.NOTE,
        f"{reward.function} returns no valid number for a made-up trajectory: {part.explanation}.",
        "If it does so for real trajectories too, they get no reward.",
    )
