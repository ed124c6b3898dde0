"""What the scripted judge gets wrong: the README says what the program measures."""

from __future__ import annotations

from pathlib import Path

import examples.rlvr
from examples.rlvr.second_look import ANSWERS, CASES, agreement, told, wrong

README = Path(examples.rlvr.__file__).with_name("README.md").read_text(encoding="utf-8")


def test_the_readme_has_the_verdicts_that_are_wrong() -> None:
    found = wrong()
    mild = sum(case.judged for case in found)
    assert f"{len(found)} of {len(CASES)} wrong ({mild} too mild, {len(found) - mild} too strict)" in README
    assert told(found) in README


def test_within_the_language_all_criteria_met_is_as_much_as_success() -> None:
    both = agreement(ANSWERS)
    assert both[True, False] == both[False, True] == 0
    assert f"Of {ANSWERS:,} answers" in README
    assert f"{both[True, True]:,} meet all criteria" in README


def test_there_is_something_to_tell_in_both_directions() -> None:
    judged = {(case.met, case.judged) for case in CASES}
    assert judged == {(True, True), (True, False), (False, True), (False, False)}
