"""When a canary passes, ends or waits, by what was compared so far."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from proxy.gate.canary import CanaryComparison, TrajectoryFigures, canary_outcome, compare_trajectories, ledger_figures


def tasks(count: int, new: float | None, old: float | None, *, answer_tokens: float = 100.0) -> CanaryComparison:
    """So many tasks that both sides tried, with these rewards; the new side's answers have so many tokens."""
    runs = [
        (
            TrajectoryFigures(f"task {n}", True, reward=new, answer_tokens=answer_tokens),
            TrajectoryFigures(f"task {n}", False, reward=old, answer_tokens=100.0),
        )
        for n in range(count)
    ]
    return compare_trajectories([run for both in runs for run in both])


def decided(found: CanaryComparison, waited_s: float = 0.0, *, enough: int = 1000) -> str:
    return canary_outcome(found, waited_s, tasks=enough, max_age_s=60.0)


def test_a_better_one_passes_at_once_and_one_that_is_alike_only_when_much_was_seen() -> None:
    assert decided(tasks(3, 1.0, 0.0)) == "open"
    assert decided(tasks(10, 1.0, 0.0)) == "not_worse"
    assert decided(tasks(30, 0.8, 0.8)) == "open"
    assert decided(tasks(200, 0.8, 0.8)) == "not_worse"


def test_a_reward_that_is_lower_than_is_tolerated_never_counts_as_no_worse() -> None:
    assert decided(tasks(900, 0.74, 0.80)) in ("open", "worse")
    assert not tasks(900, 0.74, 0.80).not_worse


def test_enough_tasks_are_tasks_with_rewards_on_which_nothing_is_shown() -> None:
    assert decided(tasks(30, 0.8, 0.8), enough=30) == "enough_tasks"
    assert decided(tasks(30, 0.8, 0.8), enough=31) == "open"
    assert decided(tasks(30, None, None), enough=30) == "open"
    assert decided(tasks(400, 0.8, 0.8, answer_tokens=4000.0), enough=30) == "worse"


@given(st.floats(60, 1e9))
def test_no_canary_passes_by_its_age(waited_s: float) -> None:
    assert decided(tasks(0, None, None), waited_s) == "late"
    assert decided(tasks(3, 1.0, 0.0), waited_s) == "late"
    assert decided(tasks(10, 0.0, 1.0), waited_s) == "worse"


def test_a_row_tells_of_the_reward_and_of_what_is_worse() -> None:
    assert ledger_figures(tasks(0, None, None)) == {}
    seen = ledger_figures(tasks(40, 1.0, 1.0, answer_tokens=4000.0))
    assert seen.keys() == {"worse_by", "reward", "length"}
    assert seen["worse_by"] == ["length"]
    assert (seen["reward"]["tasks"], seen["reward"]["value"]) == (40, 0.5)
