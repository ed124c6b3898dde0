"""When a campaign ends: the rules one by one, and which of them speaks first."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from trainer.campaign.stop import Beat, Rules, Spent, Stop, StopCode, decide
from trainer.curves import Measure
from trainer.health import Finding

values = st.floats(0, 1)
series = st.lists(values, min_size=1, max_size=30).map(
    lambda found: [Measure(step, value, 8) for step, value in enumerate(found, start=1)]
)
HACKED = Finding("reward_hacking", "pause", 9, "validations fell")
CONVERGED = Finding("converged", "stop", 9, "validations stand")
NOTED = Finding("length_drift", "note", 9, "twice as long")


def code(found: Stop | None) -> StopCode | None:
    return found.code if found else None


def flat(value: float, *, count: int = 20, attempts: int = 100) -> list[Measure]:
    return [Measure(step, value, attempts) for step in range(count)]


@given(st.lists(values, max_size=30), st.integers(0, 50), st.integers(1, 50))
def test_without_other_rules_a_campaign_ends_exactly_at_its_steps(found: list[float], done: int, steps: int) -> None:
    measures = [Measure(i, value, 8) for i, value in enumerate(found)]
    assert code(decide(measures, done, Rules(steps))) == (StopCode.STEPS if done >= steps else None)


@given(series, values, st.integers(1, 5))
def test_the_target_is_reached_when_the_last_measures_all_do(
    measures: list[Measure], target: float, needed: int
) -> None:
    stopped = code(decide(measures, len(measures), Rules(99, target, needed))) is StopCode.TARGET
    run = 0
    for measure in reversed(measures):
        if measure.value < target:
            break
        run += 1
    assert stopped == (run >= needed)


@given(series, values)
def test_a_lower_target_is_never_reached_later(measures: list[Measure], target: float) -> None:
    if decide(measures, len(measures), Rules(99, target)):
        assert decide(measures, len(measures), Rules(99, target / 2))


def test_a_target_counts_only_when_the_baseline_is_shown_to_be_beaten() -> None:
    rules = Rules(99, 0.6, beat=Beat("gpt-5", Measure(0, 0.5, 100), margin=0.02))
    assert decide([Measure(1, 0.61, 100)], 1, rules) is None  # above, and not surely so
    beaten = decide([Measure(1, 0.80, 100)], 1, rules)
    assert beaten == Stop(StopCode.TARGET, "0.800 reached the target 0.6, and beats gpt-5")


def test_a_baseline_is_beaten_by_the_attempts_of_all_measures_that_reach_the_target() -> None:
    beat = Beat("gpt-5", Measure(0, 0.5, 400))
    measures = [Measure(step, 0.58, 100) for step in range(4)]
    assert decide(measures[:1], 1, Rules(99, 0.55, 1, beat=beat)) is None
    assert code(decide(measures, 4, Rules(99, 0.55, 4, beat=beat))) is StopCode.TARGET


def test_a_goal_that_does_not_hold_keeps_the_target_from_counting_and_is_said_at_the_end() -> None:
    measures, unmet = [Measure(9, 0.9, 100)], ["turns is 7.2, not at most 5"]
    assert decide(measures, 8, Rules(9, 0.8), unmet=unmet) is None
    ended = decide(measures, 9, Rules(9, 0.8), unmet=unmet)
    said = "9 steps done; the target 0.8 was reached, but turns is 7.2, not at most 5"
    assert ended == Stop(StopCode.STEPS, said)


def test_a_goal_says_nothing_while_the_target_is_not_reached() -> None:
    assert decide([Measure(9, 0.7, 100)], 9, Rules(9, 0.8), unmet=["too many turns"]) == Stop(
        StopCode.STEPS, "9 steps done"
    )


def test_the_first_budget_that_is_spent_ends_a_campaign() -> None:
    rules = Rules(99, max_minutes=30, max_judge_usd=5, max_judge_tokens=1000)
    assert decide([], 1, rules, Spent(29.9, 4.99, 999)) is None
    assert decide([], 1, rules, Spent(30, 4, 9)) == Stop(StopCode.BUDGET, "spent 30 of 30 (max_minutes)")
    assert decide([], 1, rules, Spent(1, 5.5, 1000)) == Stop(
        StopCode.BUDGET, "spent 5.5 of 5 (max_judge_usd) and 1000 of 1000 (max_judge_tokens)"
    )


def test_epochs_end_when_every_scenario_was_trained_on_so_often() -> None:
    rules = Rules(99, epochs=2, epoch_steps=3)
    assert decide([], 5, rules) is None
    assert code(decide([], 6, rules)) is StopCode.EPOCHS
    assert code(decide([], 6, Rules(6, epochs=3, epoch_steps=3))) is StopCode.STEPS


def test_a_plateau_says_over_how_many_steps_and_by_how_much() -> None:
    assert decide(flat(0.5), 19, Rules(99, plateau_steps=10, plateau_delta=0.01)) == Stop(
        StopCode.PLATEAU,
        "no rise in 13 steps: the newer half is +0.000 from the older, not above it by 0.01 at 95 %",
    )
    assert decide(flat(0.5), 19, Rules(99)) is None


def test_a_pause_goes_before_the_target_and_what_converged_before_a_plateau() -> None:
    perfect, rules = flat(1.0), Rules(9, 1.0, plateau_steps=10)
    assert decide(perfect, 9, rules, findings=[NOTED, CONVERGED, HACKED]) == Stop(
        StopCode.PAUSED, "reward_hacking: validations fell"
    )
    assert code(decide(perfect, 9, rules, findings=[NOTED, CONVERGED])) is StopCode.TARGET
    assert code(decide(flat(0.5), 9, rules, findings=[CONVERGED])) is StopCode.CONVERGED
    assert decide([], 8, rules, findings=[NOTED]) is None


def test_target_plateau_budget_epochs_and_steps_speak_in_this_order() -> None:
    measures, spent = flat(0.5), Spent(minutes=9)
    rules = Rules(9, 0.5, plateau_steps=5, epochs=1, max_minutes=1)
    assert code(decide(measures, 9, rules, spent)) is StopCode.TARGET
    rules = replace(rules, target=None)
    assert code(decide(measures, 9, rules, spent)) is StopCode.PLATEAU
    rules = replace(rules, plateau_steps=None)
    assert code(decide(measures, 9, rules, spent)) is StopCode.BUDGET
    assert code(decide(measures, 9, replace(rules, max_minutes=None), spent)) is StopCode.EPOCHS
