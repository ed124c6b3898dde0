"""Imitation is plain cross-entropy, whatever else is in the step."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from pydantic import ValidationError
from torch.nn.functional import cross_entropy

from recorder.stats.advantages import group_advantages
from tests.trainer.building import random_ids, trained_row
from tests.trainer.objectives import toy_batch
from trainer.batch.layouts import make_packs
from trainer.objectives.imitate import weigh_batch
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.registry import weigh_step
from trainer.objectives.step_data import StepData
from trainer.policy.packs.gradient_shares import gradient_shares, sample_rows
from trainer.policy.packs.plan import plan_update
from trainer.policy.update import pack_losses
from trainer.settings import TrainerSettings

IMITATE = {"name": "imitate", "weight": 0.25, "where": "reward > 0"}


def demonstration(number: int, prompt: int = 12, answer: int = 5) -> Demonstration:
    """One whose tokens no engine sampled."""
    ids = random_ids(prompt + answer, 50 + number)
    row = trained_row(ids, list(range(prompt, prompt + answer)), name=f"d{number}", behaviour=float("nan"))
    row = replace(row, age=np.full(len(ids), -1, np.int32))
    return Demonstration(row.trajectory_id, "trajectory", row.trajectory_id, f"task {number}", [row])


def mixed(**settings: Any) -> TrainerSettings:
    return TrainerSettings(objectives=[{"name": "group"}, IMITATE], **settings)


def groups(settings: TrainerSettings) -> StepData:
    rewards = dict(zip(toy_batch.names(), toy_batch.REWARDS, strict=True))
    advantages = group_advantages(rewards, settings.advantage)
    assert advantages is not None
    return StepData([toy_batch.group(advantages)])


@pytest.mark.slow
def test_the_loss_and_the_gradient_of_demonstrations_are_those_of_cross_entropy(
    tiny_policy: Callable[..., Any],
) -> None:
    policy = tiny_policy()
    given = [demonstration(number, answer=3 + number) for number in range(4)]
    rows = weigh_batch(given)
    settings = TrainerSettings(token_budget=512)
    parameters = list(policy.parameters.values())
    with torch.no_grad():
        for number, parameter in enumerate(parameters):
            torch.manual_seed(number)
            parameter.normal_(std=0.05)
    (pack,) = plan_update(policy, rows, settings).packs
    loss = pack_losses(policy, pack, rows, settings).losses.sum()
    ours = torch.autograd.grad(loss, parameters)

    total, tokens = torch.zeros(()), 0
    for one in given:
        ids = one.rows[0].token_ids
        labels = torch.where(torch.from_numpy(one.rows[0].trained), torch.from_numpy(ids).long(), -100)
        (alone,) = make_packs([ids], 512, policy.layout)
        logits = policy.head(policy.hidden(alone))
        total = total + cross_entropy(logits[:-1], labels[1:], reduction="sum", ignore_index=-100)
        tokens += one.trained_tokens
    expected = torch.autograd.grad(total / tokens, parameters)
    assert float(loss.detach()) == pytest.approx(float(total.detach()) / tokens, abs=1e-6)
    for found, wanted in zip(ours, expected, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-6, rtol=1e-4)


@pytest.mark.slow
def test_shares_of_the_gradient_are_measured_on_a_sample_and_leave_gradients_alone(
    tiny_policy: Callable[..., Any],
) -> None:
    policy = tiny_policy()
    settings = mixed()
    data = StepData(demonstrations=[demonstration(number) for number in range(3)])
    sampled = [trained_row(random_ids(17, seed), [14, 15, 16], name=f"g{seed}") for seed in range(3)]
    own = [replace(one, objective="group", ce_weight=0.0, rl_weight=0.1, advantage=1.0, row=row)
           for one, row in zip(weigh_step(data, settings), sampled, strict=True)]  # fmt: skip
    rows = [*own, *weigh_step(data, settings)]
    shares = gradient_shares(policy, rows, settings)
    assert shares.keys() == {"group", "imitate"}
    assert sum(shares.values()) == pytest.approx(1.0)
    louder = [replace(one, ce_weight=4 * np.asarray(one.ce_weight)) for one in rows]
    found = gradient_shares(policy, louder, settings)
    assert found["imitate"] / found["group"] == pytest.approx(4 * shares["imitate"] / shares["group"], rel=1e-4)
    assert gradient_shares(policy, own, settings) == {}
    assert all(parameter.grad is None for parameter in policy.parameters.values())


def test_a_sample_of_rows_is_small_and_weighs_as_much_as_all_rows() -> None:
    settings = mixed()
    data = StepData(demonstrations=[demonstration(number, prompt=500, answer=50) for number in range(20)])
    rows = weigh_step(data, settings)
    sampled = sample_rows(rows)
    assert sum(len(one.row) for one in sampled) == 3 * 550
    whole = [float(np.asarray(one.ce_weight)) * one.row.trained_tokens for one in rows]
    part = [float(np.asarray(one.ce_weight)) * one.row.trained_tokens for one in sampled]
    assert sum(part) == pytest.approx(sum(whole))
    assert sample_rows(weigh_step(StepData(demonstrations=[demonstration(1, prompt=3000)]), settings)) == []


def test_each_objective_normalises_over_its_own_rows_and_multiplies_its_weight_last() -> None:
    settings = mixed(substeps=2)
    alone = TrainerSettings(substeps=2)
    demonstrations = [demonstration(number, answer=2 + number) for number in range(5)]
    of_groups = groups(settings)
    rows = weigh_step(StepData(of_groups.groups, demonstrations), settings)
    own = [row for row in rows if row.objective == "group"]
    assert [(row.row.trajectory_id, row.rl_weight, row.substep) for row in own] == [
        (row.row.trajectory_id, row.rl_weight, row.substep) for row in weigh_step(of_groups, alone)
    ]
    imitated = [row for row in rows if row.objective == "imitate"]
    assert {row.row.trajectory_id for row in imitated} == {one.source_id for one in demonstrations}
    for substep in range(2):
        weights = [float(np.asarray(row.ce_weight)) * row.row.trained_tokens for row in imitated
                   if row.substep == substep]  # fmt: skip
        assert sum(weights) == pytest.approx(0.25)
        assert len(set(np.round(weights, 12))) == 1  # each trajectory has the same weight
    assert all(row.rl_weight == 0 and row.kl_weight == 0 for row in imitated)


@pytest.mark.parametrize(
    ("objectives", "why"),
    [
        ([], 'objectives has "group"'),
        ([IMITATE], 'objectives has "group"'),
        ([{"name": "group"}, IMITATE, IMITATE], "at most once"),
        ([{"name": "group", "epochs": 2}], "has no where and no epochs"),
        ([{"name": "group"}, {"name": "imitate"}], "needs where"),
    ],
)
def test_objectives_that_cannot_be_are_refused_with_what_to_do(objectives: list[dict[str, Any]], why: str) -> None:
    with pytest.raises(ValidationError, match=why):
        TrainerSettings(objectives=objectives)
