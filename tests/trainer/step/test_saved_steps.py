"""A step is the same, bit by bit, as before the trainer was divided into objectives."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.trainer.step import saved_steps

pytestmark = pytest.mark.slow

MACHINE, SAVED = saved_steps.load()
CASES = saved_steps.cases()
# On another CPU sums round in another order. Adam divides by a gradient's size, so that of an element near 0 may move
# by a whole learning rate; all elements together move nearly as before.
OTHER_CPU = 1e-3


def test_every_example_has_a_saved_step() -> None:
    assert CASES.keys() == SAVED.keys()


@pytest.mark.parametrize("name", sorted(SAVED))
def test_two_steps_give_the_saved_adapter(name: str, tiny_base: Path, tmp_path: Path) -> None:
    found, expected = saved_steps.take_steps(tiny_base, CASES[name], tmp_path), SAVED[name]
    assert found.keys() == expected.keys()
    if saved_steps.machine() == MACHINE:
        assert [key for key, tensor in found.items() if not torch.equal(tensor, expected[key])] == []
    else:
        change = {key: (tensor - expected[key]).norm() / expected[key].norm() for key, tensor in found.items()}
        assert max(change.values()) < OTHER_CPU, change
