"""Pairs in a step on groups: the gradient is that of the groups plus that of DPO, as TRL publishes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.trainer.building import random_ids, trained_row
from tests.trainer.plain_settings import PLAIN
from tests.trainer.step.test_pair_epochs import PAIRS, Weights, dpo_loss, dpo_margins, load, plain_model
from tests.trainer.step.test_pair_epochs import trained_parameters as plain_parameters
from trainer.batch.weights import WeightedRow
from trainer.errors import StepInterrupted
from trainer.objectives.registry import weigh_step
from trainer.objectives.step_data import StepData
from trainer.policy.model import Policy
from trainer.policy.packs.gradient_shares import sample_rows
from trainer.policy.packs.sums import FreshGaps
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings
from trainer.step.passes import StepPasses
from trainer.step.state.results import PhaseSeconds

pytestmark = pytest.mark.slow

WEIGHT, BETA = 0.5, 0.3


def settings(**changes: Any) -> TrainerSettings:
    given: dict[str, Any] = {
        "rank": 4, "alpha": 8.0, "grad_clip": 1e9, "token_budget": 512, "logprob_chunk": 5, "lr": 1e-2,
        "dpo": {"beta": BETA}, "objectives": [{"name": "group"}, {"name": "prefer", "weight": WEIGHT}],
    }  # fmt: skip
    return TrainerSettings(**{**PLAIN, **given, **changes})


def group_rows(substeps: int = 1) -> list[WeightedRow]:
    made = []
    for number in range(4):
        ids = random_ids(16 + number, 300 + number)
        row = trained_row(ids, list(range(10, len(ids))), name=f"t{number}", behaviour=-4.0)
        made.append(WeightedRow(row, 0.5 if number % 2 else -0.5, 0.05, substep=number % substeps))
    return made


def pair_rows(own: TrainerSettings) -> list[WeightedRow]:
    return weigh_step(StepData(pairs=PAIRS), own)


def compute(
    policy: Policy,
    own: TrainerSettings,
    rows: Sequence[WeightedRow],
    reference: Weights | None = None,
    stopped: Callable[[], bool] = lambda: False,
) -> tuple[dict[str, float], dict[str, Tensor]]:
    """The metrics of a step from the weights in memory, and the gradient of its last optimizer step."""
    passes = StepPasses(policy, own)
    passes.optimizer.rate = own.lr
    made = passes.compute(rows, stopped, PhaseSeconds(), FreshGaps(), reference=reference)
    grads = {name: one.grad.clone() for name, one in policy.parameters.items() if one.grad is not None}
    return made.metrics, grads


@pytest.mark.parametrize("of", ["base", "version"])
def test_the_gradient_of_a_mixed_step_is_that_of_the_groups_plus_trls(
    tiny_base: Path, tiny_policy: Callable[..., Policy], of: str
) -> None:
    policy, own = tiny_policy(), settings()
    start, version = random_state(policy, 1), random_state(policy, 2)
    reference = version if of == "version" else None
    policy.load_state(start)
    alone, of_groups = compute(policy, settings(objectives=[{"name": "group"}]), group_rows())
    policy.load_state(start)
    metrics, found = compute(policy, own, [*group_rows(), *pair_rows(own)], reference)

    untrained = {name: torch.zeros_like(value) for name, value in start.items()}
    model = plain_model(tiny_base, start)
    margins = dpo_margins(model, plain_model(tiny_base, untrained if reference is None else reference), PAIRS)
    assert float(margins.detach().abs().min()) > 0.01
    loss, parameters = WEIGHT * dpo_loss(margins), plain_parameters(model)
    expected = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    for name, value in expected.items():
        torch.testing.assert_close(found[name], of_groups[name] + value, atol=1e-6, rtol=1e-4)
    assert metrics["objective.group.loss"] == pytest.approx(alone["loss"], abs=1e-6)
    assert metrics["objective.prefer.loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert metrics["loss"] == pytest.approx(alone["loss"] + loss.item(), abs=1e-5)
    assert metrics["objective.prefer.margin"] == pytest.approx(margins.detach().mean().item(), abs=1e-5)
    assert metrics["objective.prefer.tokens"] == sum(one.trained_tokens for one in PAIRS)
    shares = [metrics[f"objective.{name}.gradient_share"] for name in ("group", "prefer")]
    assert sum(shares) == pytest.approx(1.0)
    assert min(shares) > 0.01


@pytest.mark.parametrize("budget", [24, 512])
def test_margins_are_computed_anew_before_each_optimizer_step(
    tiny_base: Path, tiny_policy: Callable[..., Policy], budget: int
) -> None:
    policy, own = tiny_policy(), settings(substeps=2, lr=0.02)
    start = random_state(policy, 1)
    groups = [replace(one, advantage=0.0) for one in group_rows(substeps=2)]  # they move nothing
    pairs = pair_rows(own)
    policy.load_state(start)
    compute(policy, own, [one for one in [*groups, *pairs] if one.substep == 0])
    between = policy.state()
    policy.load_state(start)
    policy.pass_budget = budget
    _, found = compute(policy, own, [*groups, *pairs])

    second = [one for one in PAIRS if one.source_id in {row.pair for row in pairs if row.substep == 1}]
    assert 0 < len(second) < len(PAIRS)
    model = plain_model(tiny_base, between)
    base = plain_model(tiny_base, {name: torch.zeros_like(value) for name, value in start.items()})
    margins = dpo_margins(model, base, second)
    load(base, start)  # what margins would be without the first optimizer step
    assert float((margins - dpo_margins(base, plain_model(tiny_base, between), second)).detach().abs().max()) > 0.01
    parameters = plain_parameters(model)
    expected = torch.autograd.grad(WEIGHT * dpo_loss(margins), list(parameters.values()))
    for name, value in zip(parameters, expected, strict=True):
        torch.testing.assert_close(found[name], value, atol=2e-6, rtol=1e-3)


def test_a_step_with_pairs_stops_in_their_passes_and_leaves_the_weights(tiny_policy: Callable[..., Policy]) -> None:
    policy, own = tiny_policy(), settings()
    policy.load_state(start := random_state(policy, 1))
    with pytest.raises(StepInterrupted):
        compute(policy, own, [*group_rows(), *pair_rows(own)], random_state(policy, 2), stopped=lambda: True)
    assert all(torch.equal(value, start[name]) for name, value in policy.state().items())


def test_a_sample_of_rows_has_a_pair_whole_or_not_at_all() -> None:
    own = settings()
    rows = pair_rows(own)
    assert sorted(one.row.trajectory_id for one in sample_rows(rows)) == sorted(one.row.trajectory_id for one in rows)
    long = [replace(one, row=replace(one.row, token_ids=one.row.token_ids.repeat(60))) for one in rows]
    sampled = sample_rows(long)
    assert 0 < len(sampled) < len(rows)
    for name in {one.pair for one in sampled}:
        assert sum(one.pair == name for one in sampled) == sum(one.pair == name for one in rows)
