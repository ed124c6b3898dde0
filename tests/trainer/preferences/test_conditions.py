"""A condition on a pair is for both of its sides, or for the one that it names."""

from __future__ import annotations

import pytest

from trainer.errors import ConditionInvalid
from trainer.preferences.conditions import parse_side_conditions
from trainer.settings import ObjectiveSettings, TrainerSettings
from trainer.step.fits.joined_data import check_conditions


def test_a_condition_is_for_both_sides_or_for_the_one_that_it_names() -> None:
    given = ["tag.team = billing", "chosen.reward >= 0.9", " rejected.tag.chosen = x", "best_of_group != no"]
    found = parse_side_conditions(given)
    assert [(one.field, one.how, one.value) for one in found.chosen] == [
        ("tag.team", "=", "billing"), ("reward", ">=", 0.9), ("best_of_group", "!=", "no"),
    ]  # fmt: skip
    assert [one.field for one in found.rejected] == ["tag.team", "tag.chosen", "best_of_group"]
    assert not parse_side_conditions([])


@pytest.mark.parametrize("text", ["chosen.", "chosen.rejected.reward > 1", "rejected.rewards > 1", "better.reward > 1"])
def test_a_condition_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(ConditionInvalid):
        parse_side_conditions([text])
    own = ObjectiveSettings(name="prefer", where=text)
    with pytest.raises(ConditionInvalid):
        check_conditions(TrainerSettings(objectives=[ObjectiveSettings(name="group"), own]))
