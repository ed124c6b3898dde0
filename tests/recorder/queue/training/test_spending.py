"""What learning has cost lately, read from scores and steps as they were written."""

from __future__ import annotations

import itertools
from typing import Any

from recorder.queue import attempts, campaigns, claims
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import NewScenario
from recorder.queue.judging import records, scores
from recorder.queue.judging.records import NewReply, NewVerdicts
from recorder.queue.training import budgets, steps
from recorder.registry import versions
from recorder.states import Purpose
from recorder.store.database import Project
from recorder.store.schema import groups
from recorder.store.schema import scores as score_table
from recorder.store.schema import steps as step_table
from recorder.store.sql import current_time, now
from tests.recorder.queue.bindings import bind_group
from tests.recorder.rows import PROJECT, Rows


async def judged(rows: Rows, group: str, tokens: int, usd: float | None) -> str:
    claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
    assert claim is not None
    said = await rows.judgement(claim, tokens_in=tokens - 1, tokens_out=1, cost_usd=usd)
    return await scores.record_score(rows.store, claim, said)


async def at(rows: Rows) -> float:
    async with rows.store.read() as conn:
        return await current_time(conn)


async def test_scores_are_summed_with_their_tokens_and_money(rows: Rows) -> None:
    for tokens, usd in ((100, 0.25), (50, None), (10, 0.5)):
        await judged(rows, await rows.ready_group(), tokens, usd)
    spent = await budgets.judging_cost_since(Project(rows.store, PROJECT), await at(rows) - 3600)
    assert (sum(one.tokens for one in spent), sum(one.usd for one in spent)) == (160, 0.75)
    assert await budgets.judging_cost_since(Project(rows.store, "other"), 0.0) == []


async def test_a_judging_that_came_to_nothing_was_paid_for_too(rows: Rows) -> None:
    for code, detail in (
        ("judge_unreadable", {"tokens_in": 90, "tokens_out": 10, "cost_usd": 0.5}),
        ("judge_down", {"message": "nobody answered", "tokens_in": 0, "tokens_out": 0, "cost_usd": None}),
    ):
        claim = await claims.claim_one_for_judging(rows.store, await rows.ready_group(), "judge", 60)
        assert claim is not None
        await scores.mark_unscored(rows.store, claim, code, detail, 60)
    spent = await budgets.judging_cost_since(Project(rows.store, PROJECT), await at(rows) - 3600)
    assert (sum(one.tokens for one in spent), sum(one.usd for one in spent)) == (100, 0.5)


async def test_what_was_spent_before_and_by_campaigns_does_not_count(rows: Rows) -> None:
    old = await judged(rows, await rows.ready_group(), 100, 1.0)
    await rows.set(score_table, old, created_at=now() - 7200)
    planned = await rows.ready_group()
    await judged(rows, planned, 100, 1.0)
    await rows.set(groups, planned, campaign_id="campaign_1")
    assert await budgets.judging_cost_since(Project(rows.store, PROJECT), await at(rows) - 3600) == []


async def test_steps_of_an_alias_are_told_by_when_they_began(rows: Rows) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    parent = (await versions.get_version(rows.store, alias.live_version_id)).id
    first = await steps.begin_step(rows.store, alias.id, parent)
    await steps.begin_step(rows.store, alias.id, parent)  # the first is abandoned: nobody holds it any more
    since = await at(rows) - 3600
    assert len(await budgets.list_step_times(rows.store, alias.id, since)) == 1
    await rows.set(step_table, first.id, state="done", started_at=since - 1)
    assert len(await budgets.list_step_times(rows.store, alias.id, since)) == 1
    assert await budgets.list_step_times(rows.store, "another", since) == []


async def test_what_a_campaigns_judging_cost_counts_its_own_groups_alone(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("order-1", "Where is it?")])
    (scenario,) = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    for number, (tokens, usd) in enumerate(((100, 0.25), (50, None), (0, None))):
        name = f"order-1-{number}"
        group = await bind_group(Project(rows.store, PROJECT), name, campaign.id, scenario.id, 2, alias.id)
        planned = NewAttempt(scenario.id, number, Purpose.TRAIN, 0, name, f"0~{name}")
        await attempts.new_attempts(rows.store, campaign.id, [planned])
        await rows.set(groups, group, state="ready")
        if tokens:
            await judged(rows, group, tokens, usd)
            continue
        claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
        assert claim is not None
        await scores.mark_unscored(
            rows.store, claim, "judge_unreadable", {"tokens_in": 9, "tokens_out": 1, "cost_usd": 0.5}, 60
        )
    await judged(rows, await rows.ready_group(), 1000, 9.0)
    assert await budgets.campaign_judging_cost(rows.store, campaign) == budgets.CampaignJudgingCost(
        2, 0, 157, 0, 3, 0.75, 1, 1
    )


async def test_requests_are_counted_by_what_judges_replied_to_not_by_scores(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("order-1", "Where is it?")])
    (scenario,) = await campaigns.list_scenarios(rows.store, campaign.id, "train")

    numbers = itertools.count()

    async def scored(name: str, **said: Any) -> str:
        group = await bind_group(Project(rows.store, PROJECT), name, campaign.id, scenario.id, 2, alias.id)
        planned = NewAttempt(scenario.id, 1, Purpose.TRAIN, next(numbers), name, f"0~{name}")
        await attempts.new_attempts(rows.store, campaign.id, [planned])
        await rows.trajectory(group, state="completed")
        await rows.set(groups, group, state="ready")
        claim = await claims.claim_one_for_judging(rows.store, group, "judge", 60)
        assert claim is not None
        await scores.record_score(rows.store, claim, await rows.judgement(claim, **said))
        return group

    await scored("asked", prompt_hash="a", reply="{}")
    await scored("read-again", prompt_hash="a", reply="{}")
    await scored("all-alike", prompt_hash="b", reply=None)
    both = [NewReply(number, "m", None, 1.0, reply, None) for number, reply in enumerate(("{}", None, "{}"))]
    await scored("several", prompt_hash="c", reply=None, replies=both)
    group = await scored("by-run", prompt_hash=None, reply="")
    (run,) = await rows.members(group)
    stranger = await rows.trajectory(await rows.group())
    kept = [NewVerdicts(f"{run}-{number}", run, "[]", None) for number in range(3)]
    await records.keep_verdicts(Project(rows.store, PROJECT), [*kept, NewVerdicts("other", stranger, "[]", None)])
    found = await budgets.campaign_judging_cost(rows.store, campaign)
    assert (found.judgings, found.requests) == (5, 1 + 2 + 3)
