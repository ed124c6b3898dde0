"""When a campaign ends: the rules one by one, and which of them speaks first."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from recorder.stats.means import PooledMeasure
from trainer.campaign.health import HealthFinding
from trainer.campaign.stop_rules import BeatGoal, CampaignCost, StopCode, StopDecision, StopRules, decide_stop

values = st.floats(0, 1)
series = st.lists(values, min_size=1, max_size=30).map(
    lambda found: [PooledMeasure(step, value, 8) for step, value in enumerate(found, start=1)]
)
HACKED = HealthFinding("reward_hacking", "pause", 9, "validations fell")
CONVERGED = HealthFinding("converged", "stop", 9, "validations stand")
NOTED = HealthFinding("length_drift", "note", 9, "twice as long")


def code(found: StopDecision | None) -> StopCode | None:
    return found.code if found else None


def flat(value: float, *, count: int = 20, attempts: int = 100) -> list[PooledMeasure]:
    return [PooledMeasure(step, value, attempts) for step in range(count)]


@given(st.lists(values, max_size=30), st.integers(0, 50), st.integers(1, 50))
def test_without_other_rules_a_campaign_ends_exactly_at_its_steps(found: list[float], done: int, steps: int) -> None:
    measures = [PooledMeasure(i, value, 8) for i, value in enumerate(found)]
    assert code(decide_stop(measures, done, StopRules(steps))) == (StopCode.STEPS if done >= steps else None)


@given(series, values, st.integers(1, 5))
def test_the_target_is_reached_when_the_last_measures_all_do(
    measures: list[PooledMeasure], target: float, needed: int
) -> None:
    stopped = code(decide_stop(measures, len(measures), StopRules(99, target, needed))) is StopCode.TARGET
    run = 0
    for measure in reversed(measures):
        if measure.value < target:
            break
        run += 1
    assert stopped == (run >= needed)


@given(series, values)
def test_a_lower_target_is_never_reached_later(measures: list[PooledMeasure], target: float) -> None:
    if decide_stop(measures, len(measures), StopRules(99, target)):
        assert decide_stop(measures, len(measures), StopRules(99, target / 2))


def test_a_target_counts_only_when_the_baseline_is_shown_to_be_beaten() -> None:
    rules = StopRules(99, 0.6, beat=BeatGoal("gpt-5", PooledMeasure(0, 0.5, 100), margin=0.02))
    assert decide_stop([PooledMeasure(1, 0.61, 100)], 1, rules) is None  # above, and not surely so
    beaten = decide_stop([PooledMeasure(1, 0.80, 100)], 1, rules)
    assert beaten == StopDecision(StopCode.TARGET, "0.800 reached the target 0.6, and beats gpt-5")


def test_a_baseline_is_beaten_by_the_attempts_of_all_measures_that_reach_the_target() -> None:
    beat = BeatGoal("gpt-5", PooledMeasure(0, 0.5, 400))
    measures = [PooledMeasure(step, 0.58, 100) for step in range(4)]
    assert decide_stop(measures[:1], 1, StopRules(99, 0.55, 1, beat=beat)) is None
    assert code(decide_stop(measures, 4, StopRules(99, 0.55, 4, beat=beat))) is StopCode.TARGET


def test_a_goal_that_does_not_hold_keeps_the_target_from_counting_and_is_said_at_the_end() -> None:
    measures, unmet = [PooledMeasure(9, 0.9, 100)], ["turns is 7.2, not at most 5"]
    assert decide_stop(measures, 8, StopRules(9, 0.8), unmet=unmet) is None
    ended = decide_stop(measures, 9, StopRules(9, 0.8), unmet=unmet)
    said = "9 steps done; the target 0.8 was reached, but turns is 7.2, not at most 5"
    assert ended == StopDecision(StopCode.STEPS, said)


def test_a_goal_says_nothing_while_the_target_is_not_reached() -> None:
    assert decide_stop([PooledMeasure(9, 0.7, 100)], 9, StopRules(9, 0.8), unmet=["too many turns"]) == StopDecision(
        StopCode.STEPS, "9 steps done"
    )


def test_the_first_budget_that_is_spent_ends_a_campaign() -> None:
    rules = StopRules(99, max_minutes=30, max_judge_usd=5, max_judge_tokens=1000)
    assert decide_stop([], 1, rules, CampaignCost(29.9, 4.99, 999)) is None
    assert decide_stop([], 1, rules, CampaignCost(30, 4, 9)) == StopDecision(
        StopCode.BUDGET, "spent 30 of 30 (max_minutes)"
    )
    assert decide_stop([], 1, rules, CampaignCost(1, 5.5, 1000)) == StopDecision(
        StopCode.BUDGET, "spent 5.5 of 5 (max_judge_usd) and 1000 of 1000 (max_judge_tokens)"
    )


def test_epochs_end_when_every_scenario_was_trained_on_so_often() -> None:
    rules = StopRules(99, epochs=2, epoch_steps=3)
    assert decide_stop([], 5, rules) is None
    assert code(decide_stop([], 6, rules)) is StopCode.EPOCHS
    assert code(decide_stop([], 6, StopRules(6, epochs=3, epoch_steps=3))) is StopCode.STEPS


def test_a_plateau_says_over_how_many_steps_and_by_how_much() -> None:
    assert decide_stop(flat(0.5), 19, StopRules(99, plateau_steps=10, plateau_delta=0.01)) == StopDecision(
        StopCode.PLATEAU,
        "no rise in 13 steps: the newer half is +0.000 from the older, not above it by 0.01 at 95 %",
    )
    assert decide_stop(flat(0.5), 19, StopRules(99)) is None


def test_a_schedule_that_has_ended_ends_the_campaign_unless_all_its_steps_are_done() -> None:
    rules = StopRules(9, schedule_ended="the learning rate is 0")
    assert decide_stop([], 4, rules) == StopDecision(StopCode.SCHEDULE_ENDED, "the learning rate is 0")
    assert code(decide_stop([], 9, rules)) is StopCode.STEPS
    assert decide_stop([], 4, replace(rules, schedule_ended=None)) is None


def test_a_pause_goes_before_the_target_and_what_converged_before_a_plateau() -> None:
    perfect, rules = flat(1.0), StopRules(9, 1.0, plateau_steps=10)
    assert decide_stop(perfect, 9, rules, findings=[NOTED, CONVERGED, HACKED]) == StopDecision(
        StopCode.PAUSED, "reward_hacking: validations fell"
    )
    assert code(decide_stop(perfect, 9, rules, findings=[NOTED, CONVERGED])) is StopCode.TARGET
    assert code(decide_stop(flat(0.5), 9, rules, findings=[CONVERGED])) is StopCode.CONVERGED
    assert decide_stop([], 8, rules, findings=[NOTED]) is None


def test_target_plateau_budget_epochs_and_steps_speak_in_this_order() -> None:
    measures, spent = flat(0.5), CampaignCost(minutes=9)
    rules = StopRules(9, 0.5, plateau_steps=5, epochs=1, max_minutes=1)
    assert code(decide_stop(measures, 9, rules, spent)) is StopCode.TARGET
    rules = replace(rules, target=None)
    assert code(decide_stop(measures, 9, rules, spent)) is StopCode.PLATEAU
    rules = replace(rules, plateau_steps=None)
    assert code(decide_stop(measures, 9, rules, spent)) is StopCode.BUDGET
    assert code(decide_stop(measures, 9, replace(rules, max_minutes=None), spent)) is StopCode.EPOCHS
