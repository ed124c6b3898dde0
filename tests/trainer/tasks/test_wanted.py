"""`--where`: the form of a condition, and whether it holds of a run."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trainer.errors import ConditionInvalid
from trainer.tasks.traffic import NUMBERS, Condition, parse_condition


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
    ],
)
def test_what_cannot_be_read_is_refused_with_what_is_known(text: str, why: str) -> None:
    with pytest.raises(ConditionInvalid, match=why):
        parse_condition(text)


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
