"""The simulated campaigns: the rules keep what is promised of them, and the page shows the committed figures."""

from __future__ import annotations

import json
from typing import cast

import numpy as np
import pytest

from benchmarks import health
from trainer.campaign.health import RULES

# These two compare with a fixed bound.
SIMULATED = [rule for rule in RULES if rule not in ("logprob_gap", "engine_mismatch")]
FALLS = [case for case in health.CASES if case.rule == "reward_hacking"]
# From level ground, from a rise of 2 and of 4 points a validation, and from one that began ten validations before.
SUDDEN = [
    "validation falls at once by",
    "validation falls from a rise of .02 a step by",
    "validation falls from a rise of .04 a step by",
    "validation falls from a rise of .04 in ten steps by",
]


def committed() -> health.Figures:
    return cast(health.Figures, json.loads(health.RESULTS.read_text("utf-8")))


def test_the_committed_campaigns_keep_what_is_promised() -> None:
    found = committed()
    assert (found["curves"], found["attempts"]) == (1000, 100)
    assert found["false_alarms"].keys() == {*SIMULATED, "any pause"}
    assert found["false_alarms"]["any pause"] <= 0.01
    falls = {one["what"]: one["within_3"] for one in found["found"] if one["size"] == 0.2}
    assert {what: falls[what] for what in SUDDEN if falls[what] < 0.95} == {}
    assert found["plateau"]["0.02"][str(health.VALIDATIONS)] <= 0.05
    assert found["plateau"]["0.0"]["20"] >= 0.95


def test_the_page_shows_the_committed_figures() -> None:
    page = health.PAGE.read_text("utf-8")
    assert health.MARKS.put(page, health.tables(committed())) == page


def test_every_rule_has_a_fault_that_it_is_there_for_and_finds_the_largest() -> None:
    found = committed()["found"]
    for rule in SIMULATED:
        sizes = [one for one in found if one["rule"] == rule]
        assert sizes, rule
        assert max(one["found"] for one in sizes) >= 0.9, rule


@pytest.mark.slow
def test_the_program_runs_at_a_small_size() -> None:
    figures = health.measure(2)
    assert figures["curves"] == 2
    assert [(one["rule"], one["size"]) for one in figures["found"]] == [
        (case.rule, size) for case in health.CASES for size in case.sizes
    ]
    assert health.tables(figures).count("\n") > len(figures["found"])


@pytest.mark.slow
@pytest.mark.parametrize("campaigns", [200, pytest.param(1000, marks=pytest.mark.long)])
def test_at_most_one_of_a_hundred_healthy_campaigns_is_paused(campaigns: int) -> None:
    rng, settings = np.random.default_rng(21), health.alone("reward_hacking")
    assert [name for name, rule in RULES.items() if rule.then == "pause"] == [
        "reward_hacking", "logprob_gap", "reward_fall",
    ]  # fmt: skip
    paused = sum(bool(health.first_spoken(*health.run(health.healthy(rng), rng), settings)) for _ in range(campaigns))
    assert paused <= campaigns / 100


@pytest.mark.slow
@pytest.mark.parametrize("campaigns", [150, pytest.param(600, marks=pytest.mark.long)])
@pytest.mark.parametrize("case", [case for case in FALLS if case.what in SUDDEN], ids=lambda case: case.what)
def test_a_fall_of_twenty_points_while_the_reward_rises_pauses_within_three_validations(
    case: health.Case, campaigns: int
) -> None:
    assert health.found(case, 0.2, campaigns, np.random.default_rng(22))["within_3"] >= 0.95
