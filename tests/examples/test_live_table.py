"""The committed runs of live traffic: what README says of them, and the bars that each must meet."""

from __future__ import annotations

from typing import Any

import pytest

from examples.live import table

MEASURED = table.measured()


def of(traffic: str) -> list[Any]:
    return [one for one in MEASURED if one["traffic"] == traffic]


def name(one: Any) -> str:
    return f"{one['traffic']}-{one['seed']}"


def test_readme_has_the_table_of_what_was_measured() -> None:
    page = table.README.read_text("utf-8")
    assert table.MARKS.put(page, table.table(MEASURED)) == page


@pytest.mark.parametrize("one", MEASURED, ids=name)
def test_no_measured_run_had_a_fault(one: Any) -> None:
    assert one["faults"] == []
    assert one["versions_live"] > 0


@pytest.mark.parametrize("one", of("repeats"), ids=name)
def test_traffic_with_repeats_is_answered_rightly_in_ten_minutes(one: Any) -> None:
    assert one["minutes"] <= 10
    assert one["runs_a_second"] >= 3
    assert one["first_version"]["success"] <= 0.40
    assert one["last_minute"]["success"] >= 0.90


@pytest.mark.parametrize("one", of("unique"), ids=name)
def test_traffic_without_repeats_teaches_in_twenty_minutes(one: Any) -> None:
    assert one["minutes"] <= 20
    assert one["last_minute"]["success"] - one["first_version"]["success"] >= 0.15


@pytest.mark.parametrize("one", of("swapped-judge"), ids=name)
def test_a_judge_that_rewards_the_wrong_thing_does_little_harm_and_none_that_stays(one: Any) -> None:
    before, worst = table.fall(one)
    assert before - worst <= 0.10
    assert one["last_minute"]["success"] >= before - 0.05


def test_a_fall_is_from_the_minutes_before_the_swap_to_the_worst_since() -> None:
    minutes = [{"runs": 10, "right": right, "success": right / 10} for right in (2, 8, 6, 9, 5, 7)]
    told = {"notes": [{"second": 190.0, "text": "swapped"}, {"second": 300.0, "text": "back"}], "by_minute": minutes}
    assert table.fall(told) == (0.7, 0.5)
