"""A process that is killed in the middle of a pass ends the group of processes, with an error of its own.

`tests/trainer/step/test_lost_ranks.py` has what becomes of the groups and the next trainer; `make test` runs one of it.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import trainer.ranks.launch
from tests.trainer.ranks.faulty_worker import FAULT
from tests.trainer.ranks.groups import FAULTY, joined, opened, two_steps, uneven_rows
from tests.trainer.training_child import BASE, train_on
from trainer.errors import RankLost

pytestmark = [pytest.mark.slow, pytest.mark.long]


@pytest.fixture
def fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "fault"
    monkeypatch.setenv(FAULT, str(path))
    monkeypatch.setattr(trainer.ranks.launch, "WORKER", FAULTY)
    return path


def killed_in_a_step(base: Path, data: Path, fault: Path, *, passes: int, shard_base: bool) -> None:
    """Kill the second process in its n-th pass; the first one says so, and the group is of no further use."""
    with joined(2) as ranks, opened(base, data, ranks, shard_base=shard_base, kl_coef=0.1) as core:
        core.go_to(BASE)
        fault.write_text(f"kill {passes}")
        with pytest.raises(RankLost, match=r"a process of the trainer was lost.*Start it again"):
            two_steps(core)
        with pytest.raises(RankLost):
            train_on(core, uneven_rows(1))


@pytest.mark.parametrize(("shard_base", "passes"), [(False, 4), (True, 3)])
def test_a_killed_process_is_an_error_of_its_own(
    tiny_base: Path, tmp_path: Path, fault: Path, shard_base: bool, passes: int
) -> None:
    killed_in_a_step(tiny_base, tmp_path, fault, passes=passes, shard_base=shard_base)


@pytest.mark.parametrize("seed", range(8))
def test_a_process_killed_at_a_random_moment_is_an_error_of_its_own(
    tiny_base: Path, tmp_path: Path, fault: Path, seed: int
) -> None:
    drawn = random.Random(seed)
    passes = drawn.randint(1, 14)
    killed_in_a_step(tiny_base, tmp_path, fault, passes=passes, shard_base=drawn.random() < 0.5)
