"""What attempts come to, version by version: measures, differences by scenario, wins, adversarial ones."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from trainer.evaluation.figures import REWARD, SUCCESS, WIN_RATE, AttemptUsage, EvaluatedAttempt, version_figures
from trainer.evaluation.request import EvaluationMeasures
from trainer.measures.arms import Arm

SIDES = [Arm("live", "helpdesk@2", 0), Arm("base", "helpdesk@0", 1)]
SOLVED = EvaluationMeasures(success=True, reward=False, wins=False)
PAID = EvaluationMeasures(success=False, reward=True, wins=False)
WON = EvaluationMeasures(success=False, reward=False, wins=True)


def made(arm: int, scenario: str, success: bool | None = None, **more: object) -> EvaluatedAttempt:
    plain = {"errored": False, "reward": None, "wins": (), "usage": AttemptUsage()} | more
    return EvaluatedAttempt(arm, scenario, success=success, **plain)  # type: ignore[arg-type]  # a test names what it needs


def attempted(arm: int, successes: dict[str, Sequence[bool | None]]) -> list[EvaluatedAttempt]:
    return [made(arm, scenario, won) for scenario, each in successes.items() for won in each]


def test_versions_are_told_in_order_and_the_first_differs_from_nobody() -> None:
    of = attempted(1, {"a": [False], "b": [True]}) + attempted(0, {"a": [True], "b": [True]})
    live, base = version_figures(SIDES, of, SOLVED)
    assert (live.name, live.model, base.name) == ("live", "helpdesk@2", "base")
    assert (live.measures[SUCCESS].value, base.measures[SUCCESS].value) == (1, 0.5)
    assert live.differences == {}
    assert base.differences[SUCCESS].value == -0.5
    assert live.measures.keys() == {SUCCESS}


def test_a_difference_is_over_the_scenarios_that_both_have_a_value_of() -> None:
    of = attempted(0, {"a": [True], "b": [None]}) + attempted(1, {"a": [False], "b": [True]})
    live, base = version_figures(SIDES, of, SOLVED)
    assert base.differences[SUCCESS].value == -1
    assert base.differences[SUCCESS].scenarios == 1
    assert (live.measures[SUCCESS].scenarios, base.measures[SUCCESS].scenarios) == (1, 2)
    assert (live.attempts, base.attempts) == (2, 2)


def test_wins_are_a_share_and_their_difference_is_what_is_won_less_what_is_lost() -> None:
    of = [made(0, "a"), made(0, "b"), made(1, "a", wins=(1.0, 0.5)), made(1, "b", wins=(1.0, 1.0))]
    live, base = version_figures(SIDES, of, WON)
    assert live.measures == {}
    assert base.measures[WIN_RATE].value == pytest.approx(0.875)
    assert base.differences[WIN_RATE].value == pytest.approx(0.75)
    assert base.differences[WIN_RATE].interval is not None
    assert base.differences[WIN_RATE].interval.high <= 1


def test_rewards_beyond_0_to_1_are_told_as_they_are() -> None:
    of = [made(arm, name, reward=reward) for arm, name, reward in ((0, "a", 3.0), (0, "b", 5.0), (1, "a", -1.0))]
    live, base = version_figures(SIDES, of, PAID)
    assert (live.measures[REWARD].value, base.measures[REWARD].value) == (4, -1)
    assert live.measures[REWARD].interval is not None
    assert live.measures[REWARD].interval.high > 1
    assert base.differences[REWARD].value == -4


def test_scenarios_that_tempt_to_cheat_are_told_apart() -> None:
    of = [made(0, "a", True), made(0, "trap", False, adversarial=True), made(1, "a", True)]
    live, base = version_figures(SIDES, [*of, made(1, "trap", True, adversarial=True)], SOLVED)
    assert (live.measures[SUCCESS].value, live.adversarial_measures[SUCCESS].value) == (1, 0)
    assert (base.measures[SUCCESS].value, base.adversarial_measures[SUCCESS].value) == (1, 1)
    assert base.differences[SUCCESS].value == 0


def test_what_attempts_took_is_a_mean_of_those_that_tell() -> None:
    took = [AttemptUsage(100, 10, None, 2.0), AttemptUsage(200, None, None, 4.0)]
    live, base = version_figures(SIDES, [made(0, "a", True, usage=one) for one in took], SOLVED)
    assert live.usage == AttemptUsage(150, 10, None, 3.0)
    assert base.usage == AttemptUsage()
    assert (base.attempts, base.measures, base.differences) == (0, {}, {})
