"""What a campaign would take: every round counted, and tokens by what earlier runs used or by lengths."""

from __future__ import annotations

from typing import Any

import pytest

from judge.settings import JudgeSettings, RewardSettings
from recorder.queue.training.cost_estimates import TrajectoryCost
from trainer.campaign.estimate import (
    CampaignCounts,
    TokenEstimate,
    agent_tokens,
    count_campaign,
    judge_tokens,
    recipe_judges,
    scale_counts,
)
from trainer.campaign.record import CampaignPlan
from trainer.campaign_settings import CampaignSettings
from trainer.tasks.scenarios import Scenario

PLAIN = Scenario("plain", "x" * 400)
CRITERIA = Scenario("criteria", "x" * 40, rubric=["a" * 20, {"text": "b", "check": "m:f"}])
CODED = Scenario("coded", "x" * 40, rubric=[{"text": "b", "check": "m:f"}])


RULER = RewardSettings(kind="ruler")
RUBRIC = RewardSettings(kind="rubric")
FUNCTION = RewardSettings(kind="function", function="m:f")
FEEDBACK = RewardSettings(kind="feedback", name="thumbs")
RULE = RewardSettings(kind="rule", rule="max_turns", value=3, effect="penalty")


def judge_settings(*rewards: RewardSettings) -> JudgeSettings:
    return JudgeSettings(model="openai/judge", max_tokens=100, rewards=list(rewards))


def plan(
    train: list[Scenario], val: list[Scenario] | None = None, test: list[Scenario] | None = None, **settings: Any
) -> CampaignPlan:
    made = CampaignSettings.model_validate({"steps": 3, "group_size": 4, "scenarios_per_step": 8} | settings)
    return CampaignPlan("tasks", made, train, val or [], test or [])


def test_attempts_are_counted_by_what_each_step_draws_and_each_validation_measures() -> None:
    found = count_campaign(plan([PLAIN, CODED], [PLAIN], val_attempts=2), [])
    assert (found.training, found.validation, found.validations) == (3 * 2 * 4, 2 * 2, 2)
    assert count_campaign(plan([PLAIN, CODED], scenarios_per_step=1), []).training == 3 * 4
    assert count_campaign(plan([PLAIN]), []).validations == 0


@pytest.mark.parametrize(("every", "times"), [(None, 2), (1, 4), (2, 3), (3, 2), (9, 2)])
def test_a_validation_that_falls_on_the_last_step_is_one(every: int | None, times: int) -> None:
    assert count_campaign(plan([PLAIN], [PLAIN], val_every=every), []).validations == times


def test_the_test_part_is_attempted_once_by_what_serves_and_by_the_base() -> None:
    given = plan([PLAIN], [CODED], [CRITERIA, PLAIN], val_attempts=3, success="m:f")
    found = count_campaign(given, [RULER])
    assert (found.training, found.validation, found.test) == (3 * 4, 2 * 3, 2 * 2 * 3)
    assert found.attempts == 12 + 6 + 12
    assert found.ruler == 3 + 2 + 2 * 2


def test_each_baseline_is_measured_once_before_and_once_at_the_end() -> None:
    given = plan([PLAIN], [PLAIN], [CODED], success="m:f", baselines=["base", "gpt-5"])
    found = count_campaign(given, [])
    assert (found.validations, found.baselines) == (2, 2)
    assert (found.validation, found.test) == (2 + 2, 3)  # at the end: what serves, version 0 and gpt-5
    assert count_campaign(plan([PLAIN], None, [CODED]), []).test == 2


def test_where_wins_are_counted_version_0_attempts_each_scenario_beside_every_side() -> None:
    found = count_campaign(plan([PLAIN], [PLAIN], [CODED], baselines=["gpt-5"]), [RULER])
    assert (found.validation, found.test) == (3 * 2, 3 * 2)
    assert found.ruler == 3 + 3 + 3


def test_follow_ups_ask_at_most_once_an_attempt_in_every_round_that_is_judged() -> None:
    follow_up = RewardSettings(kind="follow_up")
    found = count_campaign(plan([PLAIN], [PLAIN], val_attempts=2), [follow_up, RULER])
    assert (found.follow_up, found.judged) == (found.attempts, found.attempts)
    assert found.requests == found.attempts + found.ruler
    assert found.answers_shown == 2 * found.attempts  # by RULER, and each by itself
    assert scale_counts(found, 2).follow_up == found.attempts / 2
    assert recipe_judges(judge_settings(follow_up)) == "openai/judge"
    counted = judge_tokens(found, judge_settings(follow_up), TokenEstimate(None, None, ""), None, "a")
    assert counted.answered == 100 * found.requests


def test_turns_are_asked_about_once_an_attempt() -> None:
    turns = RewardSettings(kind="turns", weight=0)
    found = count_campaign(plan([PLAIN], [PLAIN], val_attempts=2), [turns, RULER])
    assert (found.turns, found.judged) == (found.attempts, found.attempts)
    assert found.requests == found.attempts + found.ruler
    assert count_campaign(plan([PLAIN], [PLAIN], val_attempts=2), [turns, RULER], moving=True).turns == 0
    assert scale_counts(found, 2).turns == found.attempts / 2
    assert recipe_judges(judge_settings(turns, FEEDBACK)) == "openai/judge"


def test_what_tempts_is_counted_in_its_share() -> None:
    adversarial = Scenario("adversarial", "x" * 4000, adversarial=True)
    found = count_campaign(plan([PLAIN, adversarial], scenarios_per_step=1, steps=10, adversarial_share=0.2), [])
    assert (found.training, found.input_tokens) == (10 * 4, 4 * (8 * 100 + 2 * 1000))


def test_refills_count_as_if_every_step_took_all_that_it_may() -> None:
    listed = [Scenario(f"task-{n}", "x" * 400) for n in range(8)]
    found = count_campaign(plan(listed, scenarios_per_step=2, steps=4, refill=0.25), [])
    assert (found.training, found.input_tokens) == (4 * (2 * 4 + 2), 100 * 4 * (2 * 4 + 2))
    assert count_campaign(plan(listed, scenarios_per_step=8, steps=4, refill=0.25), []).training == 4 * 8 * 4


def test_ruler_is_asked_once_a_group_and_not_about_one_run() -> None:
    found = count_campaign(plan([PLAIN, CODED], [PLAIN]), [RULER, FEEDBACK, RULE])
    assert (found.ruler, found.rubric, found.judged) == (3 * 2, 0, 3 * 2 * 4)


def test_a_rubric_is_asked_once_a_response_where_a_criterion_is_for_a_model() -> None:
    found = count_campaign(plan([PLAIN, CRITERIA, CODED], [CRITERIA]), [RUBRIC])
    assert (found.ruler, found.rubric, found.judged) == (0, 3 * 4 + 2, 3 * 4 + 2)


def test_what_earlier_runs_used_goes_before_lengths() -> None:
    settings = CampaignSettings(agent="hone:answer", max_tokens=50)
    counts = CampaignCounts(training=10, judged=8, ruler=2, input_tokens=100)
    agent = agent_tokens(counts, settings, TrajectoryCost(7, 30.5, 9.0), "helpdesk")
    assert agent == TokenEstimate(305, 90, "from the newest 7 trajectories of helpdesk")
    judge = judge_tokens(counts, judge_settings(RULER), agent, TrajectoryCost(6, 100.0, 10.0), "helpdesk")
    assert (judge.sent, judge.answered) == (800, 80)
    assert judge.basis == "from the newest 6 trajectories of helpdesk that openai/judge judged"


def test_without_earlier_runs_the_lengths_and_the_most_that_is_answered_tell() -> None:
    given = plan([CRITERIA], agent="hone:answer", max_tokens=50, steps=1)
    counts = count_campaign(given, [RUBRIC, RULER])
    agent = agent_tokens(counts, given.settings, None, "helpdesk")
    assert (agent.sent, agent.answered) == (4 * 10, 4 * 50)
    judge = judge_tokens(counts, judge_settings(), agent, None, "helpdesk")
    rubric = counts.material_tokens - 2 * 4 * 10  # each of the two sees each input; the criteria stand in 4 + 1 prompts
    assert rubric > 0
    assert rubric % 5 == 0
    assert (judge.sent, judge.answered) == (counts.material_tokens + 2 * 4 * 50, 5 * 100)


def test_what_nobody_can_know_is_not_told() -> None:
    counts = count_campaign(plan([PLAIN]), [RULER])
    for settings in (CampaignSettings(agent="my_agent:run", max_tokens=50), CampaignSettings(agent="hone:answer")):
        agent = agent_tokens(counts, settings, None, "helpdesk")
        assert agent.answered is None
        judge = judge_tokens(counts, judge_settings(), agent, None, "helpdesk")
        assert (judge.sent, judge.answered) == (None, 3 * 100)


def test_where_no_model_judges_nobody_is_asked() -> None:
    counts = count_campaign(plan([PLAIN]), [FUNCTION])
    assert judge_tokens(counts, judge_settings(), TokenEstimate(1, 1, ""), None, "helpdesk") == TokenEstimate(
        0, 0, "no judge model is asked"
    )


def test_every_request_of_a_panel_is_counted() -> None:
    given = plan([PLAIN], [PLAIN])
    one, four = (count_campaign(given, [RULER, RUBRIC], requests) for requests in (1, 4))
    assert (four.ruler, four.rubric, four.judged) == (4 * one.ruler, one.rubric, one.judged)
    assert (one.answers_shown, four.answers_shown) == (one.judged, 4 * one.judged)


def test_whom_a_recipe_is_by_is_as_the_store_has_it() -> None:
    judge = judge_settings(RULER, RUBRIC)
    assert recipe_judges(judge) == "openai/judge"
    assert recipe_judges(judge_settings(FUNCTION)) == ""
