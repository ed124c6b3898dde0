"""How much rehearsal a step has: its share of the trajectories, each as heavy as one of the step's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.trainer.objectives.test_imitate import demonstration, groups
from trainer.batch.weights import WeightedRow
from trainer.objectives.group import weigh_groups
from trainer.objectives.registry import weigh_step
from trainer.objectives.rehearsal import NAME, rehearsal_size
from trainer.objectives.step_data import StepData
from trainer.settings import TrainerSettings


@given(own=st.integers(0, 500), share=st.floats(0, 0.5))
def test_the_share_is_one_of_all_trajectories_of_the_step(own: int, share: float) -> None:
    number = rehearsal_size(own, share)
    assert abs(number - share * (own + number)) <= 0.5 + 1e-9


def test_without_the_setting_nothing_is_repeated_and_a_step_is_what_it_was() -> None:
    settings = TrainerSettings()
    assert settings.rehearsal == 0
    assert rehearsal_size(64, settings.rehearsal) == 0
    data = groups(settings)
    assert weigh_step(data, settings) == weigh_groups(data.groups, settings)


def whole(rows: list[WeightedRow]) -> list[float]:
    """The sum of the weights of each row's tokens, in either part of the loss."""
    return [float(np.mean(row.rl_weight + row.ce_weight)) * row.row.trained_tokens for row in rows]


def test_each_weighs_as_much_as_one_of_the_step_s_own() -> None:
    settings = TrainerSettings(rehearsal=0.3)
    data = StepData(
        groups(settings).groups, rehearsal=[demonstration(number, answer=3 + number) for number in range(3)]
    )
    rows = weigh_step(data, settings)
    assert [row.objective for row in rows] == ["group"] * 4 + [NAME] * 3
    assert whole(rows) == pytest.approx([1 / 4] * 7)
    assert all(row.rl_weight == 0 for row in rows[4:])


def test_with_a_constant_length_each_token_weighs_as_much_as_one_of_the_step_s_own() -> None:
    settings = TrainerSettings(rehearsal=0.3, normaliser="constant", constant_length=20)
    data = StepData(groups(settings).groups, rehearsal=[demonstration(1, answer=7), demonstration(2, answer=2)])
    rows = weigh_step(data, settings)
    assert whole(rows) == pytest.approx([row.row.trained_tokens / (4 * 20) for row in rows])


def test_every_optimizer_step_has_its_part_of_them() -> None:
    settings = TrainerSettings(rehearsal=0.2, substeps=2)
    data = StepData(groups(settings).groups, rehearsal=[demonstration(number) for number in range(4)])
    repeated = [row for row in weigh_step(data, settings) if row.objective == NAME]
    assert sorted(row.substep for row in repeated) == [0, 0, 1, 1]
