"""What a version's gate asks of the learner: one wish a version, its rounds, and the pairs that they come to."""

from __future__ import annotations

import pytest

from recorder.queue import attempts, campaigns, gate_requests, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.queue.gate_requests import AcceptedVersion, GateArm, GatePair, GateProgress, GateRequest
from recorder.queue.groups.closure import close_group
from recorder.queue.groups.lookup import BY_FUNCTION
from recorder.registry.versions import VersionView, allocate_version, get_version, get_versions, mark_version
from recorder.states import AttemptState, CampaignState, GroupState, Purpose, VersionState
from recorder.store.database import Project
from recorder.store.schema import steps
from tests.recorder.rows import PROJECT, Rows


async def sides(rows: Rows) -> tuple[VersionView, VersionView]:
    """A version to be decided, and the live one."""
    alias = await rows.alias()
    assert alias.live_version_id is not None
    live = await get_version(rows.store, alias.live_version_id)
    return await allocate_version(rows.store, alias.id, live.id), live


async def asked(rows: Rows, pairs: int = 64) -> GateRequest:
    version, live = await sides(rows)
    await gate_requests.request_gate(rows.store, version, live, pairs)
    wish = await gate_requests.next_request(rows.store, version.alias_id)
    assert wish is not None
    return wish


async def planned(rows: Rows, wish: GateRequest, number: int, tasks: int = 2) -> list[str]:
    """A round, as the learner plans it; its groups."""
    row = wish.row
    await campaigns.add_scenarios(rows.store, row.id, "val", [NewScenario(f"s{n}", n) for n in range(tasks)])
    named = [
        (f"{row.id}.{number}.{at}.{side}", scenario.id, side)
        for at, scenario in enumerate(await campaigns.list_scenarios(rows.store, row.id, "val"))
        for side in GateArm
    ]
    bindings = [GroupBinding(group, scenario, 1) for group, scenario, _ in named]
    await campaigns.bind_groups(Project(rows.store, PROJECT), row.id, row.alias_id, bindings)
    new = [NewAttempt(scenario, number, Purpose.EVAL, side, group, "0") for group, scenario, side in named]
    await attempts.new_attempts(rows.store, row.id, new)
    return [group for group, _, _ in named]


async def test_who_asks_twice_finds_what_was_asked(rows: Rows) -> None:
    version, live = await sides(rows)
    first = await gate_requests.request_gate(rows.store, version, live, 64)
    assert await gate_requests.request_gate(rows.store, version, live, 8) == first
    wish = await gate_requests.next_request(rows.store, version.alias_id)
    assert wish is not None
    assert (wish.row.id, wish.version, wish.beside, wish.pairs) == (first, version.name, live.name, 64)


async def test_a_version_is_attempted_beside_several_and_each_is_a_wish_of_its_own(rows: Rows) -> None:
    version, live = await sides(rows)
    earlier = await allocate_version(rows.store, version.alias_id, live.id)
    first = await gate_requests.request_gate(rows.store, version, live, 64)
    second = await gate_requests.request_gate(rows.store, version, earlier, 8)
    assert first != second
    assert await gate_requests.find_request(rows.store, version, live) == first
    assert await gate_requests.find_request(rows.store, version, earlier) == second
    assert await gate_requests.find_request(rows.store, earlier, live) is None
    await gate_requests.end_request(rows.store, first, CampaignState.FINISHED, gate_requests.DECIDED)
    wish = await gate_requests.next_request(rows.store, version.alias_id)
    assert wish is not None
    assert (wish.row.id, wish.beside) == (second, earlier.name)


async def test_a_wish_is_no_campaign(rows: Rows) -> None:
    wish = await asked(rows)
    await leases.acquire_lease(Project(rows.store, PROJECT), campaigns.lease_name(wish.row.id), "learner", 60)
    assert await campaigns.list_campaigns(Project(rows.store, PROJECT)) == []
    assert await campaigns.find_campaign(Project(rows.store, PROJECT), wish.row.name) is None
    assert await campaigns.list_running(rows.store, wish.row.alias_id) == []


async def test_a_wish_that_is_over_is_wanted_no_more_and_stays_as_it_ended(rows: Rows) -> None:
    wish = await asked(rows)
    await gate_requests.end_request(rows.store, wish.row.id, CampaignState.FINISHED, gate_requests.DECIDED)
    await gate_requests.end_request(rows.store, wish.row.id, CampaignState.FAILED, "no agent")
    assert await gate_requests.next_request(rows.store, wish.row.alias_id) is None
    found = await gate_requests.gate_result(rows.store, wish.row.id)
    assert (found.state, found.reason) == (CampaignState.FINISHED, gate_requests.DECIDED)


async def test_pairs_are_those_of_measured_rounds_that_were_measured_on_both_sides(rows: Rows) -> None:
    wish = await asked(rows)
    new_0, old_0, new_1, old_1 = await planned(rows, wish, 1)
    later = await planned(rows, wish, 2)
    assert (await gate_requests.gate_result(rows.store, wish.row.id)).pairs == []
    await gate_requests.write_round(rows.store, wish.row.id, 1, {new_0: 1.0, old_0: 0.0, new_1: 1.0})
    assert (await gate_requests.gate_result(rows.store, wish.row.id)).pairs == [GatePair(1.0, 0.0)]
    assert old_1 not in later
    await gate_requests.write_round(rows.store, wish.row.id, 2, dict.fromkeys(later, 0.0))
    pairs = (await gate_requests.gate_result(rows.store, wish.row.id)).pairs
    assert pairs == [GatePair(1.0, 0.0), GatePair(0.0, 0.0), GatePair(0.0, 0.0)]


async def test_another_gates_rounds_are_not_its_pairs(rows: Rows) -> None:
    first = await asked(rows)
    alias = await rows.alias("other")
    assert alias.live_version_id is not None
    live = await get_version(rows.store, alias.live_version_id)
    await gate_requests.request_gate(rows.store, await allocate_version(rows.store, alias.id, live.id), live, 8)
    second = await gate_requests.next_request(rows.store, alias.id)
    assert second is not None
    groups = await planned(rows, first, 1)
    await planned(rows, second, 1)
    await gate_requests.write_round(rows.store, first.row.id, 1, dict.fromkeys(groups, 1.0))
    assert len((await gate_requests.gate_result(rows.store, first.row.id)).pairs) == 2
    assert (await gate_requests.gate_result(rows.store, second.row.id)).pairs == []


async def test_progress_counts_attempts_that_ended_of_those_that_were_asked_for(rows: Rows) -> None:
    wish = await asked(rows, pairs=4)
    await planned(rows, wish, 1)
    [taken, *_] = await attempts.claim_attempts(rows.store, wish.row.id, "learner", 60, limit=2)
    await attempts.finish_attempt(rows.store, taken, AttemptState.DONE, retry=True)
    [found] = await in_progress(rows)
    assert str(found) == "1 of at most 8 attempts"
    await gate_requests.end_request(rows.store, wish.row.id, CampaignState.FINISHED, gate_requests.LATE)
    assert await in_progress(rows) == []


async def in_progress(rows: Rows) -> list[GateProgress]:
    async with rows.store.read() as conn:
        return list((await gate_requests.list_in_progress(conn, PROJECT)).values())


async def test_what_a_killed_learner_left_of_a_wish_that_is_over_is_taken_back(rows: Rows) -> None:
    wish = await asked(rows)
    await planned(rows, wish, 1)
    await attempts.claim_attempts(rows.store, wish.row.id, "learner", -1.0, limit=4)
    await gate_requests.end_request(rows.store, wish.row.id, CampaignState.FINISHED, gate_requests.LATE)
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 4
    for group in await campaigns.group_states(rows.store, wish.row.id, 1, Purpose.EVAL):
        await close_group(Project(rows.store, PROJECT), group.group_id)
    assert await attempts.abandon_groupless(Project(rows.store, PROJECT)) == 4


async def test_a_version_that_is_decided_about_wants_nothing_any_more(rows: Rows) -> None:
    wish = await asked(rows)
    assert await gate_requests.is_open(rows.store, wish.row.id)
    version = await gates_version(rows, wish)
    await mark_version(rows.store, version, VersionState.ABANDONED)
    assert not await gate_requests.is_open(rows.store, wish.row.id)
    assert await gate_requests.next_request(rows.store, wish.row.alias_id) is None


async def gates_version(rows: Rows, wish: GateRequest) -> str:
    [found] = [v.id for v in await get_versions(Project(rows.store, PROJECT)) if v.name == wish.version]
    return found


@pytest.mark.parametrize(("more", "state"), [({}, GroupState.READY), ({BY_FUNCTION: True}, GroupState.MEASURED)])
async def test_an_evaluations_groups_wait_for_a_judge_unless_a_function_tells_success(
    rows: Rows, more: dict[str, bool], state: GroupState
) -> None:
    alias = await rows.alias()
    row = await campaigns.create_campaign(
        Project(rows.store, PROJECT), alias.id, "eval:val", {campaigns.EVALUATES: {}, **more}
    )
    group = await rows.group(campaign_id=row.id, alias_id=alias.id)
    for _ in range(2):
        await rows.trajectory(group_id=group, state="completed", purpose="eval")
    assert (await close_group(Project(rows.store, PROJECT), group)).state is state


async def test_a_gates_groups_never_wait_for_a_judge(rows: Rows) -> None:
    wish = await asked(rows)
    group, *_ = await planned(rows, wish, 1)
    closed = await close_group(Project(rows.store, PROJECT), group)
    assert (closed.state, closed.reason) == (GroupState.MEASURED, "measured")


async def test_a_version_that_its_gate_accepted_has_the_mean_of_its_own_attempts(rows: Rows) -> None:
    wish = await asked(rows)
    new_0, old_0, new_1, old_1 = await planned(rows, wish, 1)
    await gate_requests.write_round(rows.store, wish.row.id, 1, {new_0: 1.0, old_0: 1.0, new_1: 0.0, old_1: 1.0})
    version, live = await gates_version(rows, wish), (await rows.alias()).live_version_id
    made = {"project_id": PROJECT, "alias_id": wish.row.alias_id, "state": "done", "metrics": {}, "started_at": 1.0}
    await rows.insert(steps, {"id": "step_1", "number": 7, "parent_version_id": live, "version_id": version, **made})
    assert live is not None
    assert await gate_requests.list_accepted(rows.store, live, 0.0) == []  # it is not live yet
    found = await gate_requests.list_accepted(rows.store, version, 0.0)
    assert found == [AcceptedVersion(1, 7, 2, 0.5)]
    assert await gate_requests.list_accepted(rows.store, version, 1e12) == []
