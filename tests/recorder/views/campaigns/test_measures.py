"""A mean is over attempts that ended by themselves; those that errored are counted beside it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.stats import means
from recorder.views.campaigns.events import CampaignMeasure, StepDone, Validation
from recorder.views.campaigns.measures import compute_measure, count_measured, infer_measure

SUCCESS, WINS, REWARD, NOTHING = CampaignMeasure
STEP = StepDone(3, "helpdesk@3", "helpdesk@2", 0.5, 0.4, None, None, None, 32, 16, 10, metrics={"reward_std": 0.2})
VALIDATION = Validation(3, "helpdesk@3", None, 0.4, 20, 2, 5.0, figures={"reward_std": 0.2})


def test_a_step_of_which_half_errored_is_measured_over_the_other_half() -> None:
    found = compute_measure(STEP, SUCCESS)
    assert found is not None
    assert found.interval is not None
    assert (found.kind, found.value, found.of, found.errored, found.source) == ("success", 0.5, 16, 16, "step")
    assert (round(found.interval.low, 3), round(found.interval.high, 3)) == (0.280, 0.720)


def test_a_step_that_says_how_many_were_measured_is_believed() -> None:
    """Some were not scored, and attempts at scenarios that tempt to cheat are measured apart."""
    found = compute_measure(replace(STEP, measured_attempts=12), SUCCESS)
    assert found is not None
    assert (found.of, found.errored) == (12, 16)


def test_what_an_agent_spoilt_is_a_failure_of_its_version_and_not_counted_twice() -> None:
    spoilt = replace(STEP, success=0.25, measured_attempts=32, agent_failures=16)
    found = compute_measure(spoilt, SUCCESS)
    assert found is not None
    assert (found.of, found.errored) == (32, 0)
    by_reward = compute_measure(replace(spoilt, success=None, measured_attempts=16), REWARD)
    assert by_reward is not None
    assert (by_reward.of, by_reward.errored) == (16, 16)


def test_a_reward_has_an_interval_where_its_spread_is_known() -> None:
    for event in (STEP, VALIDATION):
        found = compute_measure(event, REWARD)
        assert found is not None
        assert found.interval == means.mean_interval(0.4, 0.2, count_measured(event))
    unknown = compute_measure(replace(VALIDATION, figures={}), REWARD)
    assert unknown is not None
    assert unknown.interval is None


def test_what_was_not_measured_is_no_measure() -> None:
    assert compute_measure(STEP, WINS) is None
    assert compute_measure(STEP, NOTHING) is None
    assert compute_measure(VALIDATION, SUCCESS) is None
    won = compute_measure(replace(VALIDATION, win_rate=0.75), WINS)
    assert won is not None
    assert (won.kind, won.of, won.source) == ("win rate", 20, "validation")


@pytest.mark.parametrize(
    ("event", "by"),
    [
        (STEP, SUCCESS), (replace(STEP, success=None), REWARD), (VALIDATION, REWARD),
        (replace(VALIDATION, win_rate=0.5), WINS), (replace(VALIDATION, reward=None), NOTHING),
    ],
)  # fmt: skip
def test_an_older_campaign_is_measured_by_what_its_events_have(event: StepDone, by: CampaignMeasure) -> None:
    assert infer_measure([event]) == by


@given(st.integers(0, 200), st.integers(0, 200), st.floats(0, 1))
def test_errored_attempts_never_widen_or_narrow_an_interval(ended: int, errored: int, share: float) -> None:
    alone = compute_measure(replace(STEP, success=share, attempts=ended, errored=0), SUCCESS)
    beside = compute_measure(replace(STEP, success=share, attempts=ended + errored, errored=errored), SUCCESS)
    assert alone is not None
    assert beside is not None
    assert (beside.of, beside.interval) == (alone.of, alone.interval)
    assert beside.errored == errored
