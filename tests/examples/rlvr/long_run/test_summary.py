"""What a long run says of itself: its verdict, its tables, its picture, and what is committed of it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.rlvr.long_run import picture, summary
from examples.rlvr.long_run.phases import plan_phases
from examples.rlvr.long_run.points import AlarmPoint, LongRunRecord, Point

Run = Callable[[Callable[[int], dict[str, float]]], list[Point]]


def record(points: list[Point], **changes: object) -> LongRunRecord:
    given = {"seed": 7, "every": 20, "held_out": 200, "phases": plan_phases(), "minutes": [95.0, 20.5], **changes}
    return LongRunRecord.model_validate({**given, "points": points})


def test_the_verdict_names_a_form_that_fell(whole_run: Run) -> None:
    note, *others, collapse = summary.verdict_lines(record(whole_run(lambda s: {"note": 0.4 if s > 100 else 0.5})))
    assert note == "note: 50.0% at the end of its own phase, at least 40.0% afterwards (-10.0 points): NOT KEPT"
    assert all(one.endswith("(+0.0 points): kept") for one in others)
    assert collapse == "No collapse."
    everything = dict.fromkeys(("note", "record", "things"), 0.1)
    *_, collapse = summary.verdict_lines(record(whole_run(lambda s: everything if s > 100 else {})))
    assert "100, 120, 140" in collapse  # 0.5, 0.1 and 0.1 are 0.23 on average


def test_the_tables_have_a_row_a_measurement_and_a_row_a_form(whole_run: Run) -> None:
    points = whole_run(lambda _: {})
    alarms = [("length_drift", 130, "longer"), ("zero_variance", 140, "equal"), ("zero_variance", 150, "as equal")]
    whole = record(points, alarms=[AlarmPoint(step=step, rule=rule, words=words) for rule, step, words in alarms])
    part = summary.page_part({"7": whole})
    assert len(summary.points_table(whole).splitlines()) == len(points) + 2
    assert len(summary.falls_table(whole).splitlines()) == 3 + 2
    assert "| 0 | none yet |" in part
    assert "`length_drift` after step 130 (longer); `zero_variance` 2 times, first after step 140 (equal)." in part
    assert "116 minutes in 2 parts" in part
    begun = record(points[:7])
    assert summary.falls_table(begun).splitlines()[-1] == "| note | 50.0% | none | none | none |"
    assert summary.page_part({}) == summary.NONE_YET


def test_the_committed_tables_are_made_of_the_committed_runs() -> None:
    page = summary.README.read_text("utf-8")
    assert summary.MARKS.put(page, summary.page_part(summary.committed_runs())) == page


@pytest.mark.slow  # draws
def test_the_same_run_gives_the_same_picture_and_one_that_has_only_begun_can_be_drawn(
    tmp_path: Path, whole_run: Run
) -> None:
    points = whole_run(lambda _: {})
    for name in ("a.svg", "b.svg"):
        picture.write(record(points), tmp_path / name)
    picture.write(record(points[:1]), tmp_path / "c.svg")
    a, b, c = ((tmp_path / f"{name}.svg").read_bytes() for name in "abc")
    assert a == b
    assert a != c
