"""What a campaign wrote down is read back: each event where it belongs, rows of before among them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recorder.registry.retention import VALIDATION
from trainer.campaign import history as course
from trainer.campaign.history import History
from trainer.measuring.yardstick import Yardstick
from trainer.progress import Alarm, Changed, Ended, StepDone, Validated

STEP = StepDone(
    1, "helpdesk@1", "helpdesk@0", 0.5, 0.4, None, None, None, 8, 0, 8, seconds={"sampling": 3.0, "training": 4.0}
)


def validated(step: int, **given: Any) -> Validated:
    return Validated(step, f"helpdesk@{step}", 0.5, None, 20, 0, 2.0, **given)


def test_each_row_is_read_where_it_belongs() -> None:
    rows = [
        (course.BEGUN, {"step": 0, "paused": False, "recipe": {}}), (VALIDATION, asdict(validated(0))),
        (course.BASELINE, asdict(validated(0, baseline=True))), (course.STEP, asdict(STEP)),
        (course.ALARM, asdict(Alarm(1, "kl_engine", "note", ""))), (course.CHANGE, asdict(Changed(1, "a", "b", "c"))),
        (course.TEST, asdict(validated(1, part="test"))), (course.ENDED, asdict(Ended("c", "steps", "", 1, None, 9.0))),
        ("somebody_elses", {"x": 1}),
    ]  # fmt: skip
    history = History()
    for code, detail in rows:
        history.add(code, detail)
    counted = (history.begun, history.validations, history.baselines, history.steps, history.alarms, history.changes)
    assert [len(kind) for kind in (*counted, history.tests, history.ended)] == [1] * 8
    assert history.steps == [STEP]
    assert history.seconds == 7.0 + 3 * 2.0


def test_a_validation_of_before_there_were_parts_reads_as_one() -> None:
    new = ("part", "baseline", "win_rate", "figures", "adversarial", "adversarial_attempts")
    history = History()
    history.add(VALIDATION, {name: value for name, value in asdict(validated(2)).items() if name not in new})
    assert history.validations == [validated(2)]


def test_a_pause_is_answered_by_the_run_that_goes_on_from_it() -> None:
    history = History()
    assert history.answered_until == -1
    for step, paused in ((0, False), (3, True), (4, False)):
        history.add(course.BEGUN, {"step": step, "paused": paused})
    assert history.answered_until == 3


def test_stop_rules_look_at_validations_where_they_are_regular_and_else_at_steps() -> None:
    history = History(steps=[STEP], validations=[validated(0), validated(1, win_rate=0.7)])
    assert [value for _, value in history.measured(Yardstick.SUCCESS, regularly=True)] == [0.5, 0.5]
    assert history.measured(Yardstick.SUCCESS, regularly=False) == [(STEP, 0.5)]
    assert [value for _, value in history.measured(Yardstick.WINS, regularly=True)] == [0.7]
    assert history.measured(Yardstick.WINS, regularly=False) == []
    assert history.measured(Yardstick.NOTHING, regularly=True) == []
