"""When a campaign ends."""

from __future__ import annotations

from hypothesis import assume, given
from hypothesis import strategies as st

from trainer.campaign.stop import Measure, Rules, Stop, StopCode, decide, last_rise

values = st.floats(0, 1)
series = st.lists(values, min_size=1, max_size=30).map(
    lambda found: [Measure(step, value) for step, value in enumerate(found, start=1)]
)


def code(found: Stop | None) -> StopCode | None:
    return found.code if found else None


@given(st.lists(values, max_size=30), st.integers(0, 50), st.integers(1, 50))
def test_without_other_rules_a_campaign_ends_exactly_at_its_steps(found: list[float], done: int, steps: int) -> None:
    measures = [Measure(i, value) for i, value in enumerate(found)]
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


@given(series, st.integers(1, 10), st.floats(0, 0.5))
def test_a_plateau_is_that_many_steps_without_a_rise(measures: list[Measure], steps: int, delta: float) -> None:
    rules = Rules(99, plateau_steps=steps, plateau_delta=delta)
    on_plateau = code(decide(measures, len(measures), rules)) is StopCode.PLATEAU
    assert on_plateau == (len(measures) - last_rise(measures, delta).step >= steps)


@given(series, st.floats(0, 0.5), values)
def test_a_new_best_by_more_than_delta_ends_any_plateau(measures: list[Measure], delta: float, gain: float) -> None:
    assume(gain > 0.001)
    best = max(m.value for m in measures) + delta + gain
    measures.append(Measure(len(measures) + 1, best))
    assert decide(measures, len(measures), Rules(99, plateau_steps=1, plateau_delta=delta)) is None


@given(series, st.floats(0, 0.5))
def test_the_last_rise_is_near_the_best_value(measures: list[Measure], delta: float) -> None:
    rise = last_rise(measures, delta)
    assert rise in measures
    assert all(m.value <= rise.value + delta for m in measures if m.step >= rise.step)


def test_small_rises_add_up() -> None:
    measures = [Measure(step, step / 100) for step in range(1, 20)]
    assert decide(measures, 19, Rules(99, plateau_steps=6, plateau_delta=0.03)) is None


def test_steps_count_between_sparse_validations() -> None:
    measures = [Measure(0, 0.5), Measure(5, 0.5)]
    rules = Rules(99, plateau_steps=10)
    assert decide(measures, 9, rules) is None
    assert decide(measures, 10, rules) == Stop(StopCode.PLATEAU, "no rise over 0.500 in 10 steps")


def test_the_target_speaks_before_plateau_and_steps() -> None:
    measures = [Measure(1, 1.0), Measure(2, 1.0)]
    assert code(decide(measures, 2, Rules(2, 1.0, 1, 1))) is StopCode.TARGET
    assert code(decide(measures, 2, Rules(2, None, 1, 1))) is StopCode.PLATEAU
