"""The figures of benchmarks/faults, and its page."""

from __future__ import annotations

from benchmarks.faults.kinds import KINDS
from benchmarks.faults.results import MARKS, PAGE, Record, read_results, table
from benchmarks.faults.session import recoveries
from benchmarks.faults.traffic import HeardAnswer


def heard(*ends: float) -> list[HeardAnswer]:
    return [HeardAnswer(f"call_{at}", "one", 0, "text", at) for at in ends]


def test_a_fault_s_recovery_ends_with_the_first_answer_after_it() -> None:
    assert recoveries([10.0, 12.0], heard(9.0, 10.5, 11.0, 15.0)) == [0.5, 3.0]
    assert recoveries([12.0, 10.0], heard(10.5)) == [0.5]
    assert recoveries([], heard(1.0)) == []


def test_the_page_has_the_table_of_the_saved_results() -> None:
    page = PAGE.read_text("utf-8")
    assert MARKS.put(page, table(read_results())) == page


def test_the_table_sums_seeds_and_names_what_was_not_run() -> None:
    made: Record = {
        "kind": "proxy-killed", "store": "sqlite", "times": 100, "answers": 4000, "lost": 1, "doubled": 0, "wrong": 2,
        "unfinished": {"calls": 3}, "broken": ["rule: row"], "recovered_s": {"median": 0.5, "worst": 2.0},
    }  # fmt: skip
    lines = table([made | {"seed": 1}, made | {"seed": 2, "recovered_s": {"median": 0.7, "worst": 1.0}}]).splitlines()
    title = KINDS["proxy-killed"].title
    assert f"| {title} | SQLite | 200 | 8,000 | 2 | 0 | 4 | 6 | 2 | 0.70 s / 2.00 s |" in lines
    assert sum("not run" in line for line in lines) == len(lines) - 3
