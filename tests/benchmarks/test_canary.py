"""The simulated canaries: the committed figures keep the promise, and runs are valued as in service."""

from __future__ import annotations

import json

import numpy as np
import pytest

from benchmarks import canary
from proxy.gate.canary import SECONDS_LOG2, TOKENS_LOG2, ComparedFigure, TrajectoryFigures, figure_value, null_mean


def test_the_committed_canaries_keep_what_is_promised() -> None:
    found = json.loads(canary.RESULTS.read_text())
    assert (found["canaries"], found["runs_a_side"], found["within"]) == (2000, 2000, 500)
    assert found["rejected_alike"].keys() == found["found_worse"].keys() == canary.SHAPES.keys()
    for rejected in found["rejected_alike"].values():
        assert rejected["any"] <= 0.05
    for name in ("alone", "half", "tenth", "held"):
        assert found["found_worse"][name]["reward .50 → .35"]["found"] >= 0.90


def test_the_committed_canaries_pass_where_they_are_alike_and_seldom_where_they_are_worse() -> None:
    found = json.loads(canary.RESULTS.read_text())
    assert found["max_tasks"] == canary.MAX_TASKS
    assert found["decided"].keys() == canary.SHAPES.keys()
    for by in found["decided"].values():
        assert by["alike"]["live"] >= 0.95
        assert by["reward .50 → .35"]["live_as_not_worse"] <= 0.05
    for name in ("half", "tenth", "held"):
        assert found["decided"][name]["reward .50 → .35"]["live"] <= 0.05


def test_a_canary_is_decided_by_what_was_compared_alone() -> None:
    rng = np.random.default_rng(1)
    for shape in canary.SHAPES.values():
        alike = canary.decided(shape, canary.BEFORE, 4, rng)
        assert alike["live"] + alike["taken_away"] == 1.0
        assert alike["median_tasks"] <= canary.MAX_TASKS
        assert canary.decided(shape, canary.Version(errors=1.0), 4, rng)["taken_away"] == 1.0


def test_a_few_canaries_give_values_in_bounds_and_the_broken_are_found() -> None:
    rng = np.random.default_rng(1)
    for shape in canary.SHAPES.values():
        for seen in canary.simulate(shape, canary.BEFORE, 40, 3, rng).values():
            assert seen.shape == (3, shape.tasks(40))
            assert bool(((seen >= 0) & (seen <= 1)).all())
    broken = canary.Version(errors=1.0)
    assert canary.found_worse(canary.SHAPES["half"], broken, 10, rng)["found"] == 1.0


def test_a_run_is_worth_in_the_simulation_what_it_is_worth_in_service() -> None:
    for amount in (0.5, 3.0, 77.0, 5000.0):
        real = TrajectoryFigures("g", True, answer_tokens=amount, call_s=amount)
        for figure, bounds in ((ComparedFigure.LENGTH, TOKENS_LOG2), (ComparedFigure.LATENCY, SECONDS_LOG2)):
            assert float(canary.shortness(np.array(amount), bounds)) == pytest.approx(figure_value(real, figure))


def test_a_group_of_one_side_alone_bets_nothing() -> None:
    values, one_side = np.array([[[0.0, 1.0]]]), np.array([[[True, True]]])
    assert float(canary.set_against(values, one_side, null_mean(ComparedFigure.LENGTH))[0, 0]) == null_mean(
        ComparedFigure.LENGTH
    )
