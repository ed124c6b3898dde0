"""Stored events of a campaign are read, whichever program wrote them, and are written as they are read."""

from __future__ import annotations

import json
from typing import Any

import pytest

from recorder.views.campaigns.events import (
    BASELINE,
    BEGUN,
    ENDED,
    JUDGED,
    STEP,
    VALIDATION,
    CampaignBegun,
    CampaignEnded,
    CampaignEvent,
    CampaignMeasure,
    StepDone,
    StepJudges,
    Validation,
    decode_event,
    encode_event,
)

# Rows as they lie in stores. The first form is of before a campaign had parts, baselines, wins and rules of its own.
FIRST = {
    STEP: """{"step": 1, "version": "helpdesk@1", "sampled_by": "helpdesk@0", "success": 0.5, "reward": 0.4, "kl": 1e-4,
        "kl_base": null, "tokens_per_s": 900.0, "attempts": 8, "errored": 2, "trained": 6, "left_out": {"stale": 1},
        "seconds": {"sampling": 3.0, "training": 4.0}, "note": "", "failed": false, "metrics": {"entropy": 1.5}}""",
    VALIDATION: """{"step": 1, "version": "helpdesk@1", "success": 0.5, "reward": null, "attempts": 20, "errored": 1,
        "seconds": 2.0}""",
    ENDED: """{"campaign": "orders", "reason": "steps", "detail": "1 steps done", "steps": 1, "version": "helpdesk@1",
        "seconds": 9.0, "success_before": 0.25, "success_after": 0.5, "versions": {"helpdesk@0": 0.5}, "trained": 6,
        "left_out": {"stale": 1}}""",
    BEGUN: """{"step": 0, "paused": true, "recipe": {"rubric": "be kind"}}""",
}
# The second form does not say how many attempts a step's success is over.
SECOND = {
    STEP: FIRST[STEP],
    VALIDATION: """{"step": 1, "version": "helpdesk@1", "success": null, "reward": null, "attempts": 20, "errored": 1,
        "seconds": 2.0, "part": "val", "baseline": false, "win_rate": 0.625, "figures": {"turns": 3.5},
        "adversarial": 0.5, "adversarial_attempts": 2}""",
    ENDED: """{"campaign": "orders", "reason": "steps", "detail": "1 steps done", "steps": 1, "version": "helpdesk@1",
        "seconds": 9.0, "success_before": 0.25, "success_after": 0.5, "attempts_before": 20, "attempts_after": 19,
        "versions": {"helpdesk@0": 0.5}, "trained": 6, "left_out": {"stale": 1}}""",
    BEGUN: """{"step": 0, "paused": true, "recipe": {"rubric": "be kind"}, "measure": "wins", "plateau_steps": 10,
        "epoch_steps": 4}""",
}
STEP_DONE = StepDone(
    1, "helpdesk@1", "helpdesk@0", 0.5, 0.4, 1e-4, None, 900.0, 8, 2, 6, {"stale": 1},
    {"sampling": 3.0, "training": 4.0}, metrics={"entropy": 1.5},
)  # fmt: skip
_ENDED: dict[str, Any] = {"versions": {"helpdesk@0": 0.5}, "trained": 6, "left_out": {"stale": 1}}
_OVER = ("orders", "steps", "1 steps done", 1, "helpdesk@1", 9.0, 0.25, 0.5)


@pytest.mark.parametrize(
    ("form", "code", "event"),
    [
        (FIRST, STEP, STEP_DONE),
        (FIRST, VALIDATION, Validation(1, "helpdesk@1", 0.5, None, 20, 1, 2.0)),
        (FIRST, ENDED, CampaignEnded(*_OVER, **_ENDED)),
        (FIRST, BEGUN, CampaignBegun(0, True, {"rubric": "be kind"})),
        (SECOND, STEP, STEP_DONE),
        (
            SECOND,
            VALIDATION,
            Validation(
                1, "helpdesk@1", None, None, 20, 1, 2.0, win_rate=0.625, figures={"turns": 3.5}, adversarial=0.5,
                adversarial_attempts=2,
            ),
        ),
        (SECOND, ENDED, CampaignEnded(*_OVER, 20, 19, **_ENDED)),
        (SECOND, BEGUN, CampaignBegun(0, True, {"rubric": "be kind"}, CampaignMeasure.WINS, 10, 4)),
    ],
)  # fmt: skip
def test_both_older_forms_are_read(form: dict[str, str], code: str, event: CampaignEvent) -> None:
    assert decode_event(code, json.loads(form[code])) == event


@pytest.mark.parametrize("code", SECOND)
def test_fields_keep_their_names_and_values(code: str) -> None:
    stored = json.loads(SECOND[code])
    event = decode_event(code, stored)
    assert event is not None
    written = json.loads(json.dumps(encode_event(event)))
    assert {name: written[name] for name in stored} == stored
    added = {"measured_attempts", "agent_failures", "undecided", "scenarios", "scenario_measure"}
    assert set(written) - set(stored) <= added


@pytest.mark.parametrize(
    ("code", "event"),
    [
        (STEP, StepDone(1, "a@1", "a@0", 0.5, 0.4, None, None, None, 8, 2, 6, measured_attempts=7, agent_failures=1)),
        (
            STEP,
            StepDone(
                2, "a@2", "a@1", 0.5, 0.4, None, None, None, 8, 2, 6, undecided="a check",
                scenarios={"t1": [8, 0.5, 0.5]}, scenario_measure="reward",
            ),
        ),
        (BASELINE, Validation(0, "gpt-5", None, 0.5, 20, 1, 2.0, baseline=True)),
        (JUDGED, StepJudges(3, [["openai/a", "a-1", "rrr"]], 2)),
        (BEGUN, CampaignBegun(3, measure=CampaignMeasure.NOTHING)),
    ],
)  # fmt: skip
def test_what_is_written_is_read_back(code: str, event: CampaignEvent) -> None:
    assert decode_event(code, json.loads(json.dumps(encode_event(event)))) == event


def test_a_field_of_a_newer_program_is_passed_over_and_a_row_of_another_kind_is_no_event() -> None:
    assert decode_event(STEP, {**json.loads(FIRST[STEP]), "unheard_of": 1}) == STEP_DONE
    assert decode_event("somebody_elses", {"x": 1}) is None
