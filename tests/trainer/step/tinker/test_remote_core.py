"""A step at a training service is the local step: same loss, same weights, same optimizer, same files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from tests.trainer.building import random_ids, trained_row
from tests.trainer.step.tinker.conftest import OpenCore
from tests.trainer.tinker_server import TinkerServer
from trainer.artifacts import adapters
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.weights import WeightedRow
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion, WrittenStep
from trainer.step.tinker.remote_core import TinkerCore

BASE = StartVersion("v0", None)


def rows(step: int, substeps: int = 1) -> list[WeightedRow]:
    """Eight rows in two families that share a prefix, half of them better than the other half."""
    made = []
    for number in range(8):
        ids = random_ids(20, 100 * step + number % 2) + random_ids(8 + number, 1000 * step + number)
        row = trained_row(ids, list(range(22, len(ids))), 1.0, f"t{number}", behaviour=-4.0)
        made.append(WeightedRow(row, 0.5 if number < 4 else -0.5, 1 / (8 * row.trained_tokens), number % substeps))
    return made


def one_step(core: Any, step: int, given: Sequence[WeightedRow], rate: float = 1e-2) -> tuple[Any, WrittenStep]:
    """Step `step` from the version that the core is at."""
    origin = AdapterOrigin("tiny", step, f"tiny@{step - 1}", "base", "fingerprint")
    trained = core.step(given, rate, lambda: False, PhaseSeconds())
    written = core.write(origin, trained, PhaseSeconds())
    core.became(f"v{step}")
    return trained, written


def weights_of(written: WrittenStep) -> dict[str, Tensor]:
    """The adapter on disk."""
    return adapters.read_adapter(written.published.path, written.published.manifest_sha256)


def local_core(base: Path, folder: Path, remote: TinkerCore) -> TrainerCore:
    """The trainer on this machine under the same settings."""
    given = remote._settings.model_copy(update={"backend": "local"})
    return TrainerCore(base, given, TrainerFolders.of(folder))


def largest_difference(one: dict[str, Tensor], other: dict[str, Tensor]) -> float:
    assert one.keys() == other.keys()
    return max(float((one[name] - other[name]).abs().max()) for name in one)


def test_weights_after_two_steps_are_those_of_the_local_steps(
    open_core: OpenCore, tiny_base: Path, tmp_path: Path
) -> None:
    remote = open_core()
    local = local_core(tiny_base, tmp_path / "local", remote)
    remote.go_to(BASE)
    local.go_to(BASE)
    for step in (1, 2):
        there, written = one_step(remote, step, rows(step))
        here, own = one_step(local, step, rows(step))
        assert largest_difference(weights_of(written), weights_of(own)) < 1e-6
        for name in ("loss", "ratio_mean", "ratio_max", "clip_fraction", "trained_tokens", "fresh_tokens"):
            assert there.metrics[name] == pytest.approx(here.metrics[name], rel=1e-4, abs=1e-6), name
        assert there.changed
