"""Epochs over demonstrations, the loss on what is held out, and the best epoch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch

from tests.trainer.building import random_ids, trained_row
from trainer.batch.layouts import make_packs
from trainer.demonstrations.fit_plan import FitPlan
from trainer.errors import StepInterrupted
from trainer.objectives.imitate_rows import Demonstration
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.settings import TrainerSettings
from trainer.step.fits.epochs import EpochRunner
from trainer.step.fits.job import FitJob
from trainer.step.fits.objectives import ImitateFit
from trainer.step.fits.report import FitResult

pytestmark = pytest.mark.slow

PROMPT, ANSWER = 12, 6
SETTINGS = TrainerSettings(token_budget=512, lr=1e-2, sft={"epochs": 3, "batch_tokens": 40})


def demonstration(name: str, ids: Sequence[int]) -> Demonstration:
    row = trained_row(list(ids), list(range(PROMPT, len(ids))), name=name, behaviour=float("nan"))
    row = replace(row, age=np.full(len(ids), -1, np.int32))
    return Demonstration(name, "file", name, name, [row])


def random_demonstration(number: int) -> Demonstration:
    return demonstration(f"d{number}", random_ids(PROMPT + ANSWER, number))


@torch.no_grad()
def likeliest(policy: Policy, number: int) -> Demonstration:
    """What the policy itself would answer: training on anything else makes it less likely."""
    ids = random_ids(PROMPT, number)
    for _ in range(ANSWER):
        (alone,) = make_packs([np.array(ids, np.int32)], 512, policy.layout)
        ids.append(int(policy.head(policy.hidden(alone))[-1].argmax()))
    return demonstration(f"h{number}", ids)


def fit(
    policy: Policy, plan: FitPlan[Demonstration], epochs: int, stopped: Callable[[], bool] = lambda: False
) -> tuple[Any, ...]:
    """Train from the base. Returns the result, the weights and the moments."""
    policy.load_state(None)
    optimizer = Optimizer(policy.parameters, SETTINGS)
    optimizer.rate = 1e-2
    sft = SETTINGS.sft.model_copy(update={"epochs": epochs})
    result: FitResult = EpochRunner(policy, optimizer, SETTINGS, 512, stopped).run(FitJob(plan, ImitateFit(), sft))
    return result, policy.state(), optimizer.state()["adamw"]


def test_an_epoch_that_gets_worse_is_not_kept_and_neither_are_its_moments(tiny_policy: Callable[..., Any]) -> None:
    policy = tiny_policy()
    held_out_ones = [likeliest(policy, 40 + n) for n in range(2)]
    unlikely = next(id_ for id_ in range(3, 60) if not any(id_ in one.rows[0].token_ids for one in held_out_ones))
    others = [demonstration(f"d{n}", random_ids(PROMPT, n) + [unlikely] * ANSWER) for n in range(6)]
    plan = FitPlan(others, held_out_ones)
    result, weights, moments = fit(policy, plan, 3)
    held_out = [one.held_out["loss"] for one in result.epochs]
    assert result.held_out_before["loss"] < held_out[0] < held_out[2]
    assert result.best == 1
    _, expected, expected_moments = fit(policy, plan, 1)
    assert all(torch.equal(weights[name], tensor) for name, tensor in expected.items())
    assert moments.keys() == expected_moments.keys()
    for number, state in expected_moments.items():
        assert all(torch.equal(moments[number][name], value) for name, value in state.items())
    assert result.metrics["held_out_loss"] == held_out[0]


def test_a_fit_neither_takes_nor_leaves_norms(tiny_policy: Callable[..., Any]) -> None:
    """Its gradients are of another size than those of a step on groups."""
    policy = tiny_policy()
    settings = SETTINGS.model_copy(update={"grad_clip_recent": 2.0})
    plan = FitPlan([random_demonstration(n) for n in range(4)], [])
    job = FitJob(plan, ImitateFit(), settings.sft.model_copy(update={"epochs": 1}))
    made = []
    for norms in ([], [1e-9] * 20):
        policy.load_state(None)
        optimizer = Optimizer(policy.parameters, settings)
        optimizer.load({**optimizer.state(), "norms": norms})
        EpochRunner(policy, optimizer, settings, 512, lambda: False).run(job)
        assert optimizer.state()["norms"] == []
        made.append(policy.state())
    assert all(torch.equal(made[0][name], tensor) for name, tensor in made[1].items())


def test_the_loss_of_what_is_trained_on_falls_and_the_last_epoch_counts_where_nothing_is_held_out(
    tiny_policy: Callable[..., Any],
) -> None:
    policy = tiny_policy()
    plan = FitPlan([random_demonstration(n) for n in range(4)], [])
    result, weights, _ = fit(policy, plan, 3)
    losses = [one.trained["loss"] for one in result.epochs]
    assert losses == sorted(losses, reverse=True)
    assert losses[2] < losses[0] - 0.1
    assert (result.best, result.held_out_before, result.epochs[2].held_out) == (3, None, None)
    assert "held_out_loss" not in result.metrics
    _, earlier, _ = fit(policy, plan, 2)
    assert any(not torch.equal(weights[name], tensor) for name, tensor in earlier.items())
    assert result.metrics["updates"] == 6  # two rows of 18 tokens in each optimizer step of 40
    assert result.metrics["trained_tokens"] == 3 * 4 * ANSWER


def test_the_measured_loss_is_the_mean_over_all_tokens(tiny_policy: Callable[..., Any]) -> None:
    policy = tiny_policy()
    runner = EpochRunner(policy, Optimizer(policy.parameters, SETTINGS), SETTINGS, 20, lambda: False)
    several = [random_demonstration(n) for n in range(3)]
    job = FitJob(FitPlan(several, []), ImitateFit(), SETTINGS.sft)
    each = [(runner.measure(job, [one], {}) or {})["loss"] for one in several]
    assert (runner.measure(job, several, {}) or {})["loss"] == pytest.approx(sum(each) / 3, abs=1e-6)
    assert runner.measure(job, [], {}) is None


def test_a_fit_stops_between_two_passes(tiny_policy: Callable[..., Any]) -> None:
    calls = iter([False, False, True])
    plan = FitPlan([random_demonstration(n) for n in range(6)], [random_demonstration(9)])
    with pytest.raises(StepInterrupted):
        fit(tiny_policy(), plan, 2, lambda: next(calls))
