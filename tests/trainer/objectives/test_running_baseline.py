"""Advantages over a running baseline: the formulas alone, as properties."""

from __future__ import annotations

import math
import statistics
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.training.baselines import FEWEST, MOST, Baseline, EarlierReward
from trainer.objectives.running_baseline import running_advantages, running_baseline


@st.composite
def histories(draw: st.DrawFn) -> list[EarlierReward]:
    """Rewards of one alias and recipe, newest first: some judged together, of runs with two sets of tools."""
    rewards = draw(st.lists(st.sampled_from([0.0, 0.25, 1.0]), max_size=400))
    count = len(rewards)
    flips = draw(st.integers(0, 2**count))
    gaps = draw(st.integers(1, 3))
    return [
        EarlierReward(f"run_{at}", reward, b"a" if flips >> at & 1 else b"b", float((count - at) // gaps))
        for at, reward in enumerate(rewards)
    ]


@given(histories(), st.data())
def test_a_runs_own_reward_is_never_what_it_is_compared_with(history: list[EarlierReward], data: st.DataObject) -> None:
    own = data.draw(st.sampled_from(history)) if history else EarlierReward("run", 1.0, b"a", 0.0)
    with_it = running_baseline(history, own.trajectory_id, own.at, own.tools)
    others = [one for one in history if one.trajectory_id != own.trajectory_id]
    assert with_it == running_baseline(others, own.trajectory_id, own.at, own.tools)
    changed = [replace(one, reward=9.0) if one is own else one for one in history]
    assert with_it == running_baseline(changed, own.trajectory_id, own.at, own.tools)


@given(histories(), st.floats(0, 401))
def test_what_came_after_a_run_changes_nothing_once_enough_came_before(history: list[EarlierReward], at: float) -> None:
    before = [one for one in history if one.at < at]
    found = running_baseline(history, "own", at, b"a")
    if len(before) >= FEWEST:
        assert found == running_baseline(before, "own", at, b"a")
    else:  # it is among the first of its recipe
        assert found == running_baseline(history, "own", math.inf, b"a")


@given(histories())
def test_the_last_rewards_before_it_are_the_baseline_and_those_with_its_tools_first(
    history: list[EarlierReward],
) -> None:
    found = running_baseline(history, "own", math.inf, b"a")
    same = [one for one in history if one.tools == b"a"]
    if len(history) < FEWEST:
        assert found is None
        return
    chosen = (same if len(same) >= FEWEST else history)[:MOST]
    assert found is not None
    assert found.mean == pytest.approx(statistics.fmean(one.reward for one in chosen))
    assert found.std == pytest.approx(statistics.pstdev(one.reward for one in chosen), abs=1e-9)
    assert (found.rewards, found.same_tools) == (len(chosen), all(one.tools == b"a" for one in chosen))


def test_an_advantage_is_the_reward_over_its_baseline() -> None:
    baselines = {"a": Baseline(0.5, 0.25, 64, True), "b": Baseline(1.0, 0.0, 64, False)}
    assert running_advantages({"a": 1.0}, baselines) == {"a": 0.5}
    assert running_advantages({"a": 0.25, "b": 1.0}, baselines) == {"a": -0.25, "b": 0.0}
    assert running_advantages({"b": 1.0 + 9e-7}, baselines) is None
    assert running_advantages({}, baselines) is None
    divided = running_advantages({"a": 1.0}, baselines, "mean_std")
    assert divided == pytest.approx({"a": 0.5 / (0.25 * math.sqrt(64 / 63) + 1e-4)}, rel=1e-12)
    assert running_advantages({"a": 1.0}, baselines, "rank") == {"a": 0.5}
