"""A fit on pairs is DPO as TRL publishes it, computed row by row with plain transformers, peft and torch.

The expectation imports nothing of the trainer but the rows: each row is a sequence of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from tests.trainer.building import random_ids, trained_row
from trainer.batch.row_builder import Row
from trainer.demonstrations.fit_plan import FitPlan, make_batches
from trainer.errors import StepInterrupted
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.prefer import PreferencePair
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer
from trainer.policy.packs.logprob_sums import sum_logprobs
from trainer.policy.startup_check import random_state
from trainer.settings import TrainerSettings
from trainer.step.fits.epochs import EpochRunner
from trainer.step.fits.job import FitJob
from trainer.step.fits.objectives import PreferFit
from trainer.step.fits.report import FitResult

pytestmark = pytest.mark.slow

BETA, PROMPT = 0.3, 10
SETTINGS = TrainerSettings(rank=4, alpha=8.0, grad_clip=1e9, token_budget=512, logprob_chunk=5)
Weights = Mapping[str, Tensor]


def side(name: str, prompt: Sequence[int], seed: int, answers: int = 1) -> Demonstration:
    """A side with an answer on each of its rows, which begin alike."""
    rows = []
    for number in range(answers):
        ids = [*prompt, *random_ids(4 + seed % 3 + number, 100 + 10 * seed + number)]
        rows.append(trained_row(ids, list(range(len(prompt), len(ids))), name=name, behaviour=float("nan")))
    return Demonstration(name, "trajectory", name, "t", rows)


def pair(number: int, answers: int = 1) -> PreferencePair:
    prompt = random_ids(PROMPT + number % 2, number)
    chosen, rejected = side(f"c{number}", prompt, 2 * number, answers), side(f"r{number}", prompt, 2 * number + 1)
    return PreferencePair(f"p{number}", "preference", f"p{number}", chosen, rejected)


PAIRS = [pair(0), pair(1, answers=2), pair(2), pair(3)]


# --- what TRL publishes (DPOTrainer, loss_type "sigmoid"; arXiv 2305.18290, eq. 7)


def plain_model(base: Path, state: Weights) -> Any:
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager"), config)
    load(model, state)
    return model


def load(model: Any, state: Weights) -> None:
    with torch.no_grad():
        for name, parameter in trained_parameters(model).items():
            parameter.copy_(state[name])


def trained_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}


def answer_logprob(model: Any, one: Demonstration) -> Tensor:
    return torch.stack([row_logprob(model, row) for row in one.rows]).sum()


def row_logprob(model: Any, row: Row) -> Tensor:
    ids, trained = torch.from_numpy(row.token_ids).long(), torch.from_numpy(row.trained)
    logprobs = torch.log_softmax(model(input_ids=ids[None]).logits[0], -1)
    return logprobs[:-1].gather(1, ids[1:, None])[:, 0][trained[1:]].sum()


def dpo_margins(model: Any, reference: Any, pairs: Sequence[PreferencePair]) -> Tensor:
    margins = []
    for one in pairs:
        chosen, rejected = answer_logprob(model, one.chosen), answer_logprob(model, one.rejected)
        with torch.no_grad():
            ref_chosen, ref_rejected = answer_logprob(reference, one.chosen), answer_logprob(reference, one.rejected)
        margins.append(BETA * ((chosen - ref_chosen) - (rejected - ref_rejected)))
    return torch.stack(margins)


def dpo_loss(margins: Tensor) -> Tensor:
    return -torch.nn.functional.logsigmoid(margins).mean()


# --- ours


def runner(policy: Policy, reference: Weights | None = None, budget: int = 512, rate: float = 1e-3) -> EpochRunner:
    optimizer = Optimizer(policy.parameters, SETTINGS)
    optimizer.rate = rate
    return EpochRunner(policy, optimizer, SETTINGS, budget, lambda: False, reference)


def job(
    trained: Sequence[PreferencePair],
    held_out: Sequence[PreferencePair] = (),
    *,
    epochs: int = 1,
    batch_tokens: int = 4096,
) -> FitJob[PreferencePair]:
    settings = SETTINGS.dpo.model_copy(update={"epochs": epochs, "batch_tokens": batch_tokens})
    return FitJob(FitPlan(trained, held_out), PreferFit(BETA), settings)


def gradients(policy: Policy) -> dict[str, Tensor]:
    return {name: parameter.grad for name, parameter in policy.parameters.items() if parameter.grad is not None}


def assert_gradients(policy: Policy, model: Any, loss: Tensor) -> None:
    parameters = trained_parameters(model)
    expected = dict(zip(parameters, torch.autograd.grad(loss, list(parameters.values())), strict=True))
    found = gradients(policy)
    assert found.keys() == expected.keys()
    assert max(float(value.abs().max()) for value in expected.values()) > 1e-2
    for name, value in expected.items():
        torch.testing.assert_close(found[name], value, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("of", ["base", "version"])
@pytest.mark.parametrize("budget", [24, 512])
def test_a_step_of_a_fit_has_the_loss_and_the_gradient_of_trl(
    tiny_base: Path, tiny_policy: Callable[..., Policy], budget: int, of: str
) -> None:
    policy = tiny_policy()
    start, version = random_state(policy, 1), random_state(policy, 2)
    policy.load_state(start)
    result = runner(policy, version if of == "version" else None, budget).run(job(PAIRS))

    untrained = {name: torch.zeros_like(value) for name, value in start.items()}
    model = plain_model(tiny_base, start)
    margins = dpo_margins(model, plain_model(tiny_base, version if of == "version" else untrained), PAIRS)
    assert float(margins.detach().abs().min()) > 0.01  # away from m = 0, where every pair weighs the same
    (epoch,) = result.epochs
    assert epoch.trained["loss"] == pytest.approx(dpo_loss(margins).item(), abs=1e-5)
    assert epoch.trained["margin"] == pytest.approx(margins.detach().mean().item(), abs=1e-5)
    assert epoch.trained["accuracy"] == float((margins.detach() > 0).float().mean())
    assert_gradients(policy, model, dpo_loss(margins))


def test_weights_are_computed_anew_before_each_optimizer_step_and_the_reference_is_not(
    tiny_base: Path, tiny_policy: Callable[..., Policy]
) -> None:
    policy = tiny_policy()
    start = random_state(policy, 1)
    first, second = make_batches(PAIRS, 90, 1, SETTINGS.seed)
    policy.load_state(start)
    runner(policy, rate=0.01).run(job(first))
    between = policy.state()

    policy.load_state(start)
    result = runner(policy, rate=0.01).run(job(PAIRS, batch_tokens=90))
    assert result.metrics["updates"] == 2
    model = plain_model(tiny_base, between)
    base = plain_model(tiny_base, {name: torch.zeros_like(value) for name, value in start.items()})
    margins = dpo_margins(model, base, second)
    at_start = dpo_margins(plain_model(tiny_base, start), base, second)
    assert float((margins - at_start).detach().abs().max()) > 0.01
    assert_gradients(policy, model, dpo_loss(margins))


def test_the_sums_of_both_passes_are_those_of_a_plain_forward_pass_and_the_weights_stay(
    tiny_base: Path, tiny_policy: Callable[..., Policy]
) -> None:
    policy = tiny_policy()
    start, version = random_state(policy, 1), random_state(policy, 2)
    policy.load_state(start)
    rows = [row for one in PAIRS for row in one.rows]
    model = plain_model(tiny_base, start)

    def plain() -> list[float]:
        with torch.no_grad():
            return [float(row_logprob(model, row)) for row in rows]

    for budget in (24, 512):
        assert sum_logprobs(policy, rows, SETTINGS, budget, lambda: False) == pytest.approx(plain(), abs=1e-4)
    assert sum_logprobs(policy, [], SETTINGS, 512, lambda: False) == []
    of_version = runner(policy, version).measure_reference(job(PAIRS[:2], PAIRS[2:]))
    of_base = runner(policy).measure_reference(job(PAIRS[:2], PAIRS[2:]))
    assert all(torch.equal(value, start[name]) for name, value in policy.state().items())
    load(model, version)
    expected = plain()
    assert [value for one in PAIRS for value in of_version[one.source_id]] == pytest.approx(expected, abs=1e-4)
    with model.disable_adapter():
        expected = plain()
    assert [value for one in PAIRS for value in of_base[one.source_id]] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("budget", [24, 90])
def test_order_and_packing_do_not_change_a_fit(tiny_policy: Callable[..., Policy], budget: int) -> None:
    policy = tiny_policy()

    def fit(pairs: Sequence[PreferencePair], budget: int) -> tuple[FitResult, Weights]:
        policy.load_state(random_state(policy, 1))
        result = runner(policy, budget=budget).run(job(pairs, [pair(9)], epochs=2, batch_tokens=80))
        return result, gradients(policy)

    result, expected = fit(PAIRS, 512)
    other, found = fit(PAIRS[::-1], budget)
    for one, same in zip(other.epochs, result.epochs, strict=True):
        assert one.trained == pytest.approx(same.trained, abs=1e-4)
        assert one.held_out == pytest.approx(same.held_out, abs=1e-4)
    for name, value in expected.items():
        # Adam moves a weight by its whole rate for a gradient of rounding size: the second epoch differs a little
        torch.testing.assert_close(found[name], value, atol=2e-3, rtol=1e-2)


def test_what_is_held_out_is_measured_after_each_epoch_and_the_best_one_is_kept(
    tiny_policy: Callable[..., Policy],
) -> None:
    policy = tiny_policy()
    held_out = [replace(PAIRS[0], source_id="held out")]  # the same pair: it gets better with it
    result = runner(policy, rate=0.02).run(job(PAIRS, held_out, epochs=3))
    before, after = result.held_out_before, result.epochs[-1].held_out
    assert before == {"loss": pytest.approx(0.693147, abs=1e-6), "margin": 0.0, "accuracy": 0.0}  # the base itself
    assert after is not None
    assert after["loss"] < 0.5
    assert (after["margin"] > 0.5, after["accuracy"], result.best) == (True, 1.0, 3)
    losses = [one.trained["loss"] for one in result.epochs]
    assert losses == sorted(losses, reverse=True)
    metrics = result.metrics
    assert (metrics["loss"], metrics["held_out_margin"]) == (losses[-1], after["margin"])
    assert (metrics["held_out_loss_before"], metrics["held_out_accuracy"]) == (before["loss"], 1.0)

    opposite = [replace(PAIRS[0], source_id="held out", chosen=PAIRS[0].rejected, rejected=PAIRS[0].chosen)]
    policy.load_state(None)
    worse = runner(policy, rate=0.02).run(job(PAIRS, opposite, epochs=3))
    assert worse.best == 1  # each epoch makes it less likely


def test_a_fit_on_pairs_stops_between_two_passes(tiny_policy: Callable[..., Policy]) -> None:
    policy = tiny_policy()
    calls = iter([False, False, True])
    stopping = replace(runner(policy, budget=24), stopped=lambda: next(calls))
    with pytest.raises(StepInterrupted):
        stopping.run(job(PAIRS))
