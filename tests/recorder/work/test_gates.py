"""What a version's gate asks of the learner: one wish a version, its rounds, and the pairs that they come to."""

from __future__ import annotations

import pytest

from recorder.groups.closing import close_group
from recorder.groups.lookup import BY_FUNCTION
from recorder.holding import leases
from recorder.registry.versions import VersionView, allocate, get_version, get_versions, mark
from recorder.states import AttemptState, CampaignState, GroupState, Purpose, VersionState
from recorder.store.project import Project
from recorder.work import attempts, campaigns, gates
from recorder.work.attempts import NewAttempt
from recorder.work.campaigns import Binding, NewScenario
from recorder.work.gates import Pair, Progress, Side, Wish
from tests.recorder.rows import PROJECT, Rows


async def sides(rows: Rows) -> tuple[VersionView, VersionView]:
    """A version to be decided, and the live one."""
    alias = await rows.alias()
    assert alias.live_version_id is not None
    live = await get_version(rows.store, alias.live_version_id)
    return await allocate(rows.store, alias.id, live.id), live


async def asked(rows: Rows, pairs: int = 64) -> Wish:
    version, live = await sides(rows)
    await gates.ask(rows.store, version, live, pairs)
    wish = await gates.wanted(rows.store, version.alias_id)
    assert wish is not None
    return wish


async def planned(rows: Rows, wish: Wish, number: int, tasks: int = 2) -> list[str]:
    """A round, as the learner plans it; its groups."""
    row = wish.row
    await campaigns.add_scenarios(rows.store, row.id, "val", [NewScenario(f"s{n}", n) for n in range(tasks)])
    named = [
        (f"{row.id}.{number}.{at}.{side}", scenario.id, side)
        for at, scenario in enumerate(await campaigns.list_scenarios(rows.store, row.id, "val"))
        for side in Side
    ]
    bindings = [Binding(group, scenario, 1) for group, scenario, _ in named]
    await campaigns.bind_groups(Project(rows.store, PROJECT), row.id, row.alias_id, bindings)
    new = [NewAttempt(scenario, number, Purpose.EVAL, side, group, "0") for group, scenario, side in named]
    await attempts.new_attempts(rows.store, row.id, new)
    return [group for group, _, _ in named]


async def test_who_asks_twice_finds_what_was_asked(rows: Rows) -> None:
    version, live = await sides(rows)
    first = await gates.ask(rows.store, version, live, 64)
    assert await gates.ask(rows.store, version, live, 8) == first
    wish = await gates.wanted(rows.store, version.alias_id)
    assert wish is not None
    assert (wish.row.id, wish.version, wish.beside, wish.pairs) == (first, version.name, live.name, 64)


async def test_a_wish_is_no_campaign(rows: Rows) -> None:
    wish = await asked(rows)
    await leases.acquire(Project(rows.store, PROJECT), campaigns.lease_name(wish.row.id), "learner", 60)
    assert await campaigns.list_campaigns(Project(rows.store, PROJECT)) == []
    assert await campaigns.find(Project(rows.store, PROJECT), wish.row.name) is None
    assert await campaigns.running_on(rows.store, wish.row.alias_id) == []


async def test_a_wish_that_is_over_is_wanted_no_more_and_stays_as_it_ended(rows: Rows) -> None:
    wish = await asked(rows)
    await gates.end(rows.store, wish.row.id, CampaignState.FINISHED, gates.DECIDED)
    await gates.end(rows.store, wish.row.id, CampaignState.FAILED, "no agent")
    assert await gates.wanted(rows.store, wish.row.alias_id) is None
    found = await gates.answer(rows.store, wish.row.id)
    assert (found.state, found.reason) == (CampaignState.FINISHED, gates.DECIDED)


async def test_pairs_are_those_of_measured_rounds_that_were_measured_on_both_sides(rows: Rows) -> None:
    wish = await asked(rows)
    new_0, old_0, new_1, old_1 = await planned(rows, wish, 1)
    later = await planned(rows, wish, 2)
    assert (await gates.answer(rows.store, wish.row.id)).pairs == []
    await gates.write_round(rows.store, wish.row.id, 1, {new_0: 1.0, old_0: 0.0, new_1: 1.0})
    assert (await gates.answer(rows.store, wish.row.id)).pairs == [Pair(1.0, 0.0)]
    assert old_1 not in later
    await gates.write_round(rows.store, wish.row.id, 2, dict.fromkeys(later, 0.0))
    pairs = (await gates.answer(rows.store, wish.row.id)).pairs
    assert pairs == [Pair(1.0, 0.0), Pair(0.0, 0.0), Pair(0.0, 0.0)]


async def test_another_gates_rounds_are_not_its_pairs(rows: Rows) -> None:
    first = await asked(rows)
    alias = await rows.alias("other")
    assert alias.live_version_id is not None
    live = await get_version(rows.store, alias.live_version_id)
    await gates.ask(rows.store, await allocate(rows.store, alias.id, live.id), live, 8)
    second = await gates.wanted(rows.store, alias.id)
    assert second is not None
    groups = await planned(rows, first, 1)
    await planned(rows, second, 1)
    await gates.write_round(rows.store, first.row.id, 1, dict.fromkeys(groups, 1.0))
    assert len((await gates.answer(rows.store, first.row.id)).pairs) == 2
    assert (await gates.answer(rows.store, second.row.id)).pairs == []


async def test_progress_counts_attempts_that_ended_of_those_that_were_asked_for(rows: Rows) -> None:
    wish = await asked(rows, pairs=4)
    await planned(rows, wish, 1)
    [taken, *_] = await attempts.claim_attempts(rows.store, wish.row.id, "learner", 60, limit=2)
    await attempts.finish_attempt(rows.store, taken, AttemptState.DONE, retry=True)
    [found] = await in_progress(rows)
    assert str(found) == "1 of at most 8 attempts"
    await gates.end(rows.store, wish.row.id, CampaignState.FINISHED, gates.LATE)
    assert await in_progress(rows) == []


async def in_progress(rows: Rows) -> list[Progress]:
    async with rows.store.read() as conn:
        return list((await gates.in_progress(conn, PROJECT)).values())


async def test_what_a_killed_learner_left_of_a_wish_that_is_over_is_taken_back(rows: Rows) -> None:
    wish = await asked(rows)
    await planned(rows, wish, 1)
    await attempts.claim_attempts(rows.store, wish.row.id, "learner", -1.0, limit=4)
    await gates.end(rows.store, wish.row.id, CampaignState.FINISHED, gates.LATE)
    assert await attempts.abandon_expired(Project(rows.store, PROJECT)) == 4
    for group in await campaigns.group_states(rows.store, wish.row.id, 1, Purpose.EVAL):
        await close_group(Project(rows.store, PROJECT), group.group_id)
    assert await attempts.abandon_groupless(Project(rows.store, PROJECT)) == 4


async def test_a_version_that_is_decided_about_wants_nothing_any_more(rows: Rows) -> None:
    wish = await asked(rows)
    assert await gates.is_wanted(rows.store, wish.row.id)
    version = await gates_version(rows, wish)
    await mark(rows.store, version, VersionState.ABANDONED)
    assert not await gates.is_wanted(rows.store, wish.row.id)
    assert await gates.wanted(rows.store, wish.row.alias_id) is None


async def gates_version(rows: Rows, wish: Wish) -> str:
    [found] = [v.id for v in await get_versions(Project(rows.store, PROJECT)) if v.name == wish.version]
    return found


@pytest.mark.parametrize(("more", "state"), [({}, GroupState.READY), ({BY_FUNCTION: True}, GroupState.LEFT_OUT)])
async def test_an_evaluations_groups_wait_for_a_judge_unless_a_function_tells_success(
    rows: Rows, more: dict[str, bool], state: GroupState
) -> None:
    alias = await rows.alias()
    row = await campaigns.create(Project(rows.store, PROJECT), alias.id, "eval:val", {campaigns.EVALUATES: {}, **more})
    group = await rows.group(campaign_id=row.id, alias_id=alias.id)
    for _ in range(2):
        await rows.trajectory(group_id=group, state="completed", purpose="eval")
    assert (await close_group(Project(rows.store, PROJECT), group)).state is state


async def test_a_gates_groups_never_wait_for_a_judge(rows: Rows) -> None:
    wish = await asked(rows)
    group, *_ = await planned(rows, wish, 1)
    closed = await close_group(Project(rows.store, PROJECT), group)
    assert (closed.state, closed.reason) == (GroupState.LEFT_OUT, "measured")
