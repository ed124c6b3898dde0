"""What the judge does: by day and model, how long it takes, how far two scores of a group agree, what it fails at."""

from __future__ import annotations

from typing import Any

import pytest

from recorder.ids import first_id_at
from recorder.queue import claims
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart, NewScore
from recorder.states import GroupState
from recorder.store.database import Project, Store
from recorder.store.schema import scores as scores_table
from recorder.views.status.judging import NO_MODEL, load_judging
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.score_rows import new_score


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


async def judged(store: Store, rows: Rows, group: str, *rewards: float | None, **values: Any) -> None:
    claim = await claims.claim_one_for_judging(store, group, "judge", 60)
    assert claim is not None
    await scores.record_score(store, claim, await judgement(rows, group, *rewards, **values))


async def judgement(rows: Rows, group: str, *rewards: float | None, **values: Any) -> NewScore:
    given = zip(await rows.members(group), rewards, strict=True)
    parts = [NewPart(run, "reward", reward) for run, reward in given]
    return new_score("recipe", parts=parts, **values)


async def test_nothing_was_judged(store: Store) -> None:
    found = await load_judging(Project(store, PROJECT))
    assert (found.groups, found.days, found.agreement, found.last) == ({}, [], None, [])
    assert (found.latency.p50_s, found.is_complete) == (None, True)


async def test_scores_are_summed_by_day_and_model(store: Store, rows: Rows) -> None:
    for seconds in (1.0, 3.0, 2.0):
        paid = {"tokens_in": 100, "tokens_cached": 40, "tokens_out": 10, "cost_usd": 0.5, "latency_s": seconds}
        await judged(store, rows, await rows.ready_group(), 0.0, 1.0, judge_model="m", **paid)
    await judged(store, rows, await rows.ready_group(), 0.0, 1.0)
    found = await load_judging(Project(store, PROJECT))
    of_m, of_none = found.days
    assert (of_m.model, of_m.scores, of_m.tokens_in, of_m.tokens_cached, of_m.tokens_out) == ("m", 3, 300, 120, 30)
    assert (of_m.cost_usd, of_m.latency.p50_s, of_m.latency.p99_s) == (1.5, 2.0, 3.0)
    assert (of_none.model, of_none.cost_usd, of_none.latency.p50_s) == (NO_MODEL, None, None)
    assert found.spent_today.groups == found.scores == 4


async def test_old_scores_are_not_looked_at(store: Store, rows: Rows) -> None:
    group = await rows.scored_group()
    old = {"id": first_id_at("score", 1e9), "project_id": PROJECT, "group_id": group, "recipe_hash": "r"}
    await rows.insert(scores_table, {**old, "created_at": 1e9})
    assert (await load_judging(Project(store, PROJECT))).scores == 1


async def test_two_scores_of_a_group_are_compared_over_pairs_of_runs(store: Store, rows: Rows) -> None:
    group = await rows.ready_group(3)
    await judged(store, rows, group, 0.0, 0.5, 1.0)
    again = await judgement(rows, group, 0.5, 0.0, 1.0)
    assert await scores.record_history(store, group, again, [GroupState.SCORED]) is not None
    found = (await load_judging(Project(store, PROJECT))).agreement
    assert found is not None
    assert (found.groups, found.pairs, found.same_order, found.reversed, found.tied) == (1, 3, 2, 1, 0)
    assert found.tau == pytest.approx(1 / 3)


async def test_the_last_judged_are_told_with_their_rewards(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    first = await rows.ready_group(2, alias_id=alias.id)
    await judged(store, rows, first, 0.0, 0.5)
    second = await rows.ready_group(2, alias_id=alias.id, external_id="refunds")
    await judged(store, rows, second, 1.0, None, judge_model="m")
    newest, older = (await load_judging(Project(store, PROJECT))).last
    assert (newest.group_id, newest.external_id, newest.model, newest.state) == (second, "refunds", "m", "scored")
    assert (newest.reward_min, newest.reward_mean, newest.reward_max) == (1.0, 1.0, 1.0)
    assert (older.alias, older.reward_mean) == ("helpdesk", 0.25)
