"""Each recipe's loss and gradient are those of the implementation that it names."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any, get_args

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from recorder.stats.advantages import group_advantages
from tests.trainer.objectives import toy_batch
from tests.trainer.objectives.trl_reference import FILE
from trainer.objectives.group import weigh_groups
from trainer.policy.update import weighted_losses
from trainer.settings import RECIPES, RecipeName, TrainerSettings

TRL: dict[str, Any] = json.loads(FILE.read_text("utf-8"))


def settings_of(recipe: str, **own: Any) -> TrainerSettings:
    length = {"constant_length": toy_batch.MAX_LENGTH} if recipe == "dr_grpo" else {}
    return TrainerSettings(recipe=recipe, **length, **own)


def compute(settings: TrainerSettings) -> tuple[float, dict[str, list[float]]]:
    """Loss, and its gradient by the logprobs of each trajectory's tokens."""
    rewards = dict(zip(toy_batch.names(), toy_batch.REWARDS, strict=True))
    advantages = group_advantages(rewards, settings.advantage)
    assert advantages is not None
    weighted = weigh_groups([toy_batch.group(advantages)], settings)
    one, tokens = toy_batch.gathered(weighted, settings)
    logprobs = toy_batch.in_order(one, weighted, toy_batch.policy_logprobs()).requires_grad_()
    engine = toy_batch.in_order(one, weighted, toy_batch.behaviour())
    torch.testing.assert_close(tokens.behaviour.double(), engine, atol=1e-6, rtol=0)
    # The reference has one older policy, which is both the engine and the version that the step began from.
    tokens = replace(tokens, behaviour=engine, parent=engine)
    _, losses, _ = weighted_losses(tokens, logprobs, None, settings)
    (gradient,) = torch.autograd.grad(losses.sum(), logprobs)
    parts = torch.split(gradient, [weighted[index].row.trained_tokens for index in one.rows])
    owners = [weighted[index].row.trajectory_id for index in one.rows]
    return float(losses.detach().sum()), {name: part.tolist() for name, part in zip(owners, parts, strict=True)}


@pytest.mark.parametrize("recipe", get_args(RecipeName))
def test_a_recipe_is_the_same_in_another_process(recipe: str) -> None:
    settings = settings_of(recipe)
    assert TrainerSettings.model_validate_json(settings.model_dump_json()) == settings


@pytest.mark.parametrize("recipe", [name for name in TRL if name not in ("trl", "dpo", "sdpo")])
def test_a_recipe_equals_what_trl_computes(recipe: str) -> None:
    loss, gradient = compute(settings_of(recipe))
    assert loss == pytest.approx(TRL[recipe]["loss"], abs=1e-6)
    for name, expected in zip(toy_batch.names(), TRL[recipe]["gradient"], strict=True):
        np.testing.assert_allclose(gradient[name], expected, atol=1e-6)
    assert max(abs(value) for values in gradient.values() for value in values) > 1e-3


def ratios(unit: str) -> list[list[float]]:
    """By trajectory: exp of the mean change over a row, or over a turn, for each of its tokens."""
    found = []
    for turns, policy, engine in zip(toy_batch.TURNS, toy_batch.policy_logprobs(), toy_batch.behaviour(), strict=True):
        change = policy - engine
        parts = [change] if unit == "row" else np.split(change, np.cumsum(turns)[:-1])
        found.append([math.exp(part.mean()) for part in parts for _ in part])
    return found


@pytest.mark.parametrize("unit", ["row", "turn"])
def test_gspo_has_one_ratio_for_a_row_or_for_a_turn(unit: str) -> None:
    """With a wide clip range, each token's term is min(ratio · A, clip(ratio) · A) with the ratio of its unit."""
    settings = settings_of("gspo", clip_low=0.2, clip_high=0.28, ratio_over=unit, advantage="mean")
    loss, _ = compute(settings)
    expected, mean = 0.0, sum(toy_batch.REWARDS) / len(toy_batch.REWARDS)
    for reward, own in zip(toy_batch.REWARDS, ratios(unit), strict=True):
        terms = [min(ratio * (reward - mean), min(max(ratio, 0.8), 1.28) * (reward - mean)) for ratio in own]
        expected -= sum(terms) / len(terms) / len(toy_batch.REWARDS)
    assert loss == pytest.approx(expected, abs=1e-6)


def test_gspo_corrects_for_an_engine_that_is_not_the_parent() -> None:
    settings = settings_of("gspo", importance_cap=1.2)
    weighted = weigh_groups([toy_batch.group(dict.fromkeys(toy_batch.names(), 1.0))], settings)
    one, tokens = toy_batch.gathered(weighted, settings)
    logprobs = toy_batch.in_order(one, weighted, toy_batch.policy_logprobs())
    engine = toy_batch.in_order(one, weighted, toy_batch.behaviour())
    result, _, _ = weighted_losses(replace(tokens, parent=None), logprobs, None, settings)  # the policy is the parent
    torch.testing.assert_close(result.loss, -torch.exp(logprobs - engine).clamp(max=1.2), atol=1e-6, rtol=0)
    assert not result.clipped.any()


def test_rloo_is_the_clipped_objective_of_leave_one_out_advantages_over_all_tokens() -> None:
    loss, _ = compute(settings_of("rloo"))
    terms = []
    for number, reward in enumerate(toy_batch.REWARDS):
        others = [other for at, other in enumerate(toy_batch.REWARDS) if at != number]
        advantage = reward - sum(others) / len(others)
        ratio = np.exp(toy_batch.policy_logprobs()[number] - toy_batch.behaviour()[number])
        terms.append(np.minimum(ratio * advantage, np.clip(ratio, 0.8, 1.2) * advantage))
    assert loss == pytest.approx(-np.concatenate(terms).mean(), abs=1e-6)


# --- settings


def test_every_recipe_is_in_the_table_and_hone_is_the_settings_own_defaults() -> None:
    assert set(RECIPES) == set(get_args(RecipeName))
    assert TrainerSettings(recipe="hone").model_dump() == TrainerSettings().model_dump()
    assert all("kl_coef" not in recipe for recipe in RECIPES.values())


def test_a_value_of_ones_own_wins_over_the_recipes() -> None:
    found = TrainerSettings(recipe="dapo", clip_high=0.4)
    assert (found.clip_low, found.clip_high, found.normaliser, found.advantage) == (0.2, 0.4, "token", "mean_std")
    assert math.isinf(found.importance_cap)


def test_a_constant_length_is_never_guessed() -> None:
    with pytest.raises(ValidationError, match='the recipe "dr_grpo" needs constant_length'):
        TrainerSettings(recipe="dr_grpo")
    with pytest.raises(ValidationError, match='normaliser = "constant" needs constant_length'):
        TrainerSettings(normaliser="constant")


def test_the_older_name_of_mean_std_is_kept() -> None:
    assert TrainerSettings(advantage_std=True).advantage == "mean_std"
    with pytest.raises(ValidationError, match='advantage_std contradicts advantage = "rank"'):
        TrainerSettings(advantage_std=True, advantage="rank")
