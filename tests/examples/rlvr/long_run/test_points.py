"""The long run's file: whole after each write, of one run only, and what goes on is not measured twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from examples.rlvr.long_run.phases import plan_phases
from examples.rlvr.long_run.points import FILE, LongRunRecord, OtherRun, Point, open_record, write_record

Run = Callable[[Callable[[int], dict[str, float]]], list[Point]]


def new_record(**changes: object) -> LongRunRecord:
    given = {"seed": 7, "every": 20, "held_out": 200, "phases": plan_phases(), **changes}
    return LongRunRecord.model_validate(given)


def test_a_run_goes_on_with_what_was_measured_before_it_ended(tmp_path: Path, whole_run: Run) -> None:
    record = open_record(tmp_path, new_record())
    assert record.points == []
    first, second, *_ = whole_run(lambda _: {})
    record.add(second)
    record.add(first)
    record.opened = True
    write_record(tmp_path, record)
    again = open_record(tmp_path, new_record())
    assert again == record
    assert [one.step for one in again.points] == [0, 20]
    assert again.opened
    assert again.is_known(20)
    assert not again.is_known(40)


def test_a_kill_in_the_middle_of_a_write_leaves_the_file_before(tmp_path: Path) -> None:
    write_record(tmp_path, new_record())
    (tmp_path / f"{FILE}.new").write_text('{"seed": 7, "ev')
    assert open_record(tmp_path, new_record()) == new_record()


@pytest.mark.parametrize(
    "changes",
    [{"seed": 8}, {"every": 25}, {"held_out": 20}, {"phases": plan_phases(800)}, {"rehearsal": 0.2}],
    ids=lambda one: next(iter(one)),
)
def test_another_run_s_folder_is_refused_by_name(tmp_path: Path, changes: dict[str, object]) -> None:
    write_record(tmp_path, new_record())
    with pytest.raises(OtherRun, match=rf"{next(iter(changes))}.*give another folder with --out"):
        open_record(tmp_path, new_record(**changes))
