"""Steps, checkpoints and what is left after a kill."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from recorder.stats.advantages import group_advantages
from tests.trainer.building import random_ids, trained_row
from tests.trainer.plain_settings import PLAIN
from tests.trainer.training_child import BASE, core, one_step, rows, start, train_on
from trainer.artifacts import adapters, checkpoint, probe
from trainer.artifacts.checkpoint import STATE
from trainer.batch.packing import pack
from trainer.batch.row_builder import Row
from trainer.batch.weights import WeightedRow
from trainer.errors import AdapterInvalid, CheckpointInvalid, StepFailed, StepInterrupted, VersionNotWritten
from trainer.policy.logprobs import full_logprobs
from trainer.policy.optim import learning_rate
from trainer.policy.packs.plan import plan_update
from trainer.policy.packs.tokens import gather_tokens
from trainer.policy.update import pack_logprobs
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import StartVersion, WrittenStep

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[3]


def weights(written: WrittenStep) -> dict[str, torch.Tensor]:
    return adapters.read_adapter(written.published.path, written.published.manifest_sha256)


def assert_same(first: WrittenStep, second: WrittenStep) -> None:
    a, b = weights(first), weights(second)
    assert a.keys() == b.keys()
    for name in a:
        torch.testing.assert_close(a[name], b[name], atol=1e-7, rtol=0)


def optimizer_state(written: WrittenStep) -> dict[str, object]:
    state: dict[str, object] = torch.load(written.checkpoint / STATE, weights_only=True)["optimizer"]
    return state


def test_a_trainer_killed_in_the_middle_of_a_step_resumes_to_the_same_numbers(tiny_base: Path, tmp_path: Path) -> None:
    straight = core(tiny_base, tmp_path / "straight")
    straight.go_to(BASE)
    one_step(straight, 1)
    expected_metrics, expected = one_step(straight, 2)

    child = subprocess.Popen(
        [sys.executable, "-m", "tests.trainer.training_child", str(tiny_base), str(tmp_path / "killed")],
        cwd=ROOT,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    with child:
        assert child.stdout is not None
        try:
            path, digest = child.stdout.readline().split()
            assert child.stdout.readline() == "half way\n"
        finally:
            child.kill()
    assert child.returncode == -9

    resumed = core(tiny_base, tmp_path / "killed")
    assert resumed.go_to(StartVersion("v1", Path(path), digest))
    found_metrics, found = one_step(resumed, 2)
    assert_same(found, expected)
    assert found_metrics == pytest.approx(expected_metrics, abs=1e-6)
    torch.testing.assert_close(optimizer_state(found), optimizer_state(expected), atol=1e-9, rtol=1e-6)


def test_without_its_checkpoint_a_version_is_gone_on_from_with_a_fresh_optimizer_and_says_so(
    tiny_base: Path, tmp_path: Path
) -> None:
    trainer = core(tiny_base, tmp_path)
    assert trainer.go_to(BASE)
    _, first = one_step(trainer, 1)
    _, straight = one_step(trainer, 2)
    for path in first.checkpoint.iterdir():
        path.unlink()
    first.checkpoint.rmdir()
    assert not trainer.go_to(start(first, 1))
    _, again = one_step(trainer, 2)
    assert any(not torch.equal(weights(again)[name], tensor) for name, tensor in weights(straight).items())


def test_going_back_to_an_earlier_version_brings_its_optimizer_state_back(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, first = one_step(trainer, 1)
    _, second = one_step(trainer, 2)
    one_step(trainer, 3)
    assert trainer.go_to(start(first, 1))
    _, again = one_step(trainer, 2)
    assert_same(again, second)
    trainer.go_to(BASE)
    _, first_again = one_step(trainer, 1)
    assert_same(first_again, first)


def test_a_damaged_checkpoint_is_told_and_not_used(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, first = one_step(trainer, 1)
    trainer.go_to(BASE)
    with (first.checkpoint / STATE).open("ab") as file:
        file.write(b"x")
    with pytest.raises(CheckpointInvalid, match=r"damaged.*fresh optimizer"):
        trainer.go_to(start(first, 1))
    (first.checkpoint / STATE).unlink()
    with pytest.raises(CheckpointInvalid, match="cannot be read"):
        trainer.go_to(start(first, 1))


def test_a_checkpoint_of_other_parameters_is_refused(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, first = one_step(trainer, 1)
    other = core(tiny_base, tmp_path, target=["q_proj"])
    with pytest.raises(AdapterInvalid, match=r"trainer\.target"):
        other.go_to(start(first, 1))
    with pytest.raises(CheckpointInvalid, match="other parameters"):
        checkpoint.load_checkpoint(first.checkpoint, other._optimizer)


def test_a_version_of_another_scale_is_not_gone_on_from(tiny_base: Path, tmp_path: Path) -> None:
    """Its weights fit, and would mean another model than the one that the engine serves."""
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    _, first = one_step(trainer, 1)
    with pytest.raises(AdapterInvalid, match=r"with alpha 8, and trainer\.alpha is 16"):
        core(tiny_base, tmp_path, alpha=16.0).go_to(start(first, 1))


def test_random_numbers_go_on_where_they_were(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    torch.manual_seed(123)
    _, first = one_step(trainer, 1)
    expected = torch.rand(3)
    trainer.go_to(BASE)
    trainer.go_to(start(first, 1))
    assert torch.equal(torch.rand(3), expected)


def test_random_numbers_of_the_base_are_those_of_the_seed(tiny_base: Path, tmp_path: Path) -> None:
    drawn = []
    for before in (1, 2):
        trainer = core(tiny_base, tmp_path)
        torch.manual_seed(before)
        trainer.go_to(BASE)
        drawn.append(torch.rand(3))
    assert torch.equal(*drawn)


def test_a_step_makes_the_better_runs_likelier_and_the_worse_less(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path, lr=1e-3, warmup_steps=0)
    trainer.go_to(BASE)
    given = rows(1)

    def mean_logprobs() -> dict[str, float]:
        found: dict[str, float] = {}
        for one in plan_update(trainer.policy, given, trainer._settings).packs:
            logprobs, _ = pack_logprobs(trainer.policy, one, gather_tokens(one, given, trainer.policy.device), 100)
            parts = torch.split(logprobs.detach(), [given[index].row.trained_tokens for index in one.rows])
            found |= {given[i].row.trajectory_id: float(part.mean()) for i, part in zip(one.rows, parts, strict=True)}
        return found

    before = mean_logprobs()
    aligned = [
        WeightedRow(trained_row_like(one, behaviour=before[one.row.trajectory_id]), one.advantage, one.rl_weight)
        for one in given
    ]
    train_on(trainer, aligned)
    after = mean_logprobs()
    change = {name: after[name] - before[name] for name in before}
    assert np.mean([change[f"t{i}"] for i in range(4)]) > 0 > np.mean([change[f"t{i}"] for i in range(4, 8)])


def trained_row_like(one: WeightedRow, behaviour: float) -> Row:
    row = one.row
    return trained_row(
        row.token_ids.tolist(), np.flatnonzero(row.trained).tolist(), 0.9, row.trajectory_id, behaviour=behaviour
    )


@pytest.mark.parametrize("loss", ["grpo", "cispo"])
def test_how_rows_are_packed_does_not_change_the_update(tiny_base: Path, tmp_path: Path, loss: str) -> None:
    found = []
    for budget, chunk in ((64, 1000), (4096, 3)):
        trainer = core(tiny_base, tmp_path / str(budget), token_budget=budget, logprob_chunk=chunk, loss=loss)
        trainer.go_to(BASE)
        found.append(one_step(trainer, 1))
    (first_metrics, first), (second_metrics, second) = found
    for name, tensor in weights(first).items():
        # AdamW's first step is lr·sign(gradient) where the gradient is not tiny
        torch.testing.assert_close(weights(second)[name], tensor, atol=2e-5, rtol=0)
    assert first_metrics["forward_tokens"] > second_metrics["forward_tokens"]
    for name in ("loss", "kl_engine", "logprob_gap", "entropy", "ratio_mean", "clip_fraction", "grad_norm"):
        assert second_metrics[name] == pytest.approx(first_metrics[name], rel=1e-4, abs=1e-6), name


@pytest.mark.parametrize("loss", ["grpo", pytest.param("cispo", marks=pytest.mark.long)])
def test_the_policy_learns_what_is_rewarded(tiny_base: Path, tmp_path: Path, loss: str) -> None:
    """Groups of eight say three tokens each; the reward is the share below 16. Chance is 1 in 4."""
    trainer = core(tiny_base, tmp_path, lr=3e-2, warmup_steps=0, loss=loss, token_budget=512)
    trainer.go_to(BASE)
    prompts = [random_ids(20, seed) for seed in range(4)]
    means = []
    for step in range(15):
        rewards: dict[str, float] = {}
        made = []
        for group, prompt in enumerate(prompts):
            runs = [sample(trainer, prompt, 3) for _ in range(8)]
            scores = {f"{group} {i}": float((row.token_ids[-3:] < 16).mean()) for i, row in enumerate(runs)}
            rewards |= scores
            advantages = group_advantages(scores) or {}
            made += [
                WeightedRow(replace(row, trajectory_id=name), advantages[name], 1 / (3 * 32))
                for name, row in zip(scores, runs, strict=True)
                if name in advantages
            ]
        means.append(np.mean(list(rewards.values())))
        if made:
            train_on(trainer, made, step + 1)
            trainer.became(f"v{step + 1}")
    assert np.mean(means[:2]) < 0.4
    assert np.mean(means[-4:]) > 0.65  # about as far as logits of so small a head can go


@torch.no_grad()
def sample(trainer: TrainerCore, prompt: list[int], length: int) -> Row:
    ids, logprobs = list(prompt), []
    for _ in range(length):
        (one,) = pack([np.array(ids, np.int32)], 100)
        distribution = full_logprobs(trainer.policy.hidden(one)[-1:], trainer.policy.head)[0]
        ids.append(int(torch.multinomial(distribution.exp(), 1)))
        logprobs.append(float(distribution[ids[-1]]))
    row = trained_row(ids, list(range(len(prompt), len(ids))))
    row.behaviour[row.trained] = logprobs
    return row


def test_masked_tokens_have_no_gradient(tiny_base: Path, tmp_path: Path) -> None:
    """Another token id at a masked, last position changes nothing at all."""
    results = []
    for last in (5, 6):
        trainer = core(tiny_base, tmp_path / str(last))
        trainer.go_to(BASE)
        ids = random_ids(20, 1)
        row = trained_row([*ids, last], list(range(10, 20)))
        trainer._optimizer.zero()
        metrics, written = train_on(trainer, [WeightedRow(row, 1.0, 0.1)])
        results.append((metrics, weights(written)))
    assert results[0][0] == results[1][0]
    assert all(torch.equal(results[0][1][name], results[1][1][name]) for name in results[0][1])


def test_substeps_are_optimizer_steps_one_after_the_other(tiny_base: Path, tmp_path: Path) -> None:
    one, other = [replace(row, substep=0) for row in rows(1)], [replace(row, substep=1) for row in rows(2)]
    together = core(tiny_base, tmp_path / "together", warmup_steps=0)
    together.go_to(BASE)
    metrics, written = train_on(together, [*one, *other])
    apart = core(tiny_base, tmp_path / "apart", warmup_steps=0)
    apart.go_to(BASE)
    first, _ = one_step(apart, 1)
    second, last = one_step(apart, 2)
    assert all(torch.equal(weights(written)[name], tensor) for name, tensor in weights(last).items())
    assert metrics["trained_tokens"] == first["trained_tokens"] + second["trained_tokens"]
    assert metrics["ratio_max"] == max(first["ratio_max"], second["ratio_max"])
    assert metrics["loss"] == (first["loss"] + second["loss"]) / 2


def test_a_later_substep_that_fails_leaves_nothing_behind(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    bad = trained_row(random_ids(20, 1), [10, 11], name="guilty", behaviour=float("nan"))
    with pytest.raises(StepFailed, match="guilty"):
        train_on(trainer, [*rows(1), WeightedRow(bad, 1.0, 0.1, 1)])
    assert not (tmp_path / "adapters").exists()
    trainer.go_to(BASE)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())


def test_a_loss_that_is_not_finite_changes_nothing_and_names_the_trajectory(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    bad = trained_row(random_ids(20, 1), [10, 11], name="guilty", behaviour=float("nan"))
    with pytest.raises(StepFailed, match="guilty"):
        train_on(trainer, [*rows(1), WeightedRow(bad, 1.0, 0.1)])
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())
    assert not (tmp_path / "adapters").exists()
    assert trainer.go_to(BASE)
    one_step(trainer, 1)


def test_a_gradient_that_is_not_finite_changes_nothing(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    huge = [WeightedRow(one.row, 1e38, 1e30) for one in rows(1)]
    with pytest.raises(StepFailed, match=r"not finite|norm is"):
        train_on(trainer, huge)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())


def test_a_stopped_step_makes_no_update(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    answers = iter([False, False, True])
    with pytest.raises(StepInterrupted):
        one_step(trainer, 1, lambda: next(answers))
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())


def test_the_distance_to_the_engine_counts_only_what_the_parent_version_sampled(
    tiny_base: Path, tmp_path: Path
) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    old = trained_row(random_ids(20, 1), [10, 11], name="old", behaviour=-50.0)
    old.age[old.trained] = 1
    fresh = trained_row(random_ids(20, 2), [10, 11], name="fresh", behaviour=-4.0)
    metrics, _ = train_on(trainer, [WeightedRow(old, -0.1, 0.1), WeightedRow(fresh, 0.1, 0.1)])
    assert 0 < metrics["logprob_gap"] <= metrics["logprob_gap_max"] < 10
    assert metrics["ratio_max"] > 1e6


def held_back(coefficient: float) -> list[WeightedRow]:
    return [replace(one, kl_weight=np.asarray(one.rl_weight) * coefficient) for one in rows(1)]


def test_kl_to_the_base_holds_the_policy_back(tiny_base: Path, tmp_path: Path) -> None:
    distances = []
    for coefficient in (0.0, 5.0):
        trainer = core(tiny_base, tmp_path / str(coefficient), lr=3e-3, warmup_steps=0)
        trainer.go_to(BASE)
        for _ in range(6):
            metrics, _ = train_on(trainer, held_back(coefficient))
        distances.append(train_on(trainer, held_back(1e-9))[0]["kl_base"])
        assert ("kl_base" in metrics) == (coefficient > 0)
    assert distances[1] < distances[0] / 2


def test_the_probe_tells_new_from_parent_by_their_own_logprobs(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path, warmup_steps=0)
    trainer.go_to(BASE)
    metrics, written = one_step(trainer, 1)
    found = json.loads((written.published.path / "probe.json").read_text())
    assert len(found["contexts"]) == probe.CONTEXTS
    assert found["separation"] == metrics["probe_separation"] > 0.01
    assert len({tuple(context["prompt_token_ids"]) for context in found["contexts"]}) == probe.CONTEXTS
    for version, key in ((start(written, 1), "new"), (BASE, "parent")):
        trainer.go_to(version)
        for context in found["contexts"]:
            (one,) = pack([np.array(context["prompt_token_ids"], np.int32)], 100)
            with torch.no_grad():
                logprobs = full_logprobs(trainer.policy.hidden(one)[-1:], trainer.policy.head)[0]
            np.testing.assert_allclose(logprobs[context["token_ids"]], context[key], atol=1e-5)
    differences = [np.abs(np.subtract(c["new"], c["parent"])).mean() for c in found["contexts"]]
    assert found["separation"] == pytest.approx(np.mean(differences))
    assert differences == sorted(differences, reverse=True)


def test_a_step_on_a_single_short_row_still_has_a_probe(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    row = trained_row([5, 6], [1])
    _, written = train_on(trainer, [WeightedRow(row, 1.0, 1.0)])
    (context,) = json.loads((written.published.path / "probe.json").read_text())["contexts"]
    assert context["prompt_token_ids"] == [5]


def test_a_version_that_cannot_be_checkpointed_is_not_published(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = TrainerCore(
        tiny_base,
        TrainerSettings(device="cpu", rank=4, **PLAIN),
        TrainerFolders(tmp_path / "adapters", tmp_path / "file" / "under"),
    )
    (tmp_path / "file").write_text("in the way")
    trainer.go_to(BASE)
    with pytest.raises(VersionNotWritten, match=r"version 1 .*file"):
        one_step(trainer, 1)
    assert list((tmp_path / "adapters").iterdir()) == []


@given(
    st.integers(0, 50),
    st.integers(1, 200),
    st.sampled_from(["constant", "linear", "cosine"]),
    st.sampled_from([0.0, 0.25, None]),
)
def test_the_learning_rate_rises_then_never_rises_again(
    warmup: int, steps: int, schedule: str, lowest: float | None
) -> None:
    settings = TrainerSettings(lr=1.0, warmup_steps=warmup, schedule=schedule, schedule_steps=steps, lr_min=lowest)
    rates = [learning_rate(settings, done) for done in range(300)]
    assert all(0 <= rate <= 1 for rate in rates)
    assert rates[: warmup + 1] == sorted(rates[: warmup + 1])
    assert rates[warmup:] == sorted(rates[warmup:], reverse=True)
    assert rates[warmup] == 1.0
    ends = settings.schedule_end
    assert (ends is None) == (schedule == "constant" or lowest != 0)
    if schedule != "constant":
        assert rates[warmup + steps :] == [0.1 if lowest is None else lowest] * (300 - warmup - steps)
    assert [rate == 0 for rate in rates] == [ends is not None and done >= ends for done in range(300)]
    assert [settings.explain_ended_schedule(done) is not None for done in range(300)] == [rate == 0 for rate in rates]


def test_a_schedule_does_not_raise_the_rate() -> None:
    with pytest.raises(ValidationError, match=r"lr_min \(0\.002\) is above lr \(0\.001\)"):
        TrainerSettings(lr=1e-3, lr_min=2e-3)
