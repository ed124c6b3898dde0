"""The simulated campaigns of `reward_fall`: at most one in a hundred without a fall is paused, and falls are found."""

from __future__ import annotations

import json
import statistics
from typing import cast

import numpy as np
import pytest

from benchmarks import health, reward_fall
from trainer.campaign.health import RULES

SMALL = (reward_fall.Shape(40, 8, 8), reward_fall.Shape(16, 4, 4))  # the others take seconds each


def committed() -> reward_fall.Figures:
    return cast(reward_fall.Figures, json.loads(reward_fall.RESULTS.read_text("utf-8")))


def test_the_committed_campaigns_keep_what_is_promised() -> None:
    kept = committed()
    assert kept["campaigns"] == 1000
    assert len(kept["without"]) == len(reward_fall.SHAPES)
    assert max(one["signals"] for one in kept["without"]) <= 0.01
    assert max(one["mean_alone"] for one in kept["without"]) > 0.5  # by the draw alone


def test_the_page_shows_the_committed_figures() -> None:
    page = reward_fall.PAGE.read_text("utf-8")
    assert reward_fall.MARKS.put(page, reward_fall.tables(committed())) == page


@pytest.mark.slow
def test_the_program_runs_at_a_small_size() -> None:
    figures = reward_fall.measure(2, 2)
    assert len(figures["fallen"]) == len(reward_fall.SHAPES) * len(reward_fall.FALLEN)
    assert reward_fall.tables(figures).count("\n") > len(figures["fallen"])


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, id=str(shape), marks=() if shape in SMALL else pytest.mark.long)
        for shape in reward_fall.SHAPES
    ],
)
def test_at_most_one_of_a_hundred_campaigns_without_a_fall_is_paused(shape: reward_fall.Shape) -> None:
    assert reward_fall.without_fall(shape, 100, np.random.default_rng(23))["signals"] <= 0.01


@pytest.mark.slow
def test_a_policy_that_is_ruined_is_found_soon() -> None:
    """The public report: from 0.772 to 0.203, eight scenarios of eight attempts, new ones in every step."""
    rng, found = np.random.default_rng(24), []
    for _ in range(40):
        done = reward_fall.campaign(reward_fall.Shape(1000, 8, 8), 12, rng, left=0.26, after=6)
        if statistics.fmean(step.reward or 0.0 for step in done[:6]) > 0.7:
            at = health.first_spoken(done, (), health.alone("reward_fall"))
            found.append(6 < at.get("reward_fall", 99) <= 9)
    assert RULES["reward_fall"].then == "pause"
    assert len(found) >= 5
    assert statistics.fmean(found) >= 0.9
