"""How training stands: steps, campaigns with their rules, runs left out over time, what was spent."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import update

from recorder.queue import leases
from recorder.queue.training import steps
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.ledger import LedgerRow
from recorder.store.schema import steps as step_rows
from recorder.views.campaigns.progress import list_campaigns_progress
from recorder.views.status.project import load_status
from recorder.views.status.stages import LoopSettings
from recorder.views.status.training import training_overview
from recorder.views.versions.steps import list_steps, outcome_spans, training_outcomes
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
async def learned(rows: Rows) -> Learned:
    return Learned(rows.store, (await rows.alias()).id)


async def test_steps_are_told_newest_first_with_their_figures_by_name(learned: Learned) -> None:
    await learned.accepted(1)
    await learned.accepted(2)
    failed = await steps.begin_step(learned.store, learned.alias_id, await learned.live())
    await steps.abandon_step(learned.store, failed.id, "the loss was nan")
    newest, second, first = await list_steps(Project(learned.store, PROJECT))
    assert (newest.state, newest.reason, newest.version, newest.parent) == (
        "abandoned", "the loss was nan", None, "helpdesk@2",
    )  # fmt: skip
    assert (newest.reward_mean, newest.seconds, newest.groups) == (None, {}, 0)
    assert (second.number, second.version, second.groups, second.trajectories) == (2, "helpdesk@2", 1, 1)
    assert (second.kl, second.entropy, second.clip_fraction) == (0.001, 1.5, 0.02)
    assert await list_steps(Project(learned.store, PROJECT), after=second.id) == [first]
    assert await list_steps(Project(learned.store, PROJECT), alias="nobody") == []


async def test_a_campaign_is_told_with_each_rule_that_may_end_it(learned: Learned) -> None:
    campaign = await learned.campaign(target=0.95, target_steps=2, plateau_steps=5, plateau_delta=0.01, val_every=1)
    for step, success in enumerate((0.3, 0.8, 0.7)):
        await learned.validated(campaign, step, f"helpdesk@{step}", success, 10)
    [told] = await list_campaigns_progress(Project(learned.store, PROJECT))
    assert (told.name, told.alias, told.state, told.steps) == ("orders", "helpdesk", "running", 20)
    assert [(one.step, one.version, one.measure.value) for one in told.measured] == [
        (0, "helpdesk@0", 0.3), (1, "helpdesk@1", 0.8), (2, "helpdesk@2", 0.7),
    ]  # fmt: skip
    assert [(rule.rule, rule.now) for rule in told.rules] == [
        ("at 0.95, 2 times in a row", "newest 0.7"),
        ("no rise over 0.01 in 5 steps", "best 0.8 after step 1; at the earliest in 3 steps"),
        ("after 20 steps", "0 done, 20 left"),
    ]
    await learned.validated(campaign, 5, "helpdesk@5", 0.8, 10)
    [told] = await list_campaigns_progress(Project(learned.store, PROJECT))
    assert told.rules[1].now == "best 0.8 after step 1; possible after each step"


async def test_a_campaign_is_told_with_the_rules_that_nobody_set_and_with_its_budgets(learned: Learned) -> None:
    budgets = {"max_minutes": 90, "max_judge_usd": 5, "max_judge_tokens": 100_000}
    campaign = await learned.campaign(epochs=3, plateau_delta=0.01, val_every=1, **budgets)
    await begun(learned, campaign, measure="success", plateau_steps=10, epoch_steps=4)
    await stepped(learned, campaign, seconds={"sampling": 90.0, "training": 60.0})
    await learned.validated(campaign, 1, "helpdesk@1", 0.5, 10)
    [told] = await list_campaigns_progress(Project(learned.store, PROJECT))
    assert [(rule.rule, rule.now) for rule in told.rules] == [
        ("no rise over 0.01 in 10 steps", "best 0.5 after step 1; at the earliest in 10 steps"),
        ("after 20 steps", "0 done, 20 left"),
        ("after 3 epochs of 4 steps", "0 done, 12 steps left"),
        ("after 90 minutes", "2.5 minutes spent on recorded steps and validations"),
        ("when judging has cost $5", "$0 until now"),
        ("when judging has taken 100,000 tokens", "0 until now"),
    ]


@pytest.mark.parametrize(("measure", "said"), [("wins", []), ("nothing", []), ("reward", [("reward", 0.75)])])
async def test_the_mean_of_rulers_scores_is_never_shown_as_a_measure(
    learned: Learned, measure: str, said: list[tuple[str, float]]
) -> None:
    campaign = await learned.campaign(target=0.9)
    await begun(learned, campaign, measure=measure, plateau_steps=None, epoch_steps=1)
    await stepped(learned, campaign, reward=0.75, success=None)
    [told] = await list_campaigns_progress(Project(learned.store, PROJECT))
    assert [(one.measure.kind, one.measure.value) for one in told.measured] == said


async def begun(learned: Learned, campaign: str, **in_force: Any) -> None:
    """A run of the campaign's program begins."""
    async with learned.store.write() as conn:
        row = LedgerRow(PROJECT, "campaign", campaign, "begun", {"step": 0, "paused": False, "recipe": {}, **in_force})
        await ledger.write_rows(conn, [row])


async def stepped(learned: Learned, campaign: str, **given: Any) -> None:
    """A step is over."""
    own = {"step": 1, "version": "helpdesk@1", "sampled_by": "helpdesk@0", "success": 0.5, "attempts": 8}
    async with learned.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", campaign, "step", {**own, **given})])


async def test_a_campaign_without_validations_is_measured_by_its_own_steps(learned: Learned) -> None:
    campaign = await learned.campaign(target=0.9)
    [fresh] = await list_campaigns_progress(Project(learned.store, PROJECT), "helpdesk")
    assert (list(fresh.measured), fresh.rules[0].now) == ([], "nothing measured yet")
    step = {
        "step": 1,
        "version": "helpdesk@1",
        "sampled_by": "helpdesk@0",
        "success": 0.5,
        "attempts": 8,
        "failed": True,
    }
    async with learned.store.write() as conn:
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "campaign", campaign, "step", step)])
    [told] = await list_campaigns_progress(Project(learned.store, PROJECT))
    assert ([(one.version, one.measure.value) for one in told.measured], told.failed_steps) == (
        [("helpdesk@0", 0.5)],
        1,
    )
    assert await list_campaigns_progress(Project(learned.store, PROJECT), "nobody") == []


async def test_runs_trained_on_and_left_out_are_counted_by_reason(learned: Learned) -> None:
    rows = [LedgerRow(PROJECT, "trajectory", f"traj_{n}", code) for n, code in enumerate(("trained", "stale", "stale"))]
    other = [LedgerRow(PROJECT, "group", "grp_1", "stale"), LedgerRow(PROJECT, "version", "ver_1", "promote")]
    async with learned.store.write() as conn:
        await ledger.write_rows(conn, rows + other)
    [told] = await training_outcomes(Project(learned.store, PROJECT))
    assert told.trajectories == {"trained": 1, "stale": 2}


@given(st.lists(st.tuples(st.floats(0, 4e7), st.sampled_from(["trained", "stale"]), st.integers(1, 9)), min_size=1))
def test_spans_are_few_of_one_length_and_lose_nothing_that_fits(rows: list[tuple[float, str, int]]) -> None:
    told = outcome_spans(rows)
    assert 1 <= len(told) <= 24
    starts = [one.since for one in told]
    assert starts == [starts[0] + n * told[0].span_s for n in range(len(told))]
    counted = sum(number for at, _, number in rows if at >= starts[0])
    assert sum(sum(one.trajectories.values()) for one in told) == counted


async def test_training_says_who_trains_what_is_waited_for_and_what_was_spent(learned: Learned) -> None:
    await learned.gated(1)
    await leases.acquire_lease(Project(learned.store, PROJECT), leases.trainer_lease("helpdesk"), "learner", 60)
    told = await training_overview(Project(learned.store, PROJECT), LoopSettings())
    assert told.trainers == ["helpdesk"]
    assert told.waits_for == "1 group in a version that is not decided"
    assert (told.budgets.judge_tokens, told.budgets.steps_last_hour) == (0, {"helpdesk": 1})
    assert len(told.steps) == 1


async def test_the_steps_of_the_last_hour_are_the_same_on_home_and_training(learned: Learned) -> None:
    await learned.accepted(1)
    of_campaign = await learned.accepted(2)
    long_ago, abandoned = await learned.accepted(3), await learned.accepted(4)
    other = Learned(learned.store, (await learned.rows.alias("other")).id, "other")
    await other.accepted(5)
    campaign = await learned.campaign()
    async with learned.store.write() as conn:
        for version, values in (
            (of_campaign, {"campaign_id": campaign}),
            (long_ago, {"ended_at": 1.0}),
            (abandoned, {"state": "abandoned"}),
        ):
            await conn.execute(update(step_rows).where(step_rows.c.version_id == version.id).values(**values))
    await steps.begin_step(learned.store, learned.alias_id, await learned.live())  # it still runs
    project = Project(learned.store, PROJECT)
    told = (await training_overview(project, LoopSettings())).budgets.steps_last_hour
    assert told == {"helpdesk": 2, "other": 1}
    assert (await load_status(project, LoopSettings())).steps_last_hour == sum(told.values())
