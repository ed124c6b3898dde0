"""A group is held by one worker at a time, also by workers of several processes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import select

from recorder.errors import LeaseLost
from recorder.queue import claims
from recorder.queue.claims import GroupClaim
from recorder.queue.judging import scores
from recorder.registry import versions
from recorder.states import Purpose
from recorder.store import schema
from recorder.store.database import Project, Store
from recorder.store.schema import groups
from recorder.store.sql import now
from tests.recorder.rows import PROJECT, Rows

ROOT = Path(__file__).parents[3]


async def judge(store: Store, owner: str = "judge-a", lease_s: float = 60) -> GroupClaim | None:
    return await claims.claim_for_judging(Project(store, PROJECT), owner, lease_s)


async def take_over(rows: Rows, claim: GroupClaim) -> GroupClaim:
    """Let a claim run out and another owner take the group."""
    back = "scored" if claim.score_id else "ready"
    await rows.set(groups, claim.group_id, state=back, lease_owner=None, lease_expires_at=None)
    taken = await claims.claim_one_for_judging(rows.store, claim.group_id, "other", 60)
    assert taken is not None
    return taken


def compete(store: Store, kind: str, alias_id: str, processes: int = 2) -> list[list[tuple[str, int]]]:
    """What each of several processes claimed, when all begin at once."""
    url = store.url.render_as_string(hide_password=False)
    command = [sys.executable, "-W", "error", "-m", "tests.recorder.competitor", url]
    pipes: dict[str, Any] = {"cwd": ROOT, "stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    running = [subprocess.Popen([*command, f"worker-{n}", kind, alias_id], **pipes) for n in range(processes)]
    for process in running:
        assert process.stdout is not None
        assert process.stdout.readline() == "started\n"
    for process in running:
        assert process.stdin is not None
        process.stdin.write("go\n")
        process.stdin.flush()
    printed = [process.communicate()[0] for process in running]
    assert [process.returncode for process in running] == [0] * processes
    return [[(line.split()[0], int(line.split()[1])) for line in text.splitlines()] for text in printed]


@pytest.mark.slow
async def test_two_processes_never_claim_one_group(rows: Rows) -> None:
    ids = {await rows.ready_group() for _ in range(40)}
    first, second = compete(rows.store, "judge", "-")
    assert sorted(first + second) == sorted((group, 1) for group in ids)


@pytest.mark.slow
async def test_two_trainers_never_claim_one_group(rows: Rows) -> None:
    alias = await rows.alias()
    ids = {await rows.scored_group(alias_id=alias.id) for _ in range(24)}
    first, second = compete(rows.store, "train", alias.id)
    assert sorted(first + second) == sorted((group, 2) for group in ids)  # epoch 1 was the judge's


async def test_a_claim_carries_all_that_its_holder_needs(rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.scored_group(alias_id=alias.id, campaign_id="camp")
    row = await rows.get(groups, group)
    [claim] = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9, campaign_id="camp")
    assert (claim.group_id, claim.owner, claim.epoch) == (group, "t", 2)
    assert (claim.score_id, claim.alias_id, claim.campaign_id) == (row["current_score_id"], alias.id, "camp")
    assert claim.project_id == PROJECT
    async with rows.store.read() as conn:
        assert 50 < claim.expires_at - (await conn.execute(select(now()))).scalar_one() <= 60


async def test_the_oldest_group_is_judged_first(rows: Rows) -> None:
    young = await rows.ready_group(ready_at=now() - 1)
    old = await rows.ready_group(ready_at=now() - 2)
    took = [await judge(rows.store) for _ in range(3)]
    assert [claim and claim.group_id for claim in took] == [old, young, None]


async def test_what_a_gate_waits_for_is_judged_before_what_came_earlier(rows: Rows) -> None:
    alias = await rows.alias()
    live = alias.live_version_id
    assert live is not None
    version = await versions.allocate_version(rows.store, alias.id, live)
    traffic = await rows.ready_group(ready_at=now() - 3, version_id=live)
    unpinned = await rows.ready_group(ready_at=now() - 2)
    young = await rows.ready_group(ready_at=now() - 1, version_id=version.id)
    await rows.set(schema.versions, version.id, state="loaded")
    first = await judge(rows.store)
    assert first is not None
    assert first.group_id == young
    await claims.return_claim(rows.store, first)
    await rows.set(schema.versions, version.id, state="gated")  # nobody waits for it any more
    took = [await judge(rows.store) for _ in range(3)]
    assert [claim and claim.group_id for claim in took] == [traffic, unpinned, young]


async def test_one_to_be_judged_again_has_its_turn_by_its_age(rows: Rows) -> None:
    again = await rows.ready_group(ready_at=now() - 2)
    claim = await judge(rows.store)
    assert claim is not None
    await scores.mark_unscored(rows.store, claim, "judge_down", None, try_after_s=-1)
    old = await rows.ready_group(ready_at=now() - 3)
    young = await rows.ready_group(ready_at=now() - 1)
    took = [await judge(rows.store) for _ in range(4)]
    assert [claim and claim.group_id for claim in took] == [old, again, young, None]


async def test_however_many_groups_wait_the_next_is_read_from_an_index_in_its_order(rows: Rows) -> None:
    await rows.ready_group()
    with rows.statements() as said:
        assert await judge(rows.store) is not None
    [claim] = [text for text in said if "picked" in text]
    plan = await explained(rows.store, claim)
    assert "ix_groups_ready" in plan
    assert [step for step in ("SCAN groups", "TEMP B-TREE", "Sort", "Seq Scan on groups") if step in plan] == []


async def explained(store: Store, statement: str) -> str:
    """The plan of a statement whatever its parameters are, as of a large table."""
    async with store.read() as conn:
        if store.is_sqlite:
            nothing = (None,) * statement.count("?")
            return str((await conn.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", nothing)).all())
        await conn.exec_driver_sql("SET LOCAL enable_seqscan = off")
        await conn.exec_driver_sql("SET LOCAL enable_bitmapscan = off")
        return str((await conn.exec_driver_sql("EXPLAIN " + re.sub(r"\$\d+", "'1'", statement))).all())


async def test_an_unscored_group_is_tried_again_when_its_time_has_come(rows: Rows) -> None:
    group = await rows.ready_group()
    claim = await judge(rows.store)
    assert claim is not None
    await scores.mark_unscored(rows.store, claim, "judge_down", {"message": "503"}, try_after_s=1000)
    assert await judge(rows.store) is None
    await rows.set(groups, group, try_after=now() - 1)
    again = await judge(rows.store)
    assert again is not None
    assert (again.group_id, again.tries, again.epoch) == (group, 1, 2)


async def test_polling_for_work_does_not_need_the_write_lock(rows: Rows) -> None:
    alias = await rows.alias()
    async with rows.store.write():  # held: another writer would wait for it until it fails
        assert await judge(rows.store) is None
        assert await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=1) == []
        assert await claims.claim_one_for_judging(rows.store, "nothing", "j", 60) is None


async def test_a_group_of_another_project_is_never_claimed(rows: Rows) -> None:
    await rows.ready_group()
    assert await claims.claim_for_judging(Project(rows.store, "other"), "j", 60) is None


@pytest.mark.parametrize("purpose", [p for p in Purpose if p is not Purpose.TRAIN])
async def test_only_groups_for_training_reach_the_trainer(rows: Rows, purpose: Purpose) -> None:
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id, purpose=purpose)
    wanted = await rows.scored_group(alias_id=alias.id)
    took = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9)
    assert [claim.group_id for claim in took] == [wanted]


@pytest.mark.parametrize("purpose", ["val", "eval"])
async def test_a_single_measured_member_keeps_its_group_from_the_trainer(rows: Rows, purpose: str) -> None:
    alias = await rows.alias()
    group = await rows.scored_group(alias_id=alias.id)
    await rows.trajectory(group, state="completed", purpose=purpose)
    assert await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9) == []


async def test_members_that_were_never_judged_do_not_matter_to_the_trainer(rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.scored_group(alias_id=alias.id)
    await rows.trajectory(group, state="completed", purpose="none")
    await rows.trajectory(group, state="errored", purpose="val")
    await rows.trajectory(group, state="completed", purpose="val", selection="not_selected")
    assert [c.group_id for c in await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9)] == [group]


async def test_a_campaigns_groups_are_its_own(rows: Rows) -> None:
    alias = await rows.alias()
    live = await rows.scored_group(alias_id=alias.id)
    campaigns = await rows.scored_group(alias_id=alias.id, campaign_id="camp")
    assert [c.group_id for c in await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9)] == [live]
    of_camp = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9, campaign_id="camp")
    assert [c.group_id for c in of_camp] == [campaigns]


async def test_a_trainer_may_name_the_groups_it_wants_and_how_many(rows: Rows) -> None:
    alias = await rows.alias()
    ids = [await rows.scored_group(alias_id=alias.id, ready_at=now() - 100 + n) for n in range(4)]
    named = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9, group_ids=ids[2:])
    assert [c.group_id for c in named] == ids[2:]
    oldest = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=1)
    assert [c.group_id for c in oldest] == ids[:1]


async def test_another_aliass_groups_are_left_alone(rows: Rows) -> None:
    alias, other = await rows.alias(), await rows.alias("other")
    await rows.scored_group(alias_id=other.id)
    assert await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=9) == []


async def test_renewing_extends_the_lease(rows: Rows) -> None:
    await rows.ready_group()
    claim = await judge(rows.store, lease_s=1)
    assert claim is not None
    renewed = await claims.renew_claim(rows.store, claim, 1000)
    assert renewed.expires_at > claim.expires_at + 900
    assert (await rows.get(groups, claim.group_id))["lease_expires_at"] == renewed.expires_at


async def test_what_is_given_back_can_be_claimed_again(rows: Rows) -> None:
    alias = await rows.alias()
    group = await rows.ready_group(alias_id=alias.id)
    claim = await judge(rows.store)
    assert claim is not None
    await claims.return_claim(rows.store, claim)
    assert await rows.state(groups, group) == "ready"
    await rows.score(group)
    [training] = await claims.claim_for_training(rows.store, alias.id, "t", 60, limit=1)
    await claims.return_claim(rows.store, training)
    assert await rows.state(groups, group) == "scored"


async def test_the_holder_of_a_lost_lease_can_do_nothing(rows: Rows) -> None:
    await rows.ready_group()
    claim = await judge(rows.store)
    assert claim is not None
    taken = await take_over(rows, claim)
    assert taken.epoch == claim.epoch + 1
    with pytest.raises(LeaseLost):
        await claims.renew_claim(rows.store, claim, 60)
    with pytest.raises(LeaseLost):
        await claims.return_claim(rows.store, claim)
    with pytest.raises(LeaseLost):
        await scores.record_score(rows.store, claim, await rows.judgement(claim))
    with pytest.raises(LeaseLost):
        await scores.mark_unscored(rows.store, claim, "down", None, 1)
    with pytest.raises(LeaseLost):
        await scores.exclude_group(rows.store, claim, "zero_variance")
    row = await rows.get(groups, claim.group_id)
    assert (row["state"], row["lease_owner"], row["current_score_id"]) == ("judging", "other", None)


async def test_a_scored_group_may_be_judged_again_by_name(rows: Rows) -> None:
    group = await rows.scored_group()
    assert await judge(rows.store) is None
    first = (await rows.get(groups, group))["current_score_id"]
    second = await rows.score(group, "second")
    assert second != first
    assert len(await scores.list_scores(rows.store, group)) == 2
    assert (await rows.get(groups, group))["current_score_id"] == second


async def test_a_group_that_is_held_or_done_is_not_claimed_by_name(rows: Rows) -> None:
    for state in ("open", "judging", "training", "trained", "left_out"):
        group = await rows.group(state=state, ready_at=now())
        assert await claims.claim_one_for_judging(rows.store, group, "j", 60) is None


async def test_a_judge_knows_when_the_next_group_may_be_tried_again(rows: Rows) -> None:
    assert await claims.next_try_in(Project(rows.store, PROJECT)) is None
    await rows.group(state="unscored")  # by a person alone
    assert await claims.next_try_in(Project(rows.store, PROJECT)) is None
    for after_s in (100, 50):
        await rows.group(state="unscored", try_after=now() + after_s)
    assert await claims.next_try_in(Project(rows.store, PROJECT)) == pytest.approx(50, abs=1)
    await rows.group(state="unscored", try_after=now() - 1)
    assert await claims.next_try_in(Project(rows.store, PROJECT)) == 0


async def test_what_is_counted_for_training_is_what_can_be_claimed(rows: Rows) -> None:
    alias = await rows.alias()
    await rows.scored_group(alias_id=alias.id, campaign_id="c")
    await rows.scored_group(alias_id=alias.id, purpose="eval")
    await rows.ready_group(alias_id=alias.id)
    assert (await claims.waiting_for_training(rows.store, alias.id)).groups == 0
    await rows.scored_group(alias_id=alias.id)
    assert (await claims.waiting_for_training(rows.store, alias.id)).groups == 1
    assert len(await claims.claim_for_training(rows.store, alias.id, "me", 60, limit=9)) == 1
    assert (await claims.waiting_for_training(rows.store, alias.id)).groups == 0
