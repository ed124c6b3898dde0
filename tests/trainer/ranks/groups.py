"""Groups of real processes for tests, and steps whose result is compared with one process's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch

from tests.trainer.building import random_ids, trained_row
from tests.trainer.training_child import BASE, SETTINGS, rows, start, train_on
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.weights import WeightedRow
from trainer.objectives.imitate_rows import Demonstration
from trainer.objectives.prefer import PreferencePair, weigh_joined_pairs
from trainer.ranks.group import ONE_RANK, Ranks
from trainer.ranks.launch import Launcher
from trainer.settings import ObjectiveSettings, TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.fits.job import ReferenceAdapter
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, WrittenStep

FAULTY = "tests.trainer.ranks.faulty_worker"
TIMEOUT_S = 120.0
_PREFER = ObjectiveSettings(name="prefer", weight=0.5)


@contextmanager
def joined(count: int, worker: str = FAULTY) -> Iterator[Ranks]:
    """Within: a group of `count` processes, of which this one is the first."""
    launcher = Launcher(SETTINGS.model_copy(update={"processes": count, "rank_timeout_s": TIMEOUT_S}), worker)
    try:
        yield launcher.join()
    finally:
        launcher.leave()


def uneven_rows(step: int) -> list[WeightedRow]:
    """Rows of 13 to 150 tokens, of which 1 to 9 are trained, in two optimizer steps; the second has one row."""
    made = []
    for number, (length, trained) in enumerate(
        [(150, 1), (60, 9), (13, 2), (13, 8), (40, 1), (41, 9), (12, 5), (30, 3)]
    ):
        ids = random_ids(length, 100 * step + number)
        row = trained_row(ids, list(range(length - trained, length)), 0.9, f"t{number}", behaviour=-4.0)
        made.append(WeightedRow(row, 0.5 if number % 2 else -0.4, 1 / (8 * trained), substep=number // 7))
    return made


@dataclass(frozen=True, slots=True)
class Outcome:
    """Steps: their metrics, the LoRA's weights, and the first moments, which are a tenth of the gradients."""

    metrics: tuple[dict[str, float], ...]
    weights: dict[str, torch.Tensor]
    moments: dict[str, torch.Tensor]
    first: WrittenStep


@contextmanager
def opened(base: Path, data: Path, ranks: Ranks, **changes: object) -> Iterator[TrainerCore]:
    """Within: a trainer whose passes these ranks make."""
    settings: TrainerSettings = SETTINGS.model_copy(update=changes)
    core = TrainerCore(base, settings, TrainerFolders.of(data), ranks=ranks)
    try:
        yield core
    finally:
        if not ranks.is_lost:
            ranks.leave()


def two_steps(
    core: TrainerCore, rows: Callable[[int], Sequence[WeightedRow]] = uneven_rows, after: WrittenStep | None = None
) -> Outcome:
    """Two steps from the base. `after`: where another trainer made the first one."""
    metrics = []
    if after is None:
        core.go_to(BASE)
        found, after = train_on(core, rows(1), 1)
        metrics.append(found)
        core.became("v1")
    else:
        core.go_to(start(after, 1))
    metrics.append(train_on(core, rows(2), 2)[0])
    return Outcome(tuple(metrics), core.policy.state(), _moments(core), after)


def first_step(core: TrainerCore) -> Outcome:
    """One step from the base, of two optimizer steps."""
    core.go_to(BASE)
    metrics, written = train_on(core, uneven_rows(1), 1)
    return Outcome((metrics,), core.policy.state(), _moments(core), written)


def step_with_pairs(core: TrainerCore, reference: WrittenStep) -> Outcome:
    """One step from the base on groups and on three pairs, in two optimizer steps, compared with a version."""
    core.go_to(BASE)
    own = core._settings.model_copy(update={"substeps": 2})
    rows = [*uneven_rows(1), *weigh_joined_pairs([_pair(number) for number in range(3)], _PREFER, own)]
    files = reference.published
    adapter = ReferenceAdapter("v1", files.path, files.manifest_sha256)
    trained = core.step(rows, 1e-2, lambda: False, PhaseSeconds(), reference=adapter)
    written = core.write(AdapterOrigin("tiny", 1, "tiny@0", "base", "fingerprint"), trained, PhaseSeconds())
    # processes that share a base measure no shares of the gradient
    metrics = {name: value for name, value in trained.metrics.items() if not name.endswith(".gradient_share")}
    return Outcome((metrics,), core.policy.state(), _moments(core), written)


def _pair(number: int) -> PreferencePair:
    """Sides of one or two rows, which differ in length."""
    sides = []
    for place, side in enumerate(("chosen", "rejected")):
        made = []
        for row in range(1 + number % 2):
            ids = random_ids(10, number) + random_ids(4 + 9 * place + 20 * number + row, 500 + 10 * number + place)
            trained = list(range(10, len(ids)))
            made.append(trained_row(ids, trained, name=f"{side}{number}", behaviour=float("nan")))
            made[-1] = replace(made[-1], age=np.full(len(ids), -1, np.int32))  # no engine sampled it
        sides.append(Demonstration(f"{side}{number}", "trajectory", side, "t", made))
    chosen, rejected = sides
    return PreferencePair(f"p{number}", "ranking", f"p{number}", chosen, rejected)


def _moments(core: TrainerCore) -> dict[str, torch.Tensor]:
    return {str(number): state["exp_avg"] for number, state in core._optimizer.state()["adamw"].items()}


def assert_equal(found: Outcome, expected: Outcome, bound: float = 1e-6) -> None:
    """Gradients and weights, each relative to its norm, and every metric but what was computed for them.

    (Adam divides a gradient by its own size, so single weights whose gradient is nearly 0 may differ by more.)
    """
    for mine, others in ((found.moments, expected.moments), (found.weights, expected.weights)):
        assert mine.keys() == others.keys()
        wanted = torch.cat([one.flatten() for one in others.values()])
        assert (torch.cat([mine[name].flatten() for name in others]) - wanted).norm() <= bound * wanted.norm()
    for metrics, wanted_metrics in zip(reversed(found.metrics), reversed(expected.metrics), strict=False):
        assert metrics.keys() == wanted_metrics.keys()
        for name in metrics.keys() - {"forward_tokens"}:
            value = wanted_metrics[name]
            assert abs(metrics[name] - value) <= bound * max(1.0, abs(value)), name


def one_step(base: Path, data: Path, ranks: Ranks) -> dict[str, float]:
    """The metrics of one step from the base, but for the tokens that were computed."""
    with opened(base, data, ranks) as core:
        core.go_to(BASE)
        metrics, _ = train_on(core, rows(1))
    return {name: value for name, value in metrics.items() if name != "forward_tokens"}


def with_bad_row(rows: Sequence[WeightedRow], name: str) -> list[WeightedRow]:
    """The rows, of which one trajectory's has a loss that is not finite."""
    return [
        replace(one, row=replace(one.row, behaviour=one.row.behaviour * float("nan")))
        if one.row.trajectory_id == name
        else one
        for one in rows
    ]


__all__ = [
    "ONE_RANK", "Outcome", "assert_equal", "first_step", "joined", "one_step", "opened", "step_with_pairs", "two_steps",
    "uneven_rows", "with_bad_row",
]  # fmt: skip
