"""How a project stands: calls, money, rewards by version, steps, what is undecided, what could not be judged."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from recorder.ids import new_id
from recorder.queue import claims, gate_requests
from recorder.queue.judging import cross_checks, scores
from recorder.queue.judging.cross_checks import NewCrossCheck, SwitchRule
from recorder.queue.judging.scores import NewPart
from recorder.queue.training import steps
from recorder.registry import alias_moves, versions
from recorder.settings import RecorderSettings
from recorder.states import VersionState
from recorder.store import ledger
from recorder.store.database import Project, Store
from recorder.store.ledger import LedgerRow
from recorder.store.schema import trajectories
from recorder.views.status import figures
from recorder.views.status.figures import JudgeSpending, ProjectFigures, load_figures
from tests.recorder.learning import Learned
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


async def asked(store: Store) -> ProjectFigures:
    return await load_figures(Project(store, PROJECT), RecorderSettings())


async def test_an_empty_project_has_figures(store: Store) -> None:
    found = await asked(store)
    assert (found.calls_per_s, found.trained, found.excluded, found.troubles) == (0, 0, {}, [])
    assert found.spent_today == JudgeSpending(0, 0, None)


async def test_calls_of_the_last_minute_are_a_rate(store: Store, rows: Rows) -> None:
    run = await rows.trajectory(answered=False)
    for _ in range(6):
        await rows.call(run, id=new_id("call"))
    await rows.call(run, id="call_0000")  # long ago
    assert (await asked(store)).calls_per_s == pytest.approx(0.1)


async def test_rewards_are_told_by_the_version_that_sampled(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    version = await versions.allocate_version(store, alias.id, alias.live_version_id or "")
    await rows.scored_group(3, alias_id=alias.id, version_id=alias.live_version_id)
    await rows.scored_group(2, alias_id=alias.id, version_id=version.id)
    found = (await asked(store)).rewards
    assert [(one.version, one.trajectories, one.mean) for one in found] == [
        ("helpdesk@0", 3, 0.5),
        ("helpdesk@1", 2, 0.5),
    ]


async def test_rewards_that_nobody_was_asked_for_move_no_versions_mean(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    of_live: dict[str, Any] = {"alias_id": alias.id, "version_id": alias.live_version_id}
    await rows.scored_group(3, **of_live)
    claim = await claims.claim_one_for_judging(store, await rows.ready_group(2, **of_live), "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", 0.1, unasked=True) for id_ in await rows.members(claim.group_id)]
    await scores.record_score(store, claim, await rows.judgement(claim, parts=parts))
    assert [(one.trajectories, one.mean) for one in (await asked(store)).rewards] == [(3, 0.5)]


async def test_the_live_version_has_its_reward_however_far_back_it_is(
    store: Store, rows: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(figures, "REWARDED_TRAJECTORIES", 5)
    alias = await rows.alias()
    newer = [await versions.allocate_version(store, alias.id, alias.live_version_id or "") for _ in range(3)]
    for version_id in (alias.live_version_id, *(one.id for one in newer)):
        await rows.scored_group(3, alias_id=alias.id, version_id=version_id)
    assert [one.version for one in (await asked(store)).rewards] == ["helpdesk@0", "helpdesk@3"]
    monkeypatch.setattr(figures, "REWARDED_VERSIONS", 1)
    assert [one.version for one in (await asked(store)).rewards] == ["helpdesk@0"]


async def test_many_versions_are_read_with_few_more_statements_than_one(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    await rows.scored_group(3, alias_id=alias.id, version_id=alias.live_version_id)
    await asked(store)
    with rows.statements(of_reads=True) as few:
        await asked(store)
    for number in range(2, 14):
        version = await versions.allocate_version(store, alias.id, alias.live_version_id or "")
        await rows.scored_group(2 + number % 2, alias_id=alias.id, version_id=version.id)
    with rows.statements(of_reads=True) as many:
        found = (await asked(store)).rewards
    assert [one.trajectories for one in found] == [3, *(2 + number % 2 for number in range(2, 14))]
    assert (
        0 < len(few) <= len(many) <= len(few) + 4
    )  # the bound on trajectories lets one statement read at least three versions


async def test_what_the_judge_cost_today_is_summed(store: Store, rows: Rows) -> None:
    for _ in range(2):
        await rows.ready_group()
        claim = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
        assert claim is not None
        paid = replace(await rows.judgement(claim), tokens_in=100, tokens_out=10, cost_usd=0.25)
        await scores.record_score(store, claim, paid)
    assert (await asked(store)).spent_today == JudgeSpending(2, 220, 0.5)


@pytest.mark.parametrize(
    ("purpose", "run"),
    [
        ("learning", {}),
        ("learning", {"origin": "campaign"}),
        ("shadow", {"origin": "shadow"}),
        ("gate", {"origin": "shadow", "purpose": "eval"}),
        ("evaluation", {"origin": "campaign", "purpose": "val"}),
        ("evaluation", {"purpose": "eval"}),
    ],
    ids=str,
)
async def test_what_the_judge_cost_is_told_by_purpose(
    store: Store, rows: Rows, purpose: str, run: dict[str, str]
) -> None:
    for values, cost in (({"origin": "live"}, 0.5), ({"origin": "live"} | run, 0.25)):
        group = await rows.ready_group()
        for member in await rows.members(group):
            await rows.set(trajectories, member, **values)
        claim = await claims.claim_one_for_judging(store, group, "j", 60)
        assert claim is not None
        paid = replace(await rows.judgement(claim), tokens_in=100, tokens_out=10, cost_usd=cost)
        await scores.record_score(store, claim, paid)
    said = NewCrossCheck("helpdesk", "default", "pair", "strong", "openai/strong", tau=1.0, tokens_in=7, cost_usd=0.125)
    await cross_checks.record_cross_check(Project(store, PROJECT), group, said, SwitchRule(0.5, 10, "a", "b"))
    found = await asked(store)
    assert found.spent_today == JudgeSpending(2, 227, 0.875)
    if purpose == "learning":
        assert found.spent_by_purpose == {purpose: JudgeSpending(2, 227, 0.875)}
    else:
        assert found.spent_by_purpose == {
            "learning": JudgeSpending(1, 110, 0.5),
            purpose: JudgeSpending(1, 117, 0.375),
        }


async def test_the_held_out_scenarios_of_a_gate_are_its_work(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    live = await versions.get_version(store, alias.live_version_id or "")
    version = await versions.allocate_version(store, alias.id, live.id)
    request = await gate_requests.request_gate(store, version, live, 8)
    await rows.scored_group(purpose="eval", alias_id=alias.id, campaign_id=request)
    assert list((await asked(store)).spent_by_purpose) == ["gate"]


async def test_trajectories_are_counted_by_what_became_of_them(store: Store) -> None:
    async with store.write() as conn:
        codes = ["trained", "trained", "untrained", "too_few"]
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", f"t{i}", code) for i, code in enumerate(codes)])
    found = await asked(store)
    assert (found.trained, found.excluded) == (2, {"too_few": 1})


@pytest.mark.parametrize(
    ("moves", "trained"),
    [
        ("", 5),  # five versions, each trained on one trajectory
        ("r", 4),
        ("rr", 3),
        ("rrr", 2),
        ("rrp", 5),  # the fifth is promoted again, with its ancestors
        ("rrpr", 3),  # to the version that was live before that
        ("rrprr", 2),
    ],
)
async def test_trained_is_what_the_ancestry_of_the_live_version_was_trained_on(
    store: Store, rows: Rows, moves: str, trained: int
) -> None:
    learned = Learned(store, (await rows.alias()).id)
    made = [await learned.accepted(number) for number in range(1, 6)]
    for move in moves:
        if move == "r":
            await alias_moves.rollback(store, learned.alias_id)
        else:
            await alias_moves.set_live(store, learned.alias_id, made[-1].id, why="promote")
    assert (await asked(store)).trained == trained


async def test_a_trajectory_that_two_versions_were_trained_on_counts_once(store: Store) -> None:
    async with store.write() as conn:
        codes = ["trained", "untrained", "trained", "trained"]
        await ledger.write_rows(conn, [LedgerRow(PROJECT, "trajectory", "t1", code) for code in codes])
    assert (await asked(store)).trained == 1


async def test_steps_and_undecided_versions_are_told(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    first = await steps.begin_step(store, alias.id, alias.live_version_id or "")
    await steps.abandon_step(store, first.id, "loss")
    await steps.begin_step(store, alias.id, alias.live_version_id or "")
    version = await versions.allocate_version(store, alias.id, alias.live_version_id or "")
    await versions.mark_version(store, version.id, VersionState.WRITTEN)
    found = await asked(store)
    [step] = found.steps
    assert (step.alias, step.number, step.state, step.version) == ("helpdesk", 2, "running", None)
    assert step.counts == {"abandoned": 1, "running": 1}
    assert [(one.version, one.state) for one in found.undecided] == [("helpdesk@1", "written")]
    assert found.versions == {("helpdesk", "live"): 1, ("helpdesk", "written"): 1}


async def test_a_gate_that_attempts_scenarios_says_how_far_it_is(store: Store, rows: Rows) -> None:
    alias = await rows.alias()
    live = await versions.get_version(store, alias.live_version_id or "")
    version = await versions.allocate_version(store, alias.id, live.id)
    version = await versions.mark_version(store, version.id, VersionState.WRITTEN)
    await gate_requests.request_gate(store, version, live, 8)
    assert [one.attempts for one in (await asked(store)).undecided] == ["0 of at most 16 attempts"]


async def test_a_failing_judge_is_told_by_its_words_and_when_it_is_tried_again(store: Store, rows: Rows) -> None:
    await rows.ready_group()
    claim = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    assert claim is not None
    await scores.mark_unscored(store, claim, "parts_missing", {"message": "f: KeyError: 'x' (checks.py:3)"}, 60)
    [trouble] = (await asked(store)).troubles
    assert (trouble.code, trouble.groups) == ("parts_missing", 1)
    assert trouble.detail == "f: KeyError: 'x' (checks.py:3)"
    assert trouble.next_at is not None


async def test_a_function_that_raises_for_some_runs_is_counted_with_its_words(store: Store, rows: Rows) -> None:
    await rows.ready_group(3)
    claim = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    assert claim is not None
    ids = await rows.members(claim.group_id)
    parts = [NewPart(id_, "reward", 1.0) for id_ in ids] + [NewPart(ids[0], "polite", 1.0, 1.0)]
    parts += [NewPart(id_, "polite", None, 1.0, "KeyError: 'x' (checks.py:3)") for id_ in ids[1:]]
    await scores.record_score(store, claim, await rows.judgement(claim, parts=parts))
    [missing] = (await asked(store)).missing_parts
    assert (missing.part, missing.trajectories, missing.of) == ("polite", 2, 3)
    assert missing.detail == "KeyError: 'x' (checks.py:3)"
