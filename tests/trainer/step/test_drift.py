"""The drift set of an alias: no step trains on it, and each version is compared on it with others, exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor
from transformers import AutoModelForCausalLM

from recorder.queue.training import drift_set
from recorder.queue.training.drift_set import DRIFT_SET, SHARE
from recorder.queue.training.steps import list_steps
from recorder.registry.kept_versions import DAY_S
from recorder.states import GroupState, StepState
from recorder.store.schema import step_trajectories
from recorder.store.schema import versions as version_rows
from tests.recorder.rows import Rows
from tests.trainer.building import call, choice, random_ids, trained_row, trajectory
from tests.trainer.families import save_family
from tests.trainer.step.left import codes, folders, group_state
from tests.trainer.training_child import BASE, core, one_step, rows, start, train_on
from tests.trainer.world import World
from trainer.artifacts import adapters
from trainer.batch.row_builder import Row
from trainer.demonstrations.fit_plan import FitPlan
from trainer.objectives.imitate_rows import Demonstration
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.drift.limits import KL_PARENT_MAX, explain_refusal
from trainer.step.drift.request import DriftRequest
from trainer.step.drift.set_reader import context_rows
from trainer.step.fits.job import FitJob
from trainer.step.fits.objectives import ImitateFit
from trainer.step.state.results import PhaseSeconds, TrainedStep

pytestmark = pytest.mark.slow


async def members(world: World) -> list[str]:
    assert world.alias.base_fingerprint is not None
    return await drift_set.list_members(world.store, world.alias.id, world.alias.base_fingerprint, 100)


async def test_the_set_is_drawn_before_a_step_and_not_trained_on(world: World) -> None:
    for number in range(SHARE):
        await world.group(f"g{number}", [1.0, 0.0], seed=number)
    async with await world.trainer(drift_trajectories=1) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert report.version is not None
    [member] = await members(world)
    assert report.left_out == {DRIFT_SET: 1}
    assert report.trained == 2 * SHARE - 1
    taught = {row.trajectory_id for row in await Rows(world.store).all(step_trajectories)}
    assert len(taught) == 2 * SHARE - 1
    assert member not in taught
    assert set(await codes(world, "trajectory", member)) == {DRIFT_SET}


def answers() -> list[Row]:
    """Three rows of a drift set: two answers in the first, and a beginning that two share."""
    first, beginning = random_ids(60, 1), random_ids(20, 2)
    return [
        trained_row(first, [*range(20, 26), *range(40, 47)], name="a"),
        trained_row(beginning + random_ids(9, 3), list(range(21, 29)), name="b"),
        trained_row(beginning + random_ids(5, 4), [24], name="c"),
    ]


def logprobs(base: Path, state: Mapping[str, Tensor], given: Sequence[Row]) -> Tensor:
    """By plain transformers in float64, with a LoRA added to the weights: at every position before a sampled token."""
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float64)
    weights = dict(model.named_parameters())
    for name, a in state.items():
        module, found, _ = name.partition(".lora_A.")
        if found:
            weight = weights[f"{module.removeprefix('base_model.model.')}.weight"]
            weight.data += 8.0 / 4 * state[f"{module}.lora_B.weight"].double() @ a.double()
    found_at = []
    for row in given:
        with torch.no_grad():
            logits = model(input_ids=torch.from_numpy(row.token_ids.astype("int64"))[None]).logits[0]
        found_at.append(torch.log_softmax(logits[[at - 1 for at in row.trained.nonzero()[0]]], -1))
    return torch.cat(found_at)


def divergence(p: Tensor, q: Tensor) -> float:
    return float((p.exp() * (p - q)).sum(-1).mean())


def drifted(trainer: TrainerCore, request: DriftRequest | None, step: int = 3) -> TrainedStep:
    return trainer.step(rows(step), 1e-2, lambda: False, PhaseSeconds(), request)


@pytest.mark.parametrize("head", [False, True], ids=["layers", "head"])
def test_the_divergences_are_those_of_plain_transformers(tiny_base: Path, tmp_path: Path, head: bool) -> None:
    """Logits come in chunks of three positions, and rows in several passes. A head may have a LoRA too."""
    base, changes = tiny_base, dict[str, Any](logprob_chunk=3)
    if head:
        base, changes["target"] = tmp_path / "qwen3", ["lm_head", "q_proj"]
        save_family("qwen3", base)
    trainer = core(base, tmp_path / "data", **changes)
    trainer.go_to(BASE)
    week, day = one_step(trainer, 1)[1], one_step(trainer, 2)[1]
    parent = trainer.policy.state()
    earlier = {"day": start(day, 2), "week": start(week, 1)}
    metrics = drifted(trainer, DriftRequest(answers(), earlier)).metrics
    new = logprobs(base, trainer.policy.state(), answers())
    states = {name: adapters.read_adapter(one.published.path, None) for name, one in (("day", day), ("week", week))}
    for name, state in {"base": {}, "parent": parent, **states}.items():
        wanted = divergence(new, logprobs(base, state, answers()))
        assert wanted > 1e-5
        assert metrics[f"drift.kl_{name}"] == pytest.approx(wanted, rel=1e-3)
    assert metrics["drift.kl_day"] == metrics["drift.kl_parent"]
    assert metrics["drift.entropy"] == pytest.approx(-float((new.exp() * new).sum(-1).mean()), rel=1e-5)
    assert trainer.policy.adapts_head == head


def test_a_measured_step_is_the_same_step(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    plain, written = train_on(trainer, rows(1))
    trainer.go_to(BASE)
    metrics = dict(drifted(trainer, DriftRequest(answers()), 1).metrics)
    assert {name for name in metrics if name not in plain} == {"drift.kl_base", "drift.kl_parent", "drift.entropy"}
    trainer.go_to(BASE)
    trained = trainer.step(rows(1), plain["lr"], lambda: False, PhaseSeconds(), DriftRequest(answers()))
    assert {name: trained.metrics[name] for name in plain} == plain
    assert all(torch.equal(trainer.policy.state()[name], one) for name, one in
               adapters.read_adapter(written.published.path, None).items())  # fmt: skip


def test_a_version_whose_files_are_damaged_is_not_compared_with(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path)
    trainer.go_to(BASE)
    written = one_step(trainer, 1)[1]
    (written.published.path / adapters.WEIGHTS).write_bytes(b"damaged")
    metrics = drifted(trainer, DriftRequest(answers(), {"day": start(written, 1)})).metrics
    assert "drift.kl_parent" in metrics
    assert "drift.kl_day" not in metrics


def test_a_members_rows_are_its_recorded_answers_cut_after_so_many_tokens() -> None:
    view = trajectory(
        call(1, [1, 2, 3], choice([4, 5])),
        call(2, [1, 2, 3, 4, 5, 6], choice([7, 8])),
        call(3, [9, 9], choice([10], reason="redacted")),
        call(4, [9, 8], choice([11, 12])),
        call(5, [9, 7], choice([13]), base_fingerprint="another"),
    )
    whole = context_rows(view, "base", 100)
    assert [(list(row.token_ids), list(row.token_ids[row.trained])) for row in whole] == [
        ([1, 2, 3, 4, 5, 6, 7, 8], [4, 5, 7, 8]), ([9, 8, 11, 12], [11, 12])
    ]  # fmt: skip
    assert [list(row.token_ids) for row in context_rows(view, "base", 10)] == [[1, 2, 3, 4, 5, 6, 7, 8]]
    assert [list(row.token_ids[row.trained]) for row in context_rows(view, "base", 11)] == [[4, 5, 7, 8], [11]]
    assert context_rows(view, "base", 3) == []


async def test_a_step_is_measured_on_the_set_and_the_store_has_the_figures(world: World) -> None:
    for number in range(SHARE):
        await world.group(f"g{number}", [1.0, 0.0], seed=number)
    async with await world.trainer(drift_trajectories=1) as trainer:
        first = await trainer.train_once(await world.claim(trainer))
        assert first.version is not None
        assert first.metrics["drift.kl_base"] == first.metrics["drift.kl_parent"] > 0
        assert (first.metrics["drift.trajectories"], first.metrics["drift.tokens"]) == (1, 12)
        await world.promote(first.version)
        await Rows(world.store).set(version_rows, first.version.id, created_at=first.version.created_at - 2 * DAY_S)
        await world.group("next", [1.0, 0.0], seed=9)
        second = await trainer.train_once(await world.claim(trainer))
    assert second.metrics["drift.kl_day"] == second.metrics["drift.kl_parent"]
    assert second.metrics["drift.kl_base"] > second.metrics["drift.kl_parent"]
    assert "drift.kl_week" not in second.metrics
    assert second.seconds["drift"] > 0
    stored = (await list_steps(world.store, world.alias.id))[0].figures
    assert {name for name in stored if name.startswith("drift.")} == {
        "drift.kl_base", "drift.kl_parent", "drift.kl_day", "drift.entropy", "drift.trajectories", "drift.tokens"
    }  # fmt: skip


def test_an_update_that_goes_too_far_is_halved_once_and_the_moments_stay(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path / "free")
    trainer.go_to(BASE)
    parent = trainer.policy.state()
    whole = drifted(trainer, DriftRequest(answers()), 1).metrics
    new, moments = trainer.policy.state(), trainer._optimizer.state()["adamw"]
    bound = whole["drift.kl_parent"] / 2
    limited = core(tiny_base, tmp_path / "limited", kl_parent_max=bound, drift_trajectories=1)
    limited.go_to(BASE)
    trained = drifted(limited, DriftRequest(answers()), 1)
    half = trained.metrics
    for name, weights in limited.policy.state().items():
        torch.testing.assert_close(weights, (parent[name] + new[name]) / 2, rtol=0, atol=1e-7)
    for number, state in limited._optimizer.state()["adamw"].items():
        assert all(torch.equal(state[name], moments[number][name]) for name in ("exp_avg", "exp_avg_sq"))
    assert half["drift.kl_parent_whole"] == whole["drift.kl_parent"]
    assert half["drift.kl_parent"] < bound  # a quarter, as far as it is quadratic
    assert half["drift.kl_parent"] == half["drift.kl_base"]
    assert explain_refusal(half, limited._settings) is None
    assert half["probe_separation"] < whole["probe_separation"]  # the probe is of the half, which an engine serves


def test_a_fit_on_demonstrations_is_measured_and_not_limited(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path, kl_parent_max=1e-9)
    trainer.go_to(BASE)
    demonstrations = [Demonstration(row.trajectory_id, "file", "a", "a", [row]) for row in answers()]
    job = FitJob(FitPlan(demonstrations, []), ImitateFit(), trainer._settings.sft.model_copy(update={"epochs": 1}))
    trained = trainer.fit(job, 1e-2, lambda: False, PhaseSeconds(), DriftRequest(answers()))
    assert trained.metrics["drift.kl_base"] == trained.metrics["drift.kl_parent"] > 1e-4
    assert "drift.kl_parent_whole" not in trained.metrics
    assert trained.metrics["epoch"] == 1


def test_half_of_an_update_that_is_still_too_far_is_refused_with_the_numbers() -> None:
    settings = TrainerSettings(kl_parent_max=0.01, drift_trajectories=1)
    metrics = {"drift.kl_parent": 0.0123, "drift.kl_parent_whole": 0.0456}
    reason = str(explain_refusal(metrics, settings))
    assert all(number in reason for number in ("0.0123", "0.0456", "0.01"))
    assert explain_refusal({"drift.kl_parent": float("nan"), "drift.kl_parent_whole": 1.0}, settings) is not None
    assert explain_refusal({}, settings) is None  # no set was drawn yet
    assert explain_refusal(metrics, TrainerSettings()) is None
    with pytest.raises(ValidationError, match="drift_trajectories"):
        TrainerSettings(kl_parent_max=0.01, drift_trajectories=0)
    with pytest.raises(ValidationError, match="A training service has none: remove it"):
        TrainerSettings(kl_base_max=0.01, backend="tinker")


async def test_a_refused_step_makes_no_version_and_gives_its_groups_back_until_they_are_excluded(world: World) -> None:
    ids = [await world.group(f"g{number}", [1.0, 0.0], seed=number) for number in range(SHARE)]
    async with await world.trainer(drift_trajectories=1, kl_parent_max=1e-9, max_tries=2) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (report.version, report.code, report.is_fault) == (None, KL_PARENT_MAX, True)
        assert "trainer.kl_parent_max" in str(report.reason)
        assert [await group_state(world, id_) for id_ in ids] == [(GroupState.SCORED, None)] * SHARE
        assert folders(world) == []
        [step] = await list_steps(world.store, world.alias.id)
        assert step.state is StepState.ABANDONED
        assert step.figures["drift.kl_parent_whole"] > step.figures["drift.kl_parent"] > 1e-9
        again = await trainer.train_once(await world.claim(trainer))
    assert again.version is None
    assert again.left_out == {DRIFT_SET: 1, KL_PARENT_MAX: 2 * SHARE - 1}
    assert [await group_state(world, id_) for id_ in ids] == [(GroupState.LEFT_OUT, KL_PARENT_MAX)] * SHARE
    assert (await world.live()).number == 0
