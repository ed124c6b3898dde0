"""The largest gradient norm of an update: fixed, and by the norms of the updates before it."""

from __future__ import annotations

import copy
import math
import statistics
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from trainer.errors import StepFailed
from trainer.policy.optim import FEWEST_NORMS, RECENT_NORMS, Optimizer, clip_limit
from trainer.settings import TrainerSettings

RECENT = TrainerSettings(grad_clip=1.0, grad_clip_recent=2.0, lr=0.1)
NORMS = st.lists(st.floats(1e-6, 1e3), max_size=2 * RECENT_NORMS)


@given(NORMS)
def test_without_the_setting_the_limit_is_fixed(norms: list[float]) -> None:
    assert clip_limit(TrainerSettings(grad_clip=0.3, grad_clip_recent=math.inf), norms) == 0.3


@given(NORMS)
def test_the_limit_is_twice_the_median_of_the_last_norms_and_never_above_the_fixed_one(norms: list[float]) -> None:
    limit = clip_limit(RECENT, norms)
    assert 0 < limit <= RECENT.grad_clip
    if len(norms) < FEWEST_NORMS:
        assert limit == RECENT.grad_clip
    else:
        assert limit == min(1.0, 2 * statistics.median(norms[-20:]))


def optimizer(settings: TrainerSettings = RECENT) -> tuple[Optimizer, nn.Parameter]:
    weight = nn.Parameter(torch.zeros(4))
    return Optimizer({"weight": weight}, settings), weight


def update(made: tuple[Optimizer, nn.Parameter], norms: Sequence[float]) -> list[dict[str, float]]:
    """One update for each norm of the gradient."""
    found = []
    for norm in norms:
        made[1].grad = torch.tensor([norm, 0.0, 0.0, 0.0])
        found.append(made[0].step())
    return found


def test_the_sixth_update_is_the_first_whose_limit_follows_the_others() -> None:
    made = optimizer()
    found = update(made, [0.1, 0.2, 0.1, 0.1, 0.3, 0.9, 0.1])
    assert [one["grad_norm_limit"] for one in found] == pytest.approx([1.0] * 5 + [0.2, 0.3])
    assert [one["grad_norm"] for one in found] == pytest.approx([0.1, 0.2, 0.1, 0.1, 0.3, 0.9, 0.1])
    assert made[1].grad is not None
    update(made, [0.9])
    assert float(made[1].grad.norm()) == pytest.approx(0.2, rel=1e-5)  # torch divides by the norm + 1e-6


def test_an_update_goes_on_from_a_state_bit_by_bit() -> None:
    straight, resumed = optimizer(), optimizer()
    update(straight, [0.1, 0.3, 0.2, 0.1, 0.2, 0.15])
    resumed[0].load(copy.deepcopy(straight[0].state()))
    with torch.no_grad():
        resumed[1].copy_(straight[1])
    assert update(resumed, [0.9, 0.2]) == update(straight, [0.9, 0.2])
    assert torch.equal(resumed[1], straight[1])
    assert resumed[0].state()["norms"] == straight[0].state()["norms"]


def test_a_state_of_before_has_no_norms_and_neither_has_a_fresh_one() -> None:
    made = optimizer()
    update(made, [0.1] * 9)
    old = {name: value for name, value in made[0].state().items() if name != "norms"}
    made[0].load(old)
    assert update(made, [0.9])[0]["grad_norm_limit"] == 1.0
    update(made, [0.1] * 9)
    made[0].reset()
    assert update(made, [0.9])[0]["grad_norm_limit"] == 1.0


def test_norms_of_no_use_are_not_remembered() -> None:
    made = optimizer()
    update(made, [0.0] * 9)
    with pytest.raises(StepFailed):
        update(made, [float("inf")])
    assert made[0].state()["norms"] == []
    update(made, [0.5] * 30)
    assert len(made[0].state()["norms"]) == RECENT_NORMS


def test_without_the_setting_norms_are_kept_and_no_limit_is_reported() -> None:
    made = optimizer(TrainerSettings(lr=0.1, grad_clip_recent=math.inf))
    (found,) = update(made, [0.5])
    assert found == {"grad_norm": 0.5, "lr": 0.1}
    assert made[0].state()["norms"] == [0.5]
