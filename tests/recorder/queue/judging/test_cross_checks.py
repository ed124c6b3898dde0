"""Groups that two judges judged: the window, who scores from when on, written down once, whoever writes."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from recorder.maintenance.deletion import delete_trajectory
from recorder.queue import campaigns
from recorder.queue.judging import cross_checks, switches
from recorder.queue.judging.cross_checks import NewCrossCheck, PartVerdict, SwitchRule
from recorder.queue.judging.switches import CHEAP, STRONG, Judge, JudgeSwitch
from recorder.queue.training import budgets
from recorder.store.database import Project, Store
from tests.recorder.rows import PROJECT, Rows

pytestmark = pytest.mark.slow

RULE = SwitchRule(0.0, 10, "cheap-1", "strong-1")


def second(tau: float | None, *, pair: str = "p", judge: Judge = STRONG, **more: object) -> NewCrossCheck:
    made = {"cheap_version": "c1", "strong_version": "s1", "tokens_in": 7, "tokens_out": 3, "cost_usd": 0.01}
    return NewCrossCheck("helpdesk", "default", pair, judge, "strong-1", tau=tau, **{**made, **more})  # type: ignore[arg-type]


async def judged(store: Store, rows: Rows, taus: Sequence[float | None], **more: object) -> list[JudgeSwitch]:
    """Groups that both judged, one after another; the turns that came of it."""
    found = []
    for tau in taus:
        made = second(tau, **more)  # type: ignore[arg-type]
        taken = await cross_checks.record_cross_check(Project(store, PROJECT), await rows.group(), made, RULE)
        found += [taken] if taken is not None else []
    return found


async def scores_now(store: Store, pair: str = "p") -> Judge:
    return switches.scoring_judge(await switches.current_switch(Project(store, PROJECT), "helpdesk", "default"), pair)


async def test_a_full_window_of_disagreement_calls_the_strong_one_once(store: Store, rows: Rows) -> None:
    assert await scores_now(store) == CHEAP
    assert await judged(store, rows, [-1.0] * 9) == []
    [taken] = await judged(store, rows, [-1.0])
    assert (taken.judge, taken.judge_model, taken.reason, taken.groups) == (STRONG, "strong-1", "judge_drift", 10)
    assert taken.at > 0
    assert await scores_now(store) == STRONG
    assert await judged(store, rows, [-1.0] * 5) == []
    words = "helpdesk, recipe default: the judge and the strong judge agree too little (mean tau-b -1.00, "
    assert str(taken).startswith(words)
    assert str(taken).endswith("judge.strong.min_agreement is 0): strong-1 scores")


async def test_the_cheap_one_scores_again_when_agreement_is_back_for_a_window(store: Store, rows: Rows) -> None:
    await judged(store, rows, [-1.0] * 10)
    back = await judged(store, rows, [1.0] * 10, judge=CHEAP)
    assert [(one.judge, one.reason, one.number) for one in back] == [(CHEAP, "judge_agrees", 2)]
    assert await scores_now(store) == CHEAP


async def test_groups_without_an_order_and_failures_are_in_no_window(store: Store, rows: Rows) -> None:
    await judged(store, rows, [-1.0] * 9)
    assert await judged(store, rows, [None] * 5) == []
    failed = await cross_checks.record_cross_check(
        Project(store, PROJECT), await rows.group(), second(None, failed="judge_down: away"), RULE
    )
    assert failed is None
    assert await scores_now(store) == CHEAP
    assert len(await judged(store, rows, [-1.0])) == 1


async def test_other_settings_begin_anew(store: Store, rows: Rows) -> None:
    await judged(store, rows, [-1.0] * 10)
    assert await scores_now(store, "q") == CHEAP
    assert await judged(store, rows, [-1.0] * 9, pair="q") == []
    assert len(await judged(store, rows, [-1.0], pair="q")) == 1


async def test_a_version_that_was_not_seen_before_empties_the_window_and_one_that_comes_back_does_not(
    store: Store, rows: Rows
) -> None:
    await judged(store, rows, [-1.0] * 9)
    assert await judged(store, rows, [-1.0], cheap_version="c2") == []
    assert await judged(store, rows, [-1.0] * 4) == []  # the first one answers again: nothing new of these two
    assert await judged(store, rows, [-1.0] * 4, cheap_version="c2") == []
    assert len(await judged(store, rows, [-1.0])) == 1  # the tenth since the new version was seen


async def test_who_writes_at_one_time_writes_one_turn(store: Store, rows: Rows) -> None:
    await judged(store, rows, [-1.0] * 9)
    ids = [await rows.group() for _ in range(8)]
    at_once = [cross_checks.record_cross_check(Project(store, PROJECT), id_, second(-1.0), RULE) for id_ in ids]
    taken = [one for one in await asyncio.gather(*at_once) if one is not None]
    assert len(taken) == 1
    async with store.read() as conn:
        assert len(await switches.switches_since(conn, PROJECT, "")) == 1


async def test_judges_that_are_set_no_more_score_no_more(store: Store, rows: Rows) -> None:
    await judged(store, rows, [-1.0] * 10)
    assert (
        await switches.end_outdated_switches(Project(store, PROJECT), {"default": "p"}, "cheap-1") == []
    )  # these are set
    [ended] = await switches.end_outdated_switches(Project(store, PROJECT), {"default": "q"}, "cheap-2")
    assert str(ended) == "helpdesk, recipe default: cheap-2 scores, because the judges' settings changed"
    assert await switches.end_outdated_switches(Project(store, PROJECT), {}, "cheap-2") == []
    assert await scores_now(store) == CHEAP


async def test_what_it_cost_counts_in_budgets_and_a_failure_too(store: Store, rows: Rows) -> None:
    await judged(store, rows, [1.0])
    await cross_checks.record_cross_check(
        Project(store, PROJECT), await rows.group(), second(None, failed="judge_unreadable: no"), RULE
    )
    spent = await budgets.judging_cost_since(Project(store, PROJECT), 0.0)
    assert sum(one.tokens for one in spent) == 20
    assert sum(one.usd for one in spent) == pytest.approx(0.02)


async def test_a_deleted_run_takes_the_words_and_leaves_the_numbers(store: Store, rows: Rows) -> None:
    group = await rows.group()
    run, other = [await rows.trajectory(group, state="completed") for _ in range(2)]
    said = [PartVerdict(run, "ruler", 0.9, "quotes"), PartVerdict(other, "ruler", 0.1, "quotes")]
    await cross_checks.record_cross_check(Project(store, PROJECT), group, second(1.0, parts=said), RULE)
    [before] = await cross_checks.list_cross_checks(store, group)
    assert list(before.parts) == said
    await delete_trajectory(Project(store, PROJECT), run)
    [after] = await cross_checks.list_cross_checks(store, group)
    assert (after.parts, after.tau) == ((), 1.0)
    late = second(1.0, parts=said)  # said of a run that was deleted while the judge was asked
    await cross_checks.record_cross_check(Project(store, PROJECT), group, late, RULE)
    assert [one.parts for one in await cross_checks.list_cross_checks(store, group)] == [(), ()]


async def test_a_campaign_hears_of_its_own_groups_alone(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    mine, other = [
        (await campaigns.create_campaign(Project(store, PROJECT), alias.id, name, {})).id for name in ("mine", "other")
    ]
    assert await cross_checks.newest_of_campaign(store, mine) is None
    for tau in [-1.0] * 10:
        await cross_checks.record_cross_check(
            Project(store, PROJECT), await rows.group(campaign_id=mine), second(tau), RULE
        )
    found = await cross_checks.newest_of_campaign(store, mine)
    assert found is not None
    assert found[1] is not None
    assert (found[0].mean, found[1].judge) == (-1, STRONG)
    assert await cross_checks.newest_of_campaign(store, other) is None
