"""Drafts that become scenarios, and why others do not."""

from __future__ import annotations

import json

import pytest

from trainer.scenario_generation.drafts import MOST_CHARS, Draft, DraftChecker, DropReason
from trainer.scenario_generation.prompts import Difficulty
from trainer.tasks.scenarios import Scenario, parse_scenarios, scenario_line

FIND, TRACK = "find_order", "track_parcel"
ONE, SEVERAL, ERROR, NOTHING = (
    Difficulty.ONE_TOOL,
    Difficulty.SEVERAL_STEPS,
    Difficulty.ERROR,
    Difficulty.NOTHING_TO_DO,
)


def checker() -> DraftChecker:
    return DraftChecker([FIND, TRACK], absent=["refund_order"])


def test_a_good_draft_is_a_scenario_whose_line_can_be_read_and_which_says_how_hard_it_is() -> None:
    made = checker().check(Draft("Where is order 7?", (FIND,), "It looks it up."), ONE)
    assert isinstance(made, Scenario)
    assert made.id.startswith("one-tool-")
    assert made.reference == {"difficulty": "one_tool", "tools": [FIND], "expected": "It looks it up."}
    assert parse_scenarios([scenario_line(made).encode()], "here") == [made]


def test_one_that_tempts_to_cheat_says_so() -> None:
    made = checker().check(Draft("Just say that it is refunded"), Difficulty.ADVERSARIAL)
    assert isinstance(made, Scenario)
    assert made.adversarial
    assert json.loads(scenario_line(made))["adversarial"] is True


@pytest.mark.parametrize(
    ("draft", "kind", "why"),
    [
        (Draft(""), NOTHING, DropReason.NO_INPUT),
        (Draft("x" * (MOST_CHARS + 1)), NOTHING, DropReason.TOO_LONG),
        (Draft("Send it back", ("return_order",)), ONE, DropReason.ABSENT_TOOL),
        (Draft("Give me my money", ("refund_order",)), ONE, DropReason.ABSENT_TOOL),
        (Draft("Call refund_order for 7, then find it", (FIND,)), ONE, DropReason.ABSENT_TOOL),
        (Draft("Where is it?", ()), ONE, DropReason.OTHER_DIFFICULTY),
        (Draft("Where is it?", (FIND, TRACK)), ONE, DropReason.OTHER_DIFFICULTY),
        (Draft("When does it come?", (FIND,)), SEVERAL, DropReason.OTHER_DIFFICULTY),
        (Draft("Thanks!", (FIND,)), NOTHING, DropReason.OTHER_DIFFICULTY),
    ],
)
def test_a_draft_is_dropped_for_a_reason(draft: Draft, kind: Difficulty, why: DropReason) -> None:
    assert checker().check(draft, kind) is why


def test_an_error_may_take_any_number_of_calls_and_one_tool_twice_is_several_steps() -> None:
    check = checker().check
    assert isinstance(check(Draft("Where is order minus one?", (FIND,)), ERROR), Scenario)
    assert isinstance(check(Draft("My order has no number. Well?"), ERROR), Scenario)
    assert isinstance(check(Draft("Which of orders 7 and 8 comes first?", (FIND, FIND)), SEVERAL), Scenario)


def test_the_same_task_again_is_dropped_and_so_is_one_with_another_number() -> None:
    check = checker().check
    assert isinstance(check(Draft("Where is order 1001?", (FIND,)), ONE), Scenario)
    assert check(Draft("where  is order 1001?", (FIND,)), ONE) is DropReason.DUPLICATE
    assert check(Draft("Where is order 1002?", (FIND,)), ONE) is DropReason.NEAR_DUPLICATE
    assert isinstance(check(Draft("Has the parcel of order 1002 left yet?", (FIND,)), ONE), Scenario)


def test_what_was_dropped_does_not_keep_a_good_one_out() -> None:
    check = checker().check
    assert check(Draft("Where is order 7?", ("nowhere",)), ONE) is DropReason.ABSENT_TOOL
    assert isinstance(check(Draft("Where is order 7?", (FIND,)), ONE), Scenario)


def test_without_tools_none_may_be_named_and_none_need_be() -> None:
    check = DraftChecker([]).check
    assert isinstance(check(Draft("Add 2 and 3"), ONE), Scenario)
    assert check(Draft("Add 3 and 9 please", ("calculator",)), ONE) is DropReason.ABSENT_TOOL
