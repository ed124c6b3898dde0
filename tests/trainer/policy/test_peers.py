"""A whole step against what the papers write, computed turn by turn with plain transformers, peft and torch.

The expectation imports nothing of the trainer: every sampled turn is a sequence of its own, every token a term of a
sum. So rows, packing, chunks, temperature, advantages, weights and the losses are all held at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import AutoModelForCausalLM

from recorder.messages.calls import SamplingParameters
from recorder.views.trajectories.shapes import GroupView
from tests.trainer.building import call, choice, group, random_ids, trajectory
from trainer.batch.rows import RowBasis
from trainer.objectives.group import weigh_groups
from trainer.objectives.group_rows import group_rows
from trainer.policy.model import Policy
from trainer.policy.optim import Optimizer, learning_rate
from trainer.policy.packs.plan import plan_update
from trainer.policy.update import train_step
from trainer.settings import TrainerSettings

pytestmark = pytest.mark.slow

TEMPERATURE = 0.8
CLIP_LOW, CLIP_HIGH, TRUNCATION, CISPO_CAP = 0.2, 0.28, 2.0, 5.0


@dataclass
class Turn:
    """One sampled turn, and what the engine said of its tokens."""

    prompt: list[int]
    sampled: list[int]
    behaviour: list[float]


@dataclass
class Run:
    turns: list[Turn]
    reward: float


# --- what the papers write


def grpo(logprob: Tensor, behaviour: float, advantage: float) -> Tensor:
    """PPO's clipped objective (1707.06347, eq. 7) with DAPO's bounds (2503.14476, section 3.1), a token.

    Where it is unbounded, the policy gradient under a truncated importance weight (TIS): C·A·∇logprob.
    """
    ratio = torch.exp(logprob - behaviour)
    if advantage < 0 and ratio > TRUNCATION:
        return TRUNCATION * advantage * (1 + logprob - logprob.detach())
    bounded = torch.clip(ratio, 1 - CLIP_LOW, 1 + CLIP_HIGH)
    return torch.min(ratio * advantage, bounded * advantage)


def cispo(logprob: Tensor, behaviour: float, advantage: float) -> Tensor:
    """MiniMax-M1 (2506.13585, eq. 4): sg(r̂)·A·logprob with r̂ = min(r, 1 + ε_high)."""
    weight = min(torch.exp(logprob - behaviour).item(), CISPO_CAP)
    return weight * advantage * logprob


OBJECTIVES: dict[str, Callable[[Tensor, float, float], Tensor]] = {"grpo": grpo, "cispo": cispo}


def advantages(rewards: Sequence[float], by_std: bool) -> list[float]:
    """GRPO (2402.03300, section 4.1.2; the deviation of a sample) or Dr. GRPO (2503.20783), which does not divide."""
    mean, std = float(np.mean(rewards)), float(np.std(rewards, ddof=1))
    return [(reward - mean) / (std + 1e-4 if by_std else 1.0) for reward in rewards]


def expected_loss(model: Any, runs: Sequence[Run], objective: str, beta: float, by_std: bool) -> Tensor:
    """Minus the mean over runs of the mean over their tokens, plus β times the KL's estimate (2402.03300, eq. 4)."""
    total = torch.zeros(())
    for run, advantage in zip(runs, advantages([run.reward for run in runs], by_std), strict=True):
        tokens = sum(len(turn.sampled) for turn in run.turns)
        for turn in run.turns:
            with model.disable_adapter(), torch.no_grad():
                reference = turn_logprobs(model, turn)
            for at, logprob in enumerate(turn_logprobs(model, turn)):
                term = OBJECTIVES[objective](logprob, turn.behaviour[at], advantage)
                gap = reference[at] - logprob
                term = term - beta * (torch.exp(gap) - gap - 1)
                total = total - term / tokens / len(runs)
    return total


def turn_logprobs(model: Any, turn: Turn) -> Tensor:
    """The logprobs of the sampled tokens, by a forward pass over this turn alone."""
    logits = model(input_ids=torch.tensor([turn.prompt + turn.sampled])).logits[0]
    predicting = logits[len(turn.prompt) - 1 : -1] / TEMPERATURE
    return torch.log_softmax(predicting, -1)[range(len(turn.sampled)), turn.sampled]


# --- the same data for both


@torch.no_grad()
def make_runs(model: Any, seed: int) -> list[Run]:
    """Runs of one to three turns on one task; the second one's history is rewritten midway: it needs two rows."""
    random = np.random.default_rng(seed)
    task = random_ids(20, seed)
    runs = []
    for number, reward in enumerate((1.0, 0.0, 0.3, 0.9)):
        context, turns = list(task), []
        for turn_number in range(1 + number % 3):
            if number == 1 and turn_number == 1:
                context[-5] = 3 + (context[-5] + 1) % 57  # the last token that was sampled
            sampled = random_ids(3 + 2 * number + turn_number, 100 * seed + 10 * number + turn_number)
            turn = Turn(context, sampled, [])
            drift = random.uniform(-1.2, 1.8, len(sampled))  # ratios from e^-1.2 to e^1.8: past every bound
            turn.behaviour = (turn_logprobs(model, turn).numpy() - drift).tolist()
            turns.append(turn)
            context = context + sampled + random_ids(4, 7)
        runs.append(Run(turns, reward))
    return runs


def as_recorded(runs: Sequence[Run]) -> tuple[GroupView, dict[str, float | None]]:
    members = []
    for number, run in enumerate(runs):
        calls = [
            call(
                at,
                turn.prompt,
                choice(turn.sampled, logprobs=np.array(turn.behaviour, np.float32)),
                id=f"call_{number}_{at}",
                sampling=SamplingParameters(temperature=TEMPERATURE),
            )
            for at, turn in enumerate(run.turns)
        ]
        members.append(trajectory(*calls, id=f"run_{number}"))
    return group(*members), {f"run_{number}": run.reward for number, run in enumerate(runs)}


def plain_model(base: Path, state: dict[str, Tensor]) -> Any:
    """The same LoRA on the same base, with nobody's attention but transformers' own."""
    config = LoraConfig(r=4, lora_alpha=8, target_modules="all-linear", task_type="CAUSAL_LM")
    model = get_peft_model(AutoModelForCausalLM.from_pretrained(base, attn_implementation="eager"), config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.requires_grad:
                parameter.copy_(state[name.replace(".default.", ".")])
    return model


def trained_parameters(model: Any) -> dict[str, torch.nn.Parameter]:
    return {name.replace(".default.", "."): p for name, p in model.named_parameters() if p.requires_grad}


def perturb(policy: Policy) -> None:
    generator = torch.Generator().manual_seed(5)
    with torch.no_grad():
        for parameter in policy.parameters.values():
            parameter.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)


def our_step(policy: Policy, optimizer: Optimizer, runs: Sequence[Run], settings: TrainerSettings) -> dict[str, float]:
    view, rewards = as_recorded(runs)
    rows = group_rows(view, rewards, RowBasis("base", ["v3"], 0, 512), rule=settings.advantage)
    assert len(rows.rows) == len(runs) + 1
    plan = plan_update(policy, weigh_groups([rows], settings), settings)
    return train_step(policy, optimizer, plan, settings, lambda: False)


@pytest.mark.parametrize("beta", [0.0, 0.1])
@pytest.mark.parametrize("by_std", [False, True])
@pytest.mark.parametrize("objective", OBJECTIVES)
@pytest.mark.parametrize("budget", [64, 512])
def test_loss_and_gradient_of_a_step_are_those_of_the_papers(
    tiny_base: Path, tiny_policy: Callable[..., Policy], objective: str, by_std: bool, beta: float, budget: int
) -> None:
    settings = TrainerSettings(
        loss=objective, kl_coef=beta, advantage_std=by_std, rank=4, alpha=8.0, grad_clip=1e9, token_budget=budget,
        logprob_chunk=5,
    )  # fmt: skip
    policy = tiny_policy()
    perturb(policy)
    model = plain_model(tiny_base, policy.state())
    runs = make_runs(model, 1)
    metrics = our_step(policy, Optimizer(policy.parameters, settings), runs, settings)

    loss = expected_loss(model, runs, objective, beta, by_std)
    torch.autograd.backward(loss)
    assert metrics["loss"] == pytest.approx(loss.item(), abs=1e-5)
    assert metrics["clip_fraction"] > 0.1  # the data reaches the bounds
    expected = {name: parameter.grad for name, parameter in trained_parameters(model).items()}
    assert policy.parameters.keys() == expected.keys()
    assert max(float(gradient.abs().max()) for gradient in expected.values() if gradient is not None) > 0.05
    for name, parameter in policy.parameters.items():
        torch.testing.assert_close(parameter.grad, expected[name], atol=1e-5, rtol=1e-5, msg=name)


def test_the_distance_to_the_engine_is_that_of_the_estimator(
    tiny_base: Path, tiny_policy: Callable[..., Policy]
) -> None:
    """k3 (Schulman, "Approximating KL divergence", 2020) of KL(engine ‖ trainer): the engine sampled the tokens."""
    policy = tiny_policy()
    perturb(policy)
    model = plain_model(tiny_base, policy.state())
    runs = make_runs(model, 1)
    settings = TrainerSettings(rank=4, alpha=8.0)
    metrics = our_step(policy, Optimizer(policy.parameters, settings), runs, settings)
    with torch.no_grad():
        pairs = [
            pair for run in runs for t in run.turns for pair in zip(turn_logprobs(model, t), t.behaviour, strict=True)
        ]
    ratios = np.exp([float(ours) - engine for ours, engine in pairs])
    assert metrics["kl_engine"] == pytest.approx(np.mean(ratios - 1 - np.log(ratios)), abs=1e-5)
    assert metrics["logprob_gap"] == pytest.approx(np.mean(np.abs(np.log(ratios))), abs=1e-5)
    assert metrics["logprob_gap_max"] == pytest.approx(np.max(np.abs(np.log(ratios))), abs=1e-5)
    assert metrics["ratio_mean"] == pytest.approx(np.mean(ratios), abs=1e-5)


@pytest.mark.slow
def test_steps_of_the_optimizer_are_those_of_torch(tiny_base: Path, tiny_policy: Callable[..., Policy]) -> None:
    """Clipped to the norm, AdamW (1711.05101) with decoupled decay, a learning rate that rises and then falls."""
    settings = TrainerSettings(
        lr=1e-3,
        weight_decay=0.1,
        grad_clip=0.1,
        warmup_steps=2,
        schedule="linear",
        schedule_steps=4,
        lr_min=0,
        rank=4,
        alpha=8.0,
    )
    policy = tiny_policy()
    perturb(policy)
    model = plain_model(tiny_base, policy.state())
    ours, theirs = Optimizer(policy.parameters, settings), torch.optim.AdamW(trained_parameters(model).values())
    for seed, rate in ((1, 0.5e-3), (2, 1e-3), (3, 1e-3), (4, 0.5e-3)):
        ours.rate = learning_rate(settings, seed - 1)
        runs = make_runs(model, seed)
        metrics = our_step(policy, ours, runs, settings)
        theirs.zero_grad()
        torch.autograd.backward(expected_loss(model, runs, "grpo", 0.0, by_std=False))
        norm = torch.nn.utils.clip_grad_norm_(trained_parameters(model).values(), 0.1)
        for options in theirs.param_groups:
            options |= {"lr": rate, "weight_decay": 0.1}
        theirs.step()
        assert metrics["lr"] == pytest.approx(rate)
        assert metrics["grad_norm"] == pytest.approx(float(norm), rel=1e-4)
        assert norm > 0.2  # so that clipping matters
        for name, parameter in trained_parameters(model).items():
            # where a gradient is rounding alone, AdamW makes a whole step of its sign
            sure = theirs.state[parameter]["exp_avg_sq"].sqrt() > 2e-7
            assert sure.float().mean() > 0.9
            torch.testing.assert_close(policy.parameters[name][sure], parameter[sure], atol=1e-5, rtol=0, msg=name)
