"""What a campaign wrote down is read back: each event where it belongs, rows of before among them."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from recorder.views.campaigns.events import (
    ALARM,
    BASELINE,
    BEGUN,
    CHANGE,
    ENDED,
    STEP,
    TEST,
    VALIDATION,
    Alarm,
    CampaignEnded,
    CampaignMeasure,
    SettingChanged,
    StepDone,
    Validation,
)
from recorder.views.campaigns.history import CampaignHistory

STEP_DONE = StepDone(
    1, "helpdesk@1", "helpdesk@0", 0.5, 0.4, None, None, None, 8, 0, 8, seconds={"sampling": 3.0, "training": 4.0}
)


def validated(step: int, **given: Any) -> Validation:
    return Validation(step, f"helpdesk@{step}", 0.5, None, 20, 0, 2.0, **given)


def test_each_row_is_read_where_it_belongs() -> None:
    rows = [
        (BEGUN, {"step": 0, "paused": False, "recipe": {}}), (VALIDATION, asdict(validated(0))),
        (BASELINE, asdict(validated(0, baseline=True))), (STEP, asdict(STEP_DONE)),
        (ALARM, asdict(Alarm(1, "kl_engine", "note", ""))),
        (CHANGE, asdict(SettingChanged(1, "a", "b", "c"))),
        (TEST, asdict(validated(1, part="test"))),
        (ENDED, asdict(CampaignEnded("c", "steps", "", 1, None, 9.0))),
        ("somebody_elses", {"x": 1}),
    ]  # fmt: skip
    history = CampaignHistory()
    for code, detail in rows:
        history.add(code, detail)
    counted = (history.begun, history.validations, history.baselines, history.steps, history.alarms, history.changes)
    assert [len(kind) for kind in (*counted, history.tests, history.ended)] == [1] * 8
    assert history.steps == [STEP_DONE]
    assert history.seconds == 7.0 + 3 * 2.0


def test_a_validation_of_before_there_were_parts_reads_as_one() -> None:
    new = ("part", "baseline", "win_rate", "figures", "adversarial", "adversarial_attempts")
    history = CampaignHistory()
    history.add(VALIDATION, {name: value for name, value in asdict(validated(2)).items() if name not in new})
    assert history.validations == [validated(2)]


def test_a_pause_is_answered_by_the_run_that_goes_on_from_it() -> None:
    history = CampaignHistory()
    assert history.answered_until == -1
    for step, paused in ((0, False), (3, True), (4, False)):
        history.add(BEGUN, {"step": step, "paused": paused})
    assert history.answered_until == 3


def test_stop_rules_look_at_validations_where_they_are_regular_and_else_at_steps() -> None:
    history = CampaignHistory(steps=[STEP_DONE], validations=[validated(0), validated(1, win_rate=0.7)])
    assert history.measured(CampaignMeasure.SUCCESS, regularly=True) == history.validations
    assert history.measured(CampaignMeasure.SUCCESS, regularly=False) == [STEP_DONE]
    assert history.measured(CampaignMeasure.WINS, regularly=True) == [validated(1, win_rate=0.7)]
    assert history.measured(CampaignMeasure.WINS, regularly=False) == []
    assert history.measured(CampaignMeasure.NOTHING, regularly=True) == []
