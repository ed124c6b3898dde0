"""What runs and their judging used lately, read back from the store."""

from __future__ import annotations

from typing import Any

from recorder.queue import claims
from recorder.queue.judging.scores import REWARD, NewPart, record_score
from recorder.queue.training import cost_estimates
from recorder.queue.training.cost_estimates import TrajectoryCost
from recorder.registry.aliases import AliasView
from tests.recorder.rows import Rows

MODEL = "openai/judge"


async def run(rows: Rows, alias: AliasView, *calls: tuple[int, int], state: str = "completed", **values: Any) -> str:
    """A run by what its calls sent and were answered."""
    run_id = await rows.trajectory(alias_id=alias.id, state=state, answered=False, **values)
    for sent, answered in calls:
        await rows.call(run_id, usage={"prompt_tokens": sent, "completion_tokens": answered})
    return run_id


async def judged(rows: Rows, alias: AliasView, *parts: str, **score: Any) -> None:
    """A group of two, judged at some cost."""
    group_id = await rows.ready_group(alias_id=alias.id)
    claim = await claims.claim_one_for_judging(rows.store, group_id, "judge", 60)
    assert claim is not None
    of_each = [NewPart(run_id, part, 0.5) for run_id in await rows.members(group_id) for part in (REWARD, *parts)]
    await record_score(
        rows.store, claim, await rows.judgement(claim, **{"judge_model": MODEL, "parts": of_each} | score)
    )


async def test_runs_cost_what_their_calls_did(rows: Rows) -> None:
    alias = await rows.alias()
    assert await cost_estimates.trajectory_costs(rows.store, alias.id) is None
    await run(rows, alias, (10, 1), (30, 3))
    two = await run(rows, alias, (20, 2))
    await rows.call(two, state="errored", usage={"prompt_tokens": 99, "completion_tokens": 99})
    await run(rows, alias, (99, 99), state="open")
    await run(rows, alias, (99, 99), origin="shadow")
    await run(rows, await rows.alias("other"), (99, 99))
    await rows.call(await run(rows, alias))  # of a provider that counts nothing
    assert await cost_estimates.trajectory_costs(rows.store, alias.id) == TrajectoryCost(2, 30.0, 3.0)


async def test_judging_costs_what_the_newest_scores_of_such_parts_did(rows: Rows) -> None:
    alias = await rows.alias()
    assert await cost_estimates.judging_costs(rows.store, alias.id, MODEL, ["ruler"]) is None
    await judged(rows, alias, "ruler", tokens_in=100, tokens_out=20, cost_usd=0.5)
    await judged(rows, alias, "rubric", tokens_in=999, tokens_out=999, cost_usd=9.0)
    await judged(rows, alias, "ruler")  # by a stored reply
    await judged(rows, alias, "ruler", tokens_in=999, judge_model="another")
    assert await cost_estimates.judging_costs(rows.store, alias.id, MODEL, ["ruler"]) == TrajectoryCost(
        2, 50.0, 10.0, 0.25
    )
    assert await cost_estimates.judging_costs(rows.store, alias.id, MODEL, ["ruler", "rubric"]) is None
    await judged(rows, alias, "ruler", tokens_in=300, tokens_out=0)  # at a price that nobody knows
    assert await cost_estimates.judging_costs(rows.store, alias.id, MODEL, ["ruler"]) == TrajectoryCost(4, 100.0, 5.0)
