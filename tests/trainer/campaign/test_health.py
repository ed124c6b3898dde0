"""Health rules: when each speaks, that it is silent without its figures, and how it is set."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import get_args

import pytest
from pydantic import TypeAdapter, ValidationError

from recorder.views.campaigns.events import StepDone, Validation
from trainer.campaign.health import RULES, HealthFinding, list_findings
from trainer.campaign_settings import HealthSettings, RuleName


def step(number: int, reward: float | None = None, **metrics: float) -> StepDone:
    return StepDone(number, "v", "v", None, reward, None, None, None, 64, 0, 64, metrics=metrics)


def steps(name: str, values: Sequence[float]) -> list[StepDone]:
    return [step(number, **{name: value}) for number, value in enumerate(values, start=1)]


def validations(values: Sequence[float]) -> list[Validation]:
    return [Validation(number, "v", value, None, 100, 0, 1.0) for number, value in enumerate(values)]


def rewards(values: Sequence[float], spread: float = 0.4) -> list[StepDone]:
    return [step(number, value, reward_std=spread) for number, value in enumerate(values, start=1)]


def said(
    done: Sequence[StepDone], seen: Sequence[Validation] = (), settings: Mapping[RuleName, HealthSettings] | None = None
) -> dict[str, HealthFinding]:
    return {one.rule: one for one in list_findings(done, seen, settings or {})}


def ever(done: Sequence[StepDone], seen: Sequence[Validation] = ()) -> dict[str, int]:
    """After which step each rule spoke first."""
    at: dict[str, int] = {}
    for n in range(1, len(done) + 1):
        for rule in said(done[:n], [one for one in seen if one.step <= done[n - 1].step]):
            at.setdefault(rule, n)
    return at


def rising(start: float, by: float, count: int) -> list[float]:
    return [start + by * n for n in range(count)]


def attempted(number: int, wins: Sequence[int], *, fresh: bool = False, measure: str = "reward") -> StepDone:
    """A step of eight attempts at each scenario, of which so many succeed; `fresh`: no other step has its scenarios."""
    shares = {f"{number if fresh else 's'}.{n}": won / 8 for n, won in enumerate(wins)}
    scenarios = {name: (8, share, (share * (1 - share)) ** 0.5) for name, share in shares.items()}
    mean = sum(shares.values()) / len(shares)
    return replace(step(number, mean), sampled_by=f"v@{number - 1}", scenarios=scenarios, scenario_measure=measure)


GOOD, BAD = (7, 5, 8, 6, 7, 5, 6, 5), (2, 1, 3, 1, 2, 0, 2, 2)


# --- a policy that gets worse


def test_a_policy_that_is_ruined_pauses_though_nothing_validates() -> None:
    done = [*(attempted(n, GOOD) for n in range(1, 5)), attempted(5, BAD)]
    assert ever(done) == {"reward_fall": 5}
    found = said(done)["reward_fall"]
    assert (found.then, found.step) == ("pause", 5)
    assert found.detail.startswith("the mean reward fell from 0.766 to 0.203 (by 0.56, 95 % interval 0.4")
    assert found.detail.endswith(
        "8 scenarios of the newest step beside their own earlier attempts; sampled by v@4, before by v@3"
    )
    assert found.figures["before"] == pytest.approx(0.766, abs=0.001)


def test_with_new_scenarios_in_each_step_three_steps_are_compared_with_three() -> None:
    done = [attempted(n, GOOD if n < 5 else BAD, fresh=True) for n in range(1, 9)]
    at = ever(done)["reward_fall"]
    assert 5 <= at <= 7
    assert "beside those of the steps before" in said(done[:at])["reward_fall"].detail


def test_what_the_draw_of_scenarios_does_is_no_fall() -> None:
    high, low = (8, 0, 8, 8, 1, 0, 8, 1), (0, 8, 0, 1, 0, 0, 2, 1)
    assert ever([attempted(n, low if n % 2 else high, fresh=True) for n in range(1, 20)]) == {}


def test_where_a_judge_compares_it_is_the_share_of_successes_that_falls() -> None:
    done = [attempted(n, GOOD if n < 5 else BAD, measure="success") for n in range(1, 6)]
    assert said(done)["reward_fall"].detail.startswith("the share of successes fell from 0.766 to 0.203")
    mixed = [*(attempted(n, GOOD) for n in range(1, 5)), attempted(5, BAD, measure="success")]
    assert ever(mixed) == {}  # rewards and successes do not compare
    assert ever([replace(one, scenarios={}) for one in done]) == {}  # of older programs


# --- validation beside reward


def test_validation_and_reward_that_both_rise_are_healthy() -> None:
    assert ever(rewards(rising(0.3, 0.02, 25)), validations(rising(0.3, 0.02, 26))) == {}


def test_validation_that_falls_while_the_reward_rises_pauses() -> None:
    fallen = validations([0.6] * 9 + [0.4] * 3)
    at = ever(rewards(rising(0.3, 0.02, 11)), fallen)
    assert at == {"reward_hacking": 9}
    found = said(rewards(rising(0.3, 0.02, 9)), fallen[:10])["reward_hacking"]
    assert (found.then, found.step) == ("pause", 9)
    assert found.detail == "validations fell from 0.600 to 0.400 while the reward went from 0.370 to 0.460"
    assert found.figures == pytest.approx({"validation": -0.2, "reward": 0.09})


def test_a_fall_right_after_a_rise_is_measured_from_what_was_reached() -> None:
    reached = rising(0.3, 0.02, 20)
    at = ever(rewards(rising(0.3, 0.01, 23)), validations([*reached, *[reached[-1] - 0.18] * 3]))
    assert at["reward_hacking"] == 22
    above_the_mean = said(rewards(rising(0.3, 0.01, 22)), validations([*reached, *[reached[-1] - 0.18] * 3]))
    assert "validations fell from 0.680 to 0.500" in above_the_mean["reward_hacking"].detail


def test_a_reward_that_stands_still_is_enough_since_rulers_cannot_rise() -> None:
    assert "reward_hacking" in ever(rewards([0.5] * 11), validations([0.6] * 9 + [0.4] * 3))


def test_validation_that_falls_together_with_the_reward_is_no_hacking() -> None:
    together = [0.6] * 8 + [0.2] * 3
    assert "reward_hacking" not in ever(rewards(together), validations([0.6, *together]))


def test_validation_that_stands_still_while_the_reward_rises_ends_the_campaign() -> None:
    found = ever(rewards(rising(0.3, 0.02, 20)), validations([0.5] * 21))
    assert found == {"converged": 13}
    ended = said(rewards(rising(0.3, 0.02, 13)), validations([0.5] * 14))["converged"]
    assert (ended.then, ended.detail) == ("stop", "in 13 steps validations changed by +0.000 and the reward by +0.130")


def test_nothing_converges_while_the_reward_stands_still_too() -> None:
    assert ever(rewards([0.3, 0.35] * 10), validations([0.5] * 21)) == {}


def test_a_win_rate_is_looked_at_before_successes_and_a_mean_by_its_spread() -> None:
    won = [Validation(n, "v", 0.9, 0.9, 100, 0, 1.0, win_rate=rate) for n, rate in enumerate([0.6] * 9 + [0.3] * 3)]
    assert "reward_hacking" in ever(rewards([0.5] * 11), won)
    for spread, expected in ({"reward_std": 0.4}, True), ({"reward_std": 40.0}, False), ({}, False):
        means = [
            Validation(n, "v", None, value, 100, 0, 1.0, figures=spread)
            for n, value in enumerate([7.0] * 9 + [6.0] * 3)
        ]
        assert ("reward_hacking" in ever(rewards([0.5] * 11), means)) is expected


def test_baselines_and_the_test_part_are_no_validations_of_the_campaign() -> None:
    own = validations([0.6] * 9 + [0.4] * 3)
    for others in {"baseline": True}, {"part": "test"}:
        assert ever(rewards([0.5] * 11), [replace(one, **others) for one in own]) == {}


# --- what steps say by themselves

DRIFTS = {
    "repetition": ("health.repetition", 0.05, 0.25, 0.15),
    "length_drift": ("health.length", 300, 900, 400),
    "tool_drift": ("health.tool_calls", 4, 1, 3),
    "latency_drift": ("health.seconds", 10, 40, 20),
    "entropy_collapse": ("entropy", 0.6, 0.1, 0.3),
    "zero_variance": ("health.zero_variance", 0.3, 0.9, 0.7),
    "perfect_scores": ("health.perfect", 0.3, 1.0, 0.9),
    "judge_drift": ("health.judge_agreement", 0.9, 0.5, 0.8),
}


@pytest.mark.parametrize("rule", DRIFTS)
def test_a_rule_speaks_of_its_fault_and_of_no_smaller_one(rule: str) -> None:
    metric, before, fault, smaller = DRIFTS[rule]
    assert ever(steps(metric, [before] * 10 + [fault] * 6)).keys() == {rule}
    assert ever(steps(metric, [before] * 10 + [smaller] * 6)) == {}


@pytest.mark.parametrize("rule", DRIFTS)
def test_one_odd_step_is_no_drift_but_where_it_outweighs_the_others(rule: str) -> None:
    metric, before, _, smaller = DRIFTS[rule]
    assert ever(steps(metric, [before] * 10 + [smaller] + [before] * 6)) == {}


def test_a_strong_judge_that_scores_is_a_drift_and_is_told_once() -> None:
    made = [
        step(n, 0.5, **{"health.strong_agreement": 0.8 - 0.1 * n, "health.strong_scores": float(n in (4, 5, 7))})
        for n in range(1, 9)
    ]
    assert ever(made[:3]) == {}
    assert ever(made) == {"judge_drift": 4}
    found = said(made[:4])["judge_drift"]
    assert found.then == "note"
    assert found.figures["strong_agreement"] == pytest.approx(0.4)
    assert found.detail == "the judge and the strong judge agree by 0.40 (mean tau-b): the strong judge scores"


def test_attempts_that_become_much_shorter_drift_too() -> None:
    assert ever(steps("health.length", [900] * 10 + [200] * 3)).keys() == {"length_drift"}
    assert ever(steps("health.seconds", [40] * 10 + [2] * 3)) == {}  # sooner done is no fault


def gaps(*found: float, bound: float = 1e-5) -> list[StepDone]:
    """Steps of these mean gaps; None of them compared: nan."""
    each = ({} if math.isnan(gap) else {"logprob_gap_bound": bound} for gap in found)
    return [
        step(n, 0.5, logprob_gap=gap, fresh_tokens=100.0, **figures)
        for n, (gap, figures) in enumerate(zip(found, each, strict=True))
    ]


def test_an_engine_further_away_than_its_bound_pauses_once_until_that_changes() -> None:
    assert ever(gaps(8e-6, 9e-6)) == {}
    found = said(gaps(8e-6, 2e-2))["logprob_gap"]
    assert found.then == "pause"
    assert found.figures == {"logprob_gap": 2e-2, "bound": 1e-5}
    assert "0.02 nats a token" in found.detail
    assert "hone doctor" in found.detail
    spoke = [n for n in range(1, 8) if said(gaps(8e-6, 2e-2, 2e-2, 3e-2, 8e-6, 8e-6, 2e-2)[:n])]
    assert spoke == [2, 7]
    assert ever(gaps(2e-2, bound=0.06)) == {}
    assert ever(gaps(math.nan, math.nan)) == {}  # too few fresh tokens to compare
    looser: dict[RuleName, HealthSettings] = {"logprob_gap": HealthSettings(at=3000)}
    assert said(gaps(2e-2), settings=looser) == {}


def test_a_step_with_few_fresh_tokens_is_measured_by_its_parents_probe() -> None:
    few = [step(1, 0.5, fresh_tokens=2.0, probe_gap=1e-6, probe_gap_bound=2e-5)]
    assert ever(few) == {}
    found = said([*few, step(2, 0.5, fresh_tokens=2.0, probe_gap=0.02, probe_gap_bound=2e-5)])["logprob_gap"]
    assert (found.then, found.figures) == ("pause", {"logprob_gap": 0.02, "bound": 2e-5})
    assert "the probe of the parent version" in found.detail


def test_many_masked_turns_are_told_once_until_they_are_few() -> None:
    done = [step(n, 0.5, engine_mismatch=share) for n, share in enumerate((0.0, 0.05, 0.2, 0.3, 0.01, 0.06), start=1)]
    assert [n for n in range(1, 7) if "engine_mismatch" in said(done[:n])] == [3, 6]
    found = said(done[:3])["engine_mismatch"]
    assert (found.then, found.figures) == ("note", {"engine_mismatch": 0.2})
    assert found.detail.startswith("20 % of the turns")
    assert ever(steps("health.length", [300] * 9)) == {}  # nothing was compared


def test_a_jump_of_the_reward_is_measured_by_the_spread_of_attempts() -> None:
    assert ever(rewards([0.3] * 6 + [0.7])) == {"reward_jump": 7}
    assert ever(rewards([0.3] * 6 + [0.55])) == {}
    assert ever(rewards([30.0] * 6 + [70.0], spread=400.0)) == {}
    assert ever([step(n, reward) for n, reward in enumerate([0.3] * 6 + [0.7])]) == {}  # the spread is not known


def test_parts_that_go_different_ways_are_told_with_both() -> None:
    def parted(correct: Sequence[float], brief: Sequence[float]) -> list[StepDone]:
        return [
            step(n, **{"part.correct": c, "part.brief": b, "part.brief.words": n})
            for n, (c, b) in enumerate(zip(correct, brief, strict=True), start=1)
        ]

    found = said(parted([0.4] * 5 + [0.7] * 5, [0.8] * 5 + [0.5] * 5))["part_divergence"]
    assert found.detail == "correct went +0.300 while brief went -0.300"
    assert said(parted([0.4] * 5 + [0.7] * 5, [0.8] * 10)) == {}
    wild = [0.2, 0.9, 0.1, 0.8, 0.2, 0.9, 0.6, 0.7, 0.9, 0.4]
    assert said(parted(wild, wild[::-1])) == {}


# --- all of them


def test_without_figures_no_rule_says_anything() -> None:
    assert list_findings([], [], {}) == []
    assert ever([step(n) for n in range(30)], [Validation(n, "v", None, None, 0, 9, 1.0) for n in range(30)]) == {}


def test_a_rule_is_silent_after_it_has_spoken_until_it_has_not_held() -> None:
    long, short = [900.0] * 4, [300.0] * 8
    done = steps("health.length", [*short, *long, *short, *long])
    spoke = [n for n in range(1, len(done) + 1) if said(done[:n])]
    assert len(spoke) == 2
    assert spoke[0] < 12 < spoke[1]


def test_a_rule_takes_its_threshold_and_its_consequence_from_the_settings() -> None:
    done = steps("health.length", [300] * 10 + [700] * 3)
    assert said(done)["length_drift"].then == "note"
    assert said(done, settings={"length_drift": HealthSettings(then="pause")})["length_drift"].then == "pause"
    assert said(done, settings={"length_drift": HealthSettings(at=4)}) == {}
    assert said(done, settings={"length_drift": HealthSettings(then="off")}) == {}


def test_every_rule_has_defaults_and_only_known_ones_can_be_set() -> None:
    assert set(RULES) == set(get_args(RuleName))
    pausing = [name for name, rule in RULES.items() if rule.then == "pause"]
    assert pausing == ["reward_hacking", "logprob_gap", "reward_fall"]
    check = TypeAdapter(dict[RuleName, HealthSettings])
    assert check.validate_python({"logprob_gap": {"at": 0.1}})["logprob_gap"].then is None
    wrong: list[dict[str, object]] = [
        {"no_such_rule": {}}, {"logprob_gap": {"at": 0}}, {"logprob_gap": {"then": "stop"}}
    ]  # fmt: skip
    for given in wrong:
        with pytest.raises(ValidationError):
            check.validate_python(given)


def test_the_page_tells_every_rule_with_its_defaults() -> None:
    page = (Path(__file__).parents[3] / "docs" / "health.md").read_text("utf-8")
    rows = re.findall(r"^\| `(\w+)` \| [^|]+ \| ([\d.]+) \| (pause|note|the campaign ends) \|", page, re.MULTILINE)
    words = {"stop": "the campaign ends"}
    assert {name: (float(at), then) for name, at, then in rows} == {
        name: (rule.at, words.get(rule.then, rule.then)) for name, rule in RULES.items()
    }
