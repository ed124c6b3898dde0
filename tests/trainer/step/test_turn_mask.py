"""Turns that the engine computed otherwise: they are not trained on, are named, and too many of them are an alarm."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from recorder.queue.training import steps
from recorder.states import GroupState, StepState
from recorder.store import ledger
from recorder.store.database import Project
from tests.trainer.passes import row_logprobs
from tests.trainer.step.left import codes, group_state
from tests.trainer.training_child import BASE, core, rows
from tests.trainer.world import PROJECT, World
from trainer.batch.weights import WeightedRow
from trainer.errors import EngineMismatch
from trainer.objectives.group_rows import UntrainedChoice
from trainer.policy import update
from trainer.step.core import TrainerCore
from trainer.step.engine_gap import explain_masked
from trainer.step.state.results import PhaseSeconds, TrainedStep

pytestmark = pytest.mark.slow

CODE = UntrainedChoice.ENGINE_MISMATCH


def step(trainer: TrainerCore, given: list[WeightedRow]) -> TrainedStep:
    return trainer.step(given, 1e-2, lambda: False, PhaseSeconds())


def as_sampled(trainer: TrainerCore, shifts: dict[str, float], substeps: int = 1) -> list[WeightedRow]:
    """Rows with the logprobs that the trainer computes, but for those of some trajectories, shifted by nats."""
    given = rows(1)
    with torch.no_grad():
        logprobs = row_logprobs(trainer.policy, [one.row for one in given], trainer._settings, 64).numpy()
    ends = np.cumsum([one.row.trained_tokens for one in given])
    made = []
    for number, (one, own) in enumerate(zip(given, np.split(logprobs, ends[:-1]), strict=True)):
        behaviour = one.row.behaviour.copy()
        behaviour[one.row.trained] = own + shifts.get(one.row.trajectory_id, 0.0)
        made.append(replace(one, row=replace(one.row, behaviour=behaviour), substep=number % substeps))
    return made


@pytest.mark.parametrize("substeps", [1, 2])
def test_a_step_is_the_one_without_the_masked_turns(tiny_base: Path, tmp_path: Path, substeps: int) -> None:
    masking = core(tiny_base, tmp_path / "a", warmup_steps=0, mask_ratio=1.2, substeps=substeps)
    plain = core(tiny_base, tmp_path / "b", warmup_steps=0, substeps=substeps)
    masking.go_to(BASE)
    plain.go_to(BASE)
    given = as_sampled(masking, {"t1": 0.3, "t6": -0.3, "t2": 0.1}, substeps)
    found = step(masking, given)
    expected = step(plain, [one for one in given if one.row.trajectory_id not in ("t1", "t6")])
    assert {turn.trajectory_id for turn in found.mask.masked} == {"t1", "t6"}
    assert (found.mask.compared, found.metrics["engine_mismatch"]) == (8, 2 / 8)
    for name, tensor in plain.policy.state().items():
        torch.testing.assert_close(masking.policy.state()[name], tensor, atol=1e-7, rtol=0)
    assert "engine_mismatch" not in expected.metrics
    for name in ("loss", "grad_norm", "fresh_tokens", "logprob_gap", "logprob_gap_max", "trained_tokens", "kl_engine"):
        assert found.metrics[name] == pytest.approx(expected.metrics[name], rel=1e-4, abs=1e-9), name
    assert found.gaps.keys() == expected.gaps.keys()


def test_where_every_turn_is_masked_nothing_changes_and_the_next_step_teaches(tiny_base: Path, tmp_path: Path) -> None:
    trainer = core(tiny_base, tmp_path, warmup_steps=0, mask_ratio=1.2)
    trainer.go_to(BASE)
    before = trainer.policy.state()
    given = as_sampled(trainer, {f"t{number}": 1.0 for number in range(8)})
    with pytest.raises(EngineMismatch, match=r"all 8 turns.*trainer\.mask_ratio.*hone doctor"):
        step(trainer, given)
    assert all(torch.equal(before[name], tensor) for name, tensor in trainer.policy.state().items())
    old = [replace(one, row=replace(one.row, age=np.where(one.row.trained, 1, -1).astype(np.int32))) for one in given]
    trainer.go_to(BASE)
    assert step(trainer, old).changed  # drift is no mismatch


def test_without_the_setting_the_parent_is_not_measured(
    tiny_base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = core(tiny_base, tmp_path, warmup_steps=0)
    trainer.go_to(BASE)

    def measured(*given: Any) -> None:
        raise AssertionError("a pass that nobody needs")

    monkeypatch.setattr(update, "measure_parent", measured)
    step(trainer, rows(1))


def faulty(world: World, is_faulty: Callable[[int], bool]) -> None:
    """From now on the engine's logprobs of the answers with these numbers are off."""
    own, numbers = world._engine.logprobs, itertools.count()

    def logprobs(path: str | None, prompt: Sequence[int], sampled: Sequence[int], temperature: float) -> list[float]:
        off = 0.7 * is_faulty(next(numbers))
        return [value - off for value in own(path, prompt, sampled, temperature)]

    world._engine.logprobs = logprobs  # type: ignore[method-assign]


async def test_masked_turns_are_named_and_many_of_them_are_told(world: World) -> None:
    faulty(world, {1, 4, 5, 8, 9, 10, 11}.__contains__)  # of t0 the second turn, all of t2; all of the group `lost`
    group_id = await world.group("kept", [1.0, 0.5, 0.0, 0.2], seed=1)
    lost = await world.group("lost", [1.0, 0.0], seed=2)
    async with await world.trainer(mask_ratio=1.2) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
    assert report.version is not None
    assert report.metrics["engine_mismatch"] == pytest.approx(7 / 12)
    assert report.metrics["trained_tokens"] == 5 * 6
    assert report.metrics["groups_trained"] == 1
    assert (report.trained, report.left_out, report.masked) == (3, {CODE: 3}, {CODE: 1})
    assert "7 of 12 turns (58 %)" in str(report.notice)
    assert await group_state(world, group_id) == (GroupState.TRIED, None)
    assert await group_state(world, lost) == (GroupState.LEFT_OUT, CODE)
    assert report.step is not None
    assert list(await steps.list_step_groups(world.store, report.step.id)) == [group_id]
    project = Project(world.store, PROJECT)
    assert await ledger.count_codes(project, "trajectory") == {CODE: 3}
    assert await ledger.count_codes(project, "call") == {CODE: 1}
    await world.promote(report.version)
    assert await ledger.count_codes(project, "trajectory") == {CODE: 3, ledger.TRAINED: 3}
    assert await group_state(world, group_id) == (GroupState.TRAINED, None)
    assert await group_state(world, lost) == (GroupState.LEFT_OUT, CODE)


async def test_a_step_of_masked_turns_alone_makes_no_version_and_says_why(world: World) -> None:
    faulty(world, lambda number: True)
    group_id = await world.group("g", [1.0, 0.0])
    async with await world.trainer(mask_ratio=1.2) as trainer:
        report = await trainer.train_once(await world.claim(trainer))
        assert (report.version, report.code, report.left_out) == (None, CODE, {CODE: 2})
        assert "trainer.mask_ratio" in str(report.reason)
        assert report.is_fault
        assert await group_state(world, group_id) == (GroupState.LEFT_OUT, CODE)
        assert CODE in await codes(world, "group", group_id)
        (newest,) = await steps.list_steps(world.store, world.alias.id)
        assert (newest.state, newest.metrics["engine_mismatch"]) == (StepState.ABANDONED, 1.0)


def test_few_masked_turns_are_no_alarm() -> None:
    assert explain_masked(0, 0, 1.2) is None
    assert explain_masked(5, 100, 1.2) is None
    assert "6 of 100 turns (6 %)" in str(explain_masked(6, 100, 1.2))
