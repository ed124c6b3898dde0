"""Two optimizer steps on made-up rows, for the test that kills one in the middle. Run as a module, or imported.

Step n trains from version n − 1. As a program it does the first step, says so, begins the second, says so between two
packs, and then waits to be killed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from tests.trainer.building import random_ids, trained_row
from tests.trainer.plain_settings import PLAIN
from trainer.artifacts.adapters import AdapterOrigin
from trainer.batch.weights import WeightedRow
from trainer.policy.optim import learning_rate
from trainer.settings import TrainerSettings
from trainer.step.core import TrainerCore
from trainer.step.state.folders import TrainerFolders
from trainer.step.state.results import PhaseSeconds, StartVersion, WrittenStep

SETTINGS = TrainerSettings(
    **{**PLAIN, "warmup_steps": 3}, device="cpu", rank=4, alpha=8.0, lr=1e-2, token_budget=64, weight_decay=0.01
)

BASE = StartVersion("v0", None)


def rows(step: int, behaviour: float = -4.0) -> list[WeightedRow]:
    """Eight rows in two families, half of them better than the other half."""
    made = []
    for number in range(8):
        ids = random_ids(20, 100 * step + number % 2) + random_ids(8 + number, 1000 * step + number)
        row = trained_row(ids, list(range(22, len(ids))), 0.9, f"t{number}", behaviour=behaviour)
        made.append(WeightedRow(row, 0.5 if number < 4 else -0.5, 1 / (8 * row.trained_tokens)))
    return made


def core(base: Path, data: Path, **changes: Any) -> TrainerCore:
    """A trainer's core with its folders in `data`."""
    return TrainerCore(base, SETTINGS.model_copy(update=changes), TrainerFolders.of(data))


def one_step(
    trainer: TrainerCore, step: int, stopped: Callable[[], bool] = lambda: False
) -> tuple[dict[str, float], WrittenStep]:
    """Step `step` from the version in memory."""
    metrics, written = train_on(trainer, rows(step), step, stopped)
    trainer.became(f"v{step}")
    return metrics, written


def train_on(
    trainer: TrainerCore, given: Sequence[WeightedRow], step: int = 1, stopped: Callable[[], bool] = lambda: False
) -> tuple[dict[str, float], WrittenStep]:
    """Step `step` on these rows, at the learning rate of the schedule."""
    origin = AdapterOrigin("tiny", step, f"tiny@{step - 1}", "base", "fingerprint")
    trained = trainer.step(given, learning_rate(trainer._settings, step - 1), stopped, PhaseSeconds())
    return dict(trained.metrics), trainer.write(origin, trained, PhaseSeconds())


def start(written: WrittenStep, step: int) -> StartVersion:
    """The version that step `step` wrote, as a place to go on from."""
    return StartVersion(f"v{step}", written.published.path, written.published.manifest_sha256)


def main(base: Path, data: Path) -> None:
    """Die in the middle of the second step."""
    trainer = core(base, data)
    trainer.go_to(BASE)
    _, written = one_step(trainer, 1)
    print(written.published.path, written.published.manifest_sha256, flush=True)
    asked = 0

    def stopped() -> bool:
        nonlocal asked
        asked += 1
        if asked > 1:
            print("half way", flush=True)
            sys.stdin.read()
        return False

    one_step(trainer, 2, stopped)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
