"""`--where`: the form of a condition, and whether it holds of a run."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConditionInvalid
from trainer.tasks.conditions import NUMBERS, Condition, is_best, parse_condition


@pytest.mark.parametrize(
    ("text", "condition"),
    [
        ("reward<0.5", Condition("reward", "<", 0.5)),
        (" calls >= 3 ", Condition("calls", ">=", 3.0)),
        ("version=helpdesk@2", Condition("version", "=", "helpdesk@2")),
        ("tag.team!=billing = new", Condition("tag.team", "!=", "billing = new")),
    ],
)
def test_a_condition_is_a_field_a_comparison_and_a_value(text: str, condition: Condition) -> None:
    assert parse_condition(text) == condition


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("reward", "is not a condition"),
        ("reward<low", "'low' is not a number"),
        ("rewards<1", "no field 'rewards'"),
        ("tag.=x", "no field"),
        ("tag.team<b", "takes only = and !="),
        ("best_of_group=yes", "no field 'best_of_group'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_known(text: str, why: str) -> None:
    with pytest.raises(ConditionInvalid, match=why):
        parse_condition(text)


def test_whether_a_reward_is_the_best_of_its_group_is_a_field_where_groups_are_read() -> None:
    assert parse_condition("best_of_group = yes", of_groups=True) == Condition("best_of_group", "=", "yes")
    with pytest.raises(ConditionInvalid, match="is yes or no"):
        parse_condition("best_of_group=1", of_groups=True)
    assert is_best(1.0, [0.0, 1.0, 1.0])
    assert not is_best(1.0, [1.0, 1.0])  # the others did as well
    assert not is_best(0.5, [0.0, 0.5, 1.0])
    assert not is_best(None, [0.0, 1.0])


@pytest.mark.parametrize(
    ("text", "facts", "holds"),
    [
        ("reward<0.5", {"reward": 0.25}, True),
        ("reward<0.5", {"reward": 0.5}, False),
        ("reward<0.5", {"reward": None}, False),
        ("reward!=1", {"reward": None}, True),
        ("tag.team=billing", {"tag.team": "billing"}, True),
        ("tag.team=billing", {}, False),
    ],
)
def test_a_run_without_the_thing_is_not_wanted(text: str, facts: dict[str, Any], holds: bool) -> None:
    assert parse_condition(text).holds(facts) is holds


@given(st.sampled_from(NUMBERS), st.floats(-9, 9), st.floats(-9, 9))
def test_comparisons_divide_all_runs_in_two(field: str, value: float, found: float) -> None:
    def holds(how: str) -> bool:
        return parse_condition(f"{field}{how}{value}").holds({field: found})

    assert holds("<") is not holds(">=")
    assert holds("=") is not holds("!=")
    assert holds("<=") is (holds("<") or holds("="))


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    with contextlib.suppress(ConditionInvalid):
        parse_condition(text)
