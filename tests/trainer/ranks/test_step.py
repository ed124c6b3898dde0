"""Steps of several processes are one process's steps, whatever each of them computes, and whatever goes wrong.

A start of a process costs several CPU seconds, so `make test` starts one group for all that it compares.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
import torch
from torch.distributed.tensor import DTensor

from tests.trainer.building import random_ids
from tests.trainer.families import save_family
from tests.trainer.ranks.faulty_worker import FAULT
from tests.trainer.ranks.groups import (
    ONE_RANK,
    Outcome,
    assert_equal,
    first_step,
    joined,
    opened,
    step_with_pairs,
    two_steps,
    uneven_rows,
    with_bad_row,
)
from tests.trainer.training_child import BASE, train_on
from trainer.batch.row_builder import Row
from trainer.batch.weights import Lesson, WeightedRow
from trainer.errors import StepFailed, StepInterrupted
from trainer.quantization.layers import is_quantized
from trainer.ranks.base_shares import is_shared
from trainer.ranks.group import Ranks
from trainer.settings import HindsightSettings, ObjectiveSettings
from trainer.step.core import TrainerCore
from trainer.step.drift.request import DriftRequest
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds

pytestmark = pytest.mark.slow

# Two optimizer steps, a KL pass in each pass, and chunks of the head whose number differs between ranks.
CHANGES: dict[str, Any] = {"kl_coef": 0.1, "logprob_chunk": 3}
Expected = Callable[..., Outcome]
SHARED = pytest.mark.parametrize("shard_base", [False, True], ids=["whole", "shared"])
long = pytest.mark.long


@pytest.fixture(scope="module")
def fault(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("fault") / "fault"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(FAULT, str(path))
        yield path


@pytest.fixture(scope="module", params=[2, pytest.param(3, marks=long)])
def ranks(request: pytest.FixtureRequest, fault: Path) -> Iterator[Ranks]:
    with joined(request.param) as group:
        yield group


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    """What one process computes, each case once."""
    known: dict[str, Outcome] = {}

    def compute(base: Path, **changes: Any) -> Outcome:
        key = f"{base} {changes}"
        if key not in known:
            with opened(base, tmp_path_factory.mktemp("one"), ONE_RANK, **changes) as core:
                known[key] = two_steps(core)
        return known[key]

    return compute


@SHARED
def test_two_steps_on_uneven_rows_are_one_processs(
    ranks: Ranks, expected: Expected, tiny_base: Path, tmp_path: Path, shard_base: bool
) -> None:
    """The second optimizer step of each has a single row, so that some ranks have no pass that counts."""
    with opened(tiny_base, tmp_path, ranks, shard_base=shard_base, **CHANGES) as core:
        assert is_shared(core.policy._causal) == shard_base
        assert_equal(two_steps(core), expected(tiny_base, **CHANGES))


@SHARED
def test_the_drift_that_several_processes_measure_is_one_processs(
    ranks: Ranks, tiny_base: Path, tmp_path: Path, shard_base: bool
) -> None:
    """Rows of a drift set whose chunks differ between ranks, one of which has a pass that does not count. The update is
    above its limit, so all ranks halve it and measure again.
    """
    measured, halves = [], []
    request = DriftRequest([one.row for one in uneven_rows(5)[:3]])
    for number, (one, shares) in enumerate(((ONE_RANK, False), (ranks, shard_base))):
        with opened(tiny_base, tmp_path / str(number), one, shard_base=shares, kl_parent_max=1e-9, **CHANGES) as core:
            core.go_to(BASE)
            trained = core.step(uneven_rows(1), 1e-2, lambda: False, PhaseSeconds(), request)
            measured.append({name: value for name, value in trained.metrics.items() if name.startswith("drift.")})
            halves.append(torch.cat([one.flatten() for one in core.policy.state().values()]))
    assert measured[0].keys() == {"drift.kl_base", "drift.kl_parent", "drift.kl_parent_whole", "drift.entropy"}
    assert measured[0]["drift.kl_parent"] < 0.5 * measured[0]["drift.kl_parent_whole"]
    assert measured[1] == pytest.approx(measured[0], rel=1e-4)
    assert (halves[1] - halves[0]).norm() <= 1e-6 * halves[0].norm()


@SHARED
def test_pairs_weigh_the_same_on_all_ranks(ranks: Ranks, tiny_base: Path, tmp_path: Path, shard_base: bool) -> None:
    """Each rank has the sums of some rows, by the weights in memory and by those of a version."""
    with opened(tiny_base, tmp_path / "reference", ONE_RANK) as core:
        reference = first_step(core).first
    found = []
    for number, (one, shares) in enumerate(((ONE_RANK, False), (ranks, shard_base))):
        with opened(tiny_base, tmp_path / str(number), one, shard_base=shares) as core:
            found.append(step_with_pairs(core, reference))
    assert found[0].metrics[0]["objective.prefer.margin"] != 0
    assert_equal(found[1], found[0])


@SHARED
def test_all_ranks_mask_the_same_turns(
    ranks: Ranks, expected: Expected, tiny_base: Path, tmp_path: Path, shard_base: bool
) -> None:
    """Engine and trainer differ as chance has it here, so some turns are masked and others are not."""
    with opened(tiny_base, tmp_path, ranks, shard_base=shard_base, mask_ratio=1.2) as core:
        found = two_steps(core)
    assert 0 < found.metrics[0]["engine_mismatch"] < 1
    assert_equal(found, expected(tiny_base, mask_ratio=1.2))


@SHARED
def test_all_ranks_give_the_same_advantages_by_each_teacher(
    ranks: Ranks, tiny_base: Path, tmp_path: Path, shard_base: bool
) -> None:
    """Passes without gradient by the parent, the base and the average of versions, in which some rank has nothing."""
    changes = {
        "objectives": [ObjectiveSettings(name="hindsight")],
        "hindsight": HindsightSettings(teacher="ema"),
        "mask_ratio": 100.0,
    }
    found = []
    for number, (one, shares) in enumerate(((ONE_RANK, False), (ranks, shard_base))):
        with opened(tiny_base, tmp_path / str(number), one, shard_base=shares, **changes) as core:
            found.append(two_steps(core, taught_rows))
    assert found[0].metrics[1]["objective.hindsight.clipped"] > 0
    # an advantage is a difference of two logprobs, whose rounding it keeps
    assert_equal(found[1], found[0], bound=1e-5)


def taught_rows(step: int) -> list[WeightedRow]:
    """The rows with a lesson each, by one teacher after the other."""
    teachers: tuple[Literal["parent", "base", "ema"], ...] = ("parent", "base", "ema")
    made = []
    for number, one in enumerate(uneven_rows(step)):
        row = one.row
        hint = np.array(random_ids(7, 900 + number), np.int32)
        asked = Row(
            row.trajectory_id,
            np.concatenate([hint, row.token_ids]),
            np.concatenate([np.zeros(7, np.bool_), row.trained]),
            np.full(len(row) + 7, np.nan, np.float32),
            np.concatenate([np.full(7, np.nan, np.float32), row.temperature]),
            np.full(len(row) + 7, -1, np.int32),
            row.calls,
        )
        lesson = Lesson(teachers[number % 3], 0.5, (asked,))
        weight = abs(float(np.asarray(one.rl_weight)))
        made.append(
            replace(one, advantage=0.0, rl_weight=0.0, taught_weight=weight, lesson=lesson, objective="hindsight")
        )
    return made


def held_numbers(core: TrainerCore) -> int:
    """How many of the base's numbers this rank holds."""
    frozen = [one for one in core.policy._causal.parameters() if not one.requires_grad]
    return sum((one.to_local() if isinstance(one, DTensor) else one).numel() for one in frozen)


def share(core: TrainerCore, count: int) -> int:
    """How many the first rank should hold: of each tensor a part of its first dimension, rounded up."""
    frozen = [one for one in core.policy._causal.parameters() if not one.requires_grad]
    return sum(-(-one.shape[0] // count) * one.shape[1:].numel() for one in frozen)


@long
@pytest.mark.parametrize("family", ["qwen3", "qwen3-moe"])
def test_a_head_of_its_own_and_experts_with_a_lora_are_shared_too(
    ranks: Ranks, expected: Expected, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory, family: str
) -> None:
    base = tmp_path_factory.getbasetemp() / family
    if not base.exists():
        save_family(family, base)
    changes = {"gradient_checkpointing": True, "logprob_chunk": 2}
    with opened(base, tmp_path, ranks, shard_base=True, **changes) as core:
        assert any("experts" in name for name in core.policy.parameters) == (family == "qwen3-moe")
        assert held_numbers(core) == share(core, ranks.count)
        assert_equal(two_steps(core), expected(base, **changes))
        assert held_numbers(core) == share(core, ranks.count)  # what passes gathered is freed, the head too


@long
def test_a_copy_in_four_bits_is_whole_in_each(ranks: Ranks, tiny_base: Path, tmp_path: Path) -> None:
    """Ranks load and quantise one after another; a copy has no shares (`trainer.settings`).

    One step is compared. Its first gradient differs by 5e-8 with three ranks, with a copy as without one. AdamW divides
    each gradient by its own size, so at this learning rate each update enlarges what rounding began: after the fourth
    it is 1.0e-6 with a copy and 0.7e-6 without one, and 1.0e-6 between two ways to pack rows in one process.
    """
    changes = CHANGES | {"quantize": "nf4"}
    with opened(tiny_base, tmp_path / "one", ONE_RANK, **changes) as core:
        wanted = first_step(core)
    with opened(tiny_base, tmp_path / "several", ranks, **changes) as core:
        assert is_quantized(core.policy.module)
        assert_equal(first_step(core), wanted)


@long
def test_a_version_of_one_process_is_trained_further_by_several(
    ranks: Ranks, expected: Expected, tiny_base: Path, tmp_path: Path
) -> None:
    straight = expected(tiny_base, **CHANGES)
    with opened(tiny_base, tmp_path, ranks, **CHANGES) as core:
        core._files._folders = TrainerFolders(straight.first.published.path.parent, straight.first.checkpoint.parent)
        assert_equal(two_steps(core, after=straight.first), straight)


@long
@SHARED
def test_an_error_or_a_stop_of_one_rank_ends_the_step_on_all_and_the_next_one_is_made(
    ranks: Ranks, expected: Expected, tiny_base: Path, tmp_path: Path, shard_base: bool
) -> None:
    """The rows of these two trajectories are computed by different ranks."""
    asked = iter([False, True])
    with opened(tiny_base, tmp_path, ranks, shard_base=shard_base, **CHANGES) as core:
        for name in ("t0", "t1"):
            core.go_to(BASE)
            with pytest.raises(StepFailed, match=rf"not finite \(trajectories {name}\)"):
                train_on(core, with_bad_row(uneven_rows(1), name))
        core.go_to(BASE)
        with pytest.raises(StepInterrupted):
            train_on(core, uneven_rows(1), stopped=lambda: next(asked))
        assert_equal(two_steps(core), expected(tiny_base, **CHANGES))


@long
def test_where_memory_is_full_on_another_rank_all_repeat_the_step_with_smaller_passes(
    ranks: Ranks, fault: Path, tiny_base: Path, tmp_path: Path
) -> None:
    changes = {"token_budget": 128}
    given = [one for step in (1, 2, 3) for one in uneven_rows(step) if len(one.row) <= 41]
    with opened(tiny_base, tmp_path / "one", ONE_RANK, **changes) as core:
        wanted = two_steps(core, lambda _: given)
    with opened(tiny_base, tmp_path / "several", ranks, **changes) as core:
        try:
            fault.write_text("room 45")
            found = two_steps(core, lambda _: given)
        finally:
            fault.unlink()
        assert core.pass_budget == 32
    assert_equal(found, wanted)


def test_the_device_names_the_processes(ranks: Ranks) -> None:
    """What fits into memory is stored under it."""
    assert ranks.describe("cpu (16 GiB)") == f"{ranks.count} processes on cpu (16 GiB)" + (
        ", each with a share of the base" if ranks.is_sharded else ""
    )
