"""What happened since the last look: batches judged, groups left out or tried again, steps, versions, engines."""

from __future__ import annotations

from pathlib import Path

import pytest

from recorder.queue import claims, gate_requests
from recorder.queue.judging import scores
from recorder.queue.judging.scores import NewPart
from recorder.queue.training import steps
from recorder.registry import replicas, versions
from recorder.registry.alias_moves import rollback, set_canary, set_live
from recorder.states import VersionState
from recorder.store.database import Project, Store
from recorder.store.schema import trajectories
from recorder.views.status.events import Event, EventKind, EventReader
from recorder.views.status.project import list_alarms, load_status
from recorder.views.status.stages import LoopSettings
from tests.recorder.rows import PROJECT, Rows

PASSED = (VersionState.WRITTEN, VersionState.LOADED, VersionState.GATED)


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


@pytest.fixture
async def happenings(store: Store, rows: Rows) -> EventReader:
    await rows.scored_group()
    made = EventReader(Project(store, PROJECT))
    assert await made.look() == []  # what was there before is no news
    return made


def kinds(told: list[Event]) -> list[EventKind]:
    return [one.kind for one in told]


async def test_groups_judged_between_two_looks_are_one_batch_and_told_once(rows: Rows, happenings: EventReader) -> None:
    alias = await rows.alias()
    for _ in range(2):
        await rows.scored_group(3, alias_id=alias.id)
    [told] = await happenings.look()
    assert told.kind is EventKind.JUDGED
    assert told.text == "helpdesk: 2 groups judged, 6 trajectories, reward 0.50 (0.00 to 1.00)"
    assert told.facts["trajectories"] == 6
    assert await happenings.look() == []


async def test_what_is_judged_for_a_gate_is_told_apart_and_shadow_answers_are_named(
    rows: Rows, happenings: EventReader
) -> None:
    alias = await rows.alias()
    for run in ({"origin": "live"}, {"origin": "shadow"}, {"origin": "shadow", "purpose": "eval"}, {"purpose": "val"}):
        group = await rows.ready_group(alias_id=alias.id)
        for member in await rows.members(group):
            await rows.set(trajectories, member, **run)
        await rows.score(group)
    reward = "reward 0.50 (0.00 to 1.00)"
    assert [one.text for one in await happenings.look()] == [
        f"helpdesk: 1 group judged to be measured, 2 trajectories, {reward}",
        f"helpdesk: 1 group judged for the gate, 2 trajectories, {reward}",
        f"helpdesk: 2 groups judged (1 of shadow answers), 4 trajectories, {reward}",
    ]


async def test_runs_that_nobody_was_asked_about_are_counted_and_in_no_mean(
    store: Store, rows: Rows, happenings: EventReader
) -> None:
    alias = await rows.alias()
    await rows.scored_group(2, alias_id=alias.id)
    claim = await claims.claim_one_for_judging(store, await rows.ready_group(3, alias_id=alias.id), "judge", 60)
    assert claim is not None
    parts = [NewPart(id_, "reward", 0.1, unasked=True) for id_ in await rows.members(claim.group_id)]
    await scores.record_score(store, claim, await rows.judgement(claim, parts=parts))
    [told] = await happenings.look()
    assert told.text == "helpdesk: 2 groups judged, 5 trajectories (3 without a judge), reward 0.50 (0.00 to 1.00)"
    assert (told.facts["trajectories"], told.facts["unasked"], told.facts["reward_mean"]) == (5, 3, 0.5)


async def test_a_function_that_raised_for_some_runs_is_told_beside_the_batch(
    store: Store, rows: Rows, happenings: EventReader
) -> None:
    await rows.ready_group()
    claim = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    assert claim is not None
    ids = await rows.members(claim.group_id)
    parts = [NewPart(id_, "reward", 1.0) for id_ in ids] + [NewPart(ids[0], "polite", None, 1.0, "KeyError: 'x'")]
    await scores.record_score(store, claim, await rows.judgement(claim, parts=parts))
    judged, fault = await happenings.look()
    assert judged.kind is EventKind.JUDGED
    assert (fault.kind, fault.text) == (
        EventKind.FAULT,
        "no alias: 'polite' is missing for 1 trajectory: KeyError: 'x'",
    )


async def test_a_judge_that_fails_and_what_is_left_out_are_told(
    store: Store, rows: Rows, happenings: EventReader
) -> None:
    for _ in range(2):
        await rows.ready_group()
    first = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    second = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    assert first is not None
    assert second is not None
    await scores.mark_unscored(store, first, "judge_down", {"message": "no route"}, 90)
    await scores.exclude_group(store, second, "too_few", "one is not enough")
    fault, left = await happenings.look()
    assert fault.kind is EventKind.FAULT
    assert fault.text == "1 group could not be judged (judge_down): no route; tried again in 01:30"
    assert (left.kind, left.text) == (EventKind.EXCLUDED, "1 group excluded (too_few): one is not enough")


@pytest.mark.parametrize("code", ["waiting_for_feedback", "waiting_for_follow_up"])
async def test_a_group_that_waits_for_its_users_is_no_fault(
    store: Store, rows: Rows, happenings: EventReader, code: str
) -> None:
    await rows.ready_group()
    claim = await claims.claim_for_judging(Project(store, PROJECT), "j", 60)
    assert claim is not None
    await scores.mark_unscored(store, claim, code, {"message": "users may still write next"}, 90)
    assert await happenings.look() == []
    status = await load_status(Project(store, PROJECT), LoopSettings())
    assert [one.code for one in status.unscored] == [code]
    assert not [line for line in list_alarms(status) if code in line]


async def test_what_only_measures_is_not_excluded_and_told_apart_from_what_agents_did(
    store: Store, rows: Rows, happenings: EventReader
) -> None:
    for run in ({"origin": "live"}, {"origin": "shadow", "purpose": "eval"}, {"purpose": "val"}):
        group = await rows.ready_group()
        for member in await rows.members(group):
            await rows.set(trajectories, member, **run)
        claim = await claims.claim_one_for_judging(store, group, "j", 60)
        assert claim is not None
        await scores.exclude_group(store, claim, "check_undecided", "it hangs")
    assert {(one.text, one.facts["purpose"]) for one in await happenings.look()} == {
        ("1 group excluded (check_undecided): it hangs", "learning"),
        ("1 group of the gate got no score (check_undecided): it hangs", "gate"),
        ("1 group of an evaluation got no score (check_undecided): it hangs", "evaluation"),
    }


async def test_a_gate_is_told_round_by_round(store: Store, rows: Rows, happenings: EventReader) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    live = await versions.get_version(store, alias.live_version_id)
    version = await versions.allocate_version(store, alias.id, live.id)
    await happenings.look()
    wish = await gate_requests.request_gate(store, version, live, 8)
    assert await happenings.look() == []
    await gate_requests.write_round(store, wish, 1, {})
    [told] = await happenings.look()
    assert (told.kind, told.text) == (
        EventKind.GATE, "helpdesk@1 attempts its held-out scenarios: 0 of at most 16 attempts"
    )  # fmt: skip
    assert await happenings.look() == []


async def test_steps_and_versions_are_told_to_the_swap_and_back(
    store: Store, rows: Rows, happenings: EventReader, tmp_path: Path
) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    await happenings.look()
    step = await steps.begin_step(store, alias.id, alias.live_version_id)
    assert [one.text for one in await happenings.look()] == ["helpdesk: step 1 begins"]
    await steps.abandon_step(store, step.id, "loss is not finite")
    [told] = await happenings.look()
    assert (told.kind, told.text) == (EventKind.FAULT, "helpdesk: step 1 was abandoned (loss is not finite)")
    version = await versions.allocate_version(store, alias.id, alias.live_version_id)
    for state in PASSED:
        await versions.mark_version(store, version.id, state)
    assert kinds(await happenings.look()) == [EventKind.GATE]
    await set_live(store, alias.id, version.id, why="gate")
    [swap] = await happenings.look()
    assert (swap.kind, swap.text) == (EventKind.SWAP, "helpdesk@1 is live, in place of helpdesk@0")
    await rollback(store, alias.id)
    [back] = await happenings.look()
    assert (back.kind, back.text) == (EventKind.ROLLBACK, "helpdesk@0 is live, in place of helpdesk@1")


async def test_what_runs_decided_is_told_with_their_reason(store: Store, rows: Rows, happenings: EventReader) -> None:
    alias = await rows.alias()
    assert alias.live_version_id is not None
    made = [await versions.allocate_version(store, alias.id, alias.live_version_id) for _ in range(2)]
    for version in made:
        for state in PASSED:
            await versions.mark_version(store, version.id, state)
    await set_canary(store, alias.id, made[0].id, 0.1)
    await happenings.look()
    await set_canary(store, alias.id, None, 0.0, who="controller", reason="its runs are worse by reward")
    [gone] = await happenings.look()
    told = (EventKind.ROLLBACK, "helpdesk@1 is no longer the canary: its runs are worse by reward")
    assert (gone.kind, gone.text) == told
    await set_live(store, alias.id, made[1].id, why="gate")
    await happenings.look()
    await rollback(store, alias.id, who="controller", reason="the runs of helpdesk@2 are worse by errors")
    [back] = await happenings.look()
    said = "helpdesk@0 is live, in place of helpdesk@2: the runs of helpdesk@2 are worse by errors"
    assert (back.kind, back.text) == (EventKind.ROLLBACK, said)


async def test_an_engine_that_goes_is_a_fault_and_one_that_comes_none(store: Store, happenings: EventReader) -> None:
    await replicas.report_replica(Project(store, PROJECT), "http://e", state="up")
    assert kinds(await happenings.look()) == [EventKind.ENGINE]
    await replicas.report_replica(Project(store, PROJECT), "http://e", state="down", detail="refused")
    [told] = await happenings.look()
    assert (told.kind, told.text) == (EventKind.FAULT, "http://e is down: refused")


async def test_an_engine_that_is_awaited_for_the_first_time_is_no_fault(store: Store, happenings: EventReader) -> None:
    await replicas.report_replica(Project(store, PROJECT), "http://e", state="down", detail="refused")
    [told] = await happenings.look()
    assert (told.kind, told.text) == (EventKind.ENGINE, "http://e is not up yet: refused")
    await replicas.report_replica(Project(store, PROJECT), "http://e", state="up")
    assert [one.text for one in await happenings.look()] == ["http://e is up"]


async def test_no_fault_is_told_of_an_engine_that_is_being_started_until_it_was_up(store: Store) -> None:
    ours, theirs = "http://ours", "http://theirs"
    for url in (ours, theirs):
        await replicas.report_replica(Project(store, PROJECT), url, state="starting")
    happenings = EventReader(Project(store, PROJECT), starting=[ours])
    await happenings.look()
    for url in (ours, theirs):
        await replicas.report_replica(Project(store, PROJECT), url, state="down", detail="refused")
    first, second = await happenings.look()
    assert (first.kind, first.text) == (EventKind.ENGINE, "http://ours is not up yet: refused")
    assert (second.kind, second.text) == (EventKind.FAULT, "http://theirs is down: refused")
    await replicas.report_replica(Project(store, PROJECT), ours, state="up")
    assert [one.text for one in await happenings.look()] == ["http://ours is up"]
    await replicas.report_replica(Project(store, PROJECT), ours, state="down", detail="refused")
    assert [(one.kind, one.text) for one in await happenings.look()] == [
        (EventKind.FAULT, "http://ours is down: refused")
    ]


async def test_an_engine_that_answers_with_what_cannot_be_used_is_a_fault_told_once(store: Store) -> None:
    url = "http://ours"
    happenings = EventReader(Project(store, PROJECT), starting=[url])
    await happenings.look()
    await replicas.report_replica(Project(store, PROJECT), url, state="down", detail="refused")
    assert kinds(await happenings.look()) == [EventKind.ENGINE]
    await replicas.report_replica(Project(store, PROJECT), url, state="down", detail="another base", base_model="base")
    [told] = await happenings.look()
    assert (told.kind, told.text) == (EventKind.FAULT, "http://ours is down: another base")
    await replicas.report_replica(Project(store, PROJECT), url, state="down", detail="another base", base_model="base")
    assert await happenings.look() == []
