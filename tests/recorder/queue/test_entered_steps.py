"""Groups that are sampled ahead enter one step, whole; what no step took is excluded when the campaign ends."""

from __future__ import annotations

from recorder.queue import attempts, campaigns, entered_steps
from recorder.queue.attempts import AttemptView, NewAttempt
from recorder.queue.campaigns import CampaignView, NewScenario
from recorder.queue.entered_steps import CAMPAIGN_ENDED
from recorder.states import AttemptState, Purpose
from recorder.store import ledger
from recorder.store.database import Project
from recorder.store.schema import attempts as table
from recorder.store.schema import groups, trajectories
from tests.recorder.queue.bindings import bind_group
from tests.recorder.rows import PROJECT, Rows

DONE, ERRORED = AttemptState.DONE, AttemptState.ERRORED


async def planned(rows: Rows, steps: int = 2) -> CampaignView:
    """A campaign with one scenario and one group of two attempts a step, `g-STEP`."""
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), (await rows.alias()).id, "orders", {})
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("order", {"order": 1})])
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    for step in range(1, steps + 1):
        name = f"g-{step}"
        await bind_group(Project(rows.store, PROJECT), name, campaign.id, scenario.id, 2, campaign.alias_id)
        own = [NewAttempt(scenario.id, step, Purpose.TRAIN, n, name, f"{step}-{n}") for n in range(2)]
        await attempts.new_attempts(rows.store, campaign.id, own)
    return campaign


async def claimed(rows: Rows, campaign: CampaignView, count: int) -> list[AttemptView]:
    found = await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, count)
    for one in found:
        await rows.call(one.trajectory_id)
    return found


async def ended(rows: Rows, campaign: CampaignView, count: int) -> None:
    for one in await claimed(rows, campaign, count):
        await attempts.finish_attempt(rows.store, one, DONE)


async def of_step(rows: Rows, campaign: CampaignView, step: int) -> list[str]:
    found = await campaigns.group_states(rows.store, campaign.id, step, Purpose.TRAIN)
    return [group.external_id for group in found]


async def test_a_group_has_ended_when_its_last_attempt_has(rows: Rows) -> None:
    campaign = await planned(rows)
    await ended(rows, campaign, 3)
    first, second = await entered_steps.list_waiting_groups(rows.store, campaign.id)
    assert (first.name, first.planned_step, first.ended) == ("g-1", 1, 2)
    assert first.ended_at == max(row["ended_at"] for row in await rows.all(table) if row["step_number"] == 1)
    assert (second.name, second.ended_at, second.ended) == ("g-2", None, 1)


async def test_an_attempt_that_is_made_again_keeps_its_group_waiting(rows: Rows) -> None:
    campaign = await planned(rows, steps=1)
    one, other = await claimed(rows, campaign, 2)
    await attempts.finish_attempt(rows.store, one, DONE)
    await attempts.finish_attempt(rows.store, other, ERRORED, error="503", retry=True)
    [group] = await entered_steps.list_waiting_groups(rows.store, campaign.id)
    assert group.ended_at is None
    await ended(rows, campaign, 1)
    [group] = await entered_steps.list_waiting_groups(rows.store, campaign.id)
    assert group.ended_at is not None


async def test_a_step_has_the_groups_that_entered_it_and_before_that_those_planned_for_it(rows: Rows) -> None:
    campaign = await planned(rows)
    assert await of_step(rows, campaign, 1) == ["g-1"]
    await ended(rows, campaign, 4)
    await entered_steps.enter_groups(rows.store, campaign.id, 1, ["g-2"])
    assert (await of_step(rows, campaign, 1), await of_step(rows, campaign, 2)) == (["g-2"], [])
    assert [group.name for group in await entered_steps.list_waiting_groups(rows.store, campaign.id)] == ["g-1"]
    assert await attempts.count_by_state(rows.store, campaign.id, 1) == {DONE: 2}
    await entered_steps.enter_groups(rows.store, campaign.id, 2, ["g-1", "g-2"])  # none moves to another step
    assert (await of_step(rows, campaign, 1), await of_step(rows, campaign, 2)) == (["g-2"], ["g-1"])
    listed = await entered_steps.list_entered_groups(rows.store, campaign.id, 2)
    assert list(listed) == ["g-1"]
    assert len(await entered_steps.list_taken_ids(rows.store, campaign.id, 1)) == 1
    assert len(await entered_steps.list_taken_ids(rows.store, campaign.id, 2)) == 2


async def test_what_is_planned_is_read_back(rows: Rows) -> None:
    campaign = await planned(rows, steps=3)
    assert await entered_steps.last_planned_step(rows.store, campaign.id) == 3
    assert await entered_steps.count_planned_groups(rows.store, campaign.id, 2) == 1
    assert not await entered_steps.samples_ahead(rows.store, campaign.id)
    await entered_steps.enter_groups(rows.store, campaign.id, 1, ["g-1"])
    assert await entered_steps.samples_ahead(rows.store, campaign.id)


async def test_groups_of_steps_that_were_made_without_a_lag_wait_for_no_other_step(rows: Rows) -> None:
    campaign = await planned(rows, steps=3)
    await ended(rows, campaign, 6)
    await entered_steps.enter_groups(rows.store, campaign.id, 2, ["g-3"])  # and g-2 was left over
    await entered_steps.enter_earlier_steps(rows.store, campaign.id, 2)
    assert [await of_step(rows, campaign, step) for step in (1, 2, 3)] == [["g-1"], ["g-3"], []]
    assert [group.name for group in await entered_steps.list_waiting_groups(rows.store, campaign.id)] == ["g-2"]


async def test_at_the_end_what_no_step_took_is_excluded_with_its_reason(rows: Rows) -> None:
    campaign = await planned(rows, steps=4)
    await ended(rows, campaign, 4)  # g-1 and g-2
    await claimed(rows, campaign, 1)  # g-3
    await entered_steps.enter_groups(rows.store, campaign.id, 1, ["g-1"])
    assert await entered_steps.end_waiting_groups(rows.store, campaign.id) == 3
    found = {row["external_id"]: (row["state"], row["reason"]) for row in await rows.all(groups)}
    assert found.pop("g-1") == ("ready", None)
    assert found == dict.fromkeys(("g-2", "g-3", "g-4"), ("left_out", CAMPAIGN_ENDED))
    states = {(row["step_number"], row["number"]): row["state"] for row in await rows.all(table)}
    assert [states[2, 0], states[3, 0], states[3, 1], states[4, 0]] == ["done", *["abandoned"] * 3]
    assert {row["state"] for row in await rows.all(trajectories)} == {"completed", "abandoned"}
    for row in await rows.all(groups):
        if row["external_id"] != "g-1":
            codes = [entry.code for entry in await ledger.object_entries(rows.store, "group", row["id"])]
            assert codes == [CAMPAIGN_ENDED]
    assert await entered_steps.end_waiting_groups(rows.store, campaign.id) == 3  # killed in between, it says the same


async def test_only_attempts_of_a_purpose_are_claimed_where_that_is_asked_for(rows: Rows) -> None:
    campaign = await planned(rows, steps=1)
    assert await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, 9, Purpose.VAL) == []
    assert len(await attempts.claim_attempts(rows.store, campaign.id, "runner", 60, 9, Purpose.TRAIN)) == 2
