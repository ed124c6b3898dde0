"""Campaigns, their scenarios, and the groups that are bound to a scenario before their first call."""

from __future__ import annotations

import pytest

from recorder.errors import Conflict, InvalidId, NotFound
from recorder.queue import attempts, campaigns, leases
from recorder.queue.attempts import NewAttempt
from recorder.queue.campaigns import CampaignView, GroupBinding, NewScenario
from recorder.queue.groups.lookup import find_group
from recorder.states import CampaignState, GroupState, Purpose
from recorder.store.database import Project
from recorder.store.schema import groups
from tests.recorder.queue.bindings import bind_group
from tests.recorder.rows import PROJECT, Rows


async def create(rows: Rows, name: str = "orders") -> CampaignView:
    return await campaigns.create_campaign(Project(rows.store, PROJECT), (await rows.alias()).id, name, {"steps": 10})


async def bind(rows: Rows, campaign: CampaignView, group: str = "step-1-order-1", size: int = 8) -> str:
    [scenario, *_] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    return await bind_group(Project(rows.store, PROJECT), group, campaign.id, scenario.id, size, campaign.alias_id)


async def with_scenario(rows: Rows) -> CampaignView:
    campaign = await create(rows)
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("order-1", {"order": 1}, "today")])
    return campaign


async def test_a_campaign_runs_on_its_alias_while_its_lease_is_held(rows: Rows) -> None:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", {})
    assert await campaigns.list_running(rows.store, alias.id) == []
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), campaigns.lease_name(campaign.id), "train", 60)
    assert lease is not None
    assert await campaigns.list_running(rows.store, alias.id) == [campaign]
    assert await campaigns.list_running(rows.store, (await rows.alias("other")).id) == []
    await leases.release_lease(rows.store, lease)
    assert await campaigns.list_running(rows.store, alias.id) == []


async def test_an_evaluation_is_no_campaign_and_is_found_until_it_is_over(rows: Rows) -> None:
    alias = await rows.alias()
    settings = {campaigns.EVALUATES: {"versions": [["live", "helpdesk@1"]]}, "judge_recipe": "strict"}
    first, second = [
        await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "eval:val", settings) for _ in range(2)
    ]
    lease = await leases.acquire_lease(Project(rows.store, PROJECT), campaigns.lease_name(first.id), "eval", 60)
    assert lease is not None
    assert await campaigns.list_running(rows.store, alias.id) == []  # the learner need not make way
    assert await campaigns.list_campaigns(Project(rows.store, PROJECT)) == []
    assert await campaigns.find_campaign(Project(rows.store, PROJECT), "eval:val") is None
    await create(rows)
    assert await campaigns.unfinished_evaluations(rows.store, alias.id) == [second, first]
    await campaigns.finish_campaign(rows.store, second.id, CampaignState.STOPPED, "interrupted")
    await campaigns.finish_campaign(rows.store, first.id, CampaignState.FINISHED, "compared")
    assert [one.id for one in await campaigns.unfinished_evaluations(rows.store, alias.id)] == [second.id]
    assert await campaigns.unfinished_evaluations(rows.store, (await rows.alias("other")).id) == []


async def test_a_campaign_runs_until_it_is_finished(rows: Rows) -> None:
    campaign = await create(rows)
    assert (campaign.name, campaign.settings, campaign.state) == ("orders", {"steps": 10}, CampaignState.RUNNING)
    assert await campaigns.get_campaign(rows.store, campaign.id) == campaign
    done = await campaigns.finish_campaign(rows.store, campaign.id, CampaignState.FINISHED, "plateau")
    assert (done.state, done.reason) == (CampaignState.FINISHED, "plateau")
    assert done.ended_at is not None
    with pytest.raises(Conflict):
        await campaigns.resume_campaign(rows.store, campaign.id)


async def test_a_stopped_campaign_may_be_resumed_and_so_may_one_whose_process_died(rows: Rows) -> None:
    campaign = await create(rows)
    assert await campaigns.resume_campaign(rows.store, campaign.id) == campaign
    await campaigns.finish_campaign(rows.store, campaign.id, CampaignState.STOPPED, "ctrl-c")
    resumed = await campaigns.resume_campaign(rows.store, campaign.id)
    assert (resumed.state, resumed.reason, resumed.ended_at) == (CampaignState.RUNNING, None, None)


async def test_campaigns_are_found_by_name_the_newest_first(rows: Rows) -> None:
    first, other, second = await create(rows), await create(rows, "other"), await create(rows)
    assert await campaigns.find_campaign(Project(rows.store, PROJECT), "orders") == second
    assert await campaigns.find_campaign(Project(rows.store, PROJECT), "nothing") is None
    assert await campaigns.list_campaigns(Project(rows.store, PROJECT)) == [second, other, first]
    with pytest.raises(NotFound):
        await campaigns.get_campaign(rows.store, "nothing")


async def test_scenarios_keep_their_order_and_are_added_once(rows: Rows) -> None:
    campaign = await create(rows)
    tasks = [NewScenario(f"order-{n}", {"order": n}, reference=n, rubric=["polite"]) for n in range(50)]
    for _ in range(2):
        await campaigns.add_scenarios(rows.store, campaign.id, "train", tasks)
    await campaigns.add_scenarios(rows.store, campaign.id, "val", tasks[:2])
    found = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    assert [s.external_id for s in found] == [t.external_id for t in tasks]
    assert (found[7].input, found[7].reference, found[7].rubric) == ({"order": 7}, 7, ["polite"])
    assert len(await campaigns.list_scenarios(rows.store, campaign.id, "val")) == 2


async def test_scenario_ids_are_checked_before_any_is_written(rows: Rows) -> None:
    campaign = await create(rows)
    with pytest.raises(InvalidId, match="the scenario id"):
        await campaigns.add_scenarios(rows.store, campaign.id, "val", [NewScenario("ok", 1), NewScenario("../x", 1)])
    assert await campaigns.list_scenarios(rows.store, campaign.id, "val") == []
    await campaigns.add_scenarios(rows.store, campaign.id, "val", [])


async def test_a_bound_group_is_there_before_its_first_call(rows: Rows) -> None:
    campaign = await with_scenario(rows)
    group = await bind(rows, campaign)
    row = await rows.get(groups, group)
    assert (row["external_id"], row["declared_size"], row["state"]) == ("step-1-order-1", 8, "open")
    assert (row["campaign_id"], row["alias_id"]) == (campaign.id, campaign.alias_id)
    assert await bind(rows, campaign) == group


async def test_a_group_of_that_name_for_something_else_is_a_conflict(rows: Rows) -> None:
    campaign = await with_scenario(rows)
    await rows.group(external_id="live")
    with pytest.raises(Conflict, match="no campaign and no scenario: use another group id"):
        await bind(rows, campaign, "live")
    with pytest.raises(InvalidId):
        await bind(rows, campaign, "..")
    with pytest.raises(ValueError, match="at least 1"):
        await bind(rows, campaign, "empty", 0)


async def test_many_groups_are_bound_with_as_many_statements_as_two(rows: Rows) -> None:
    campaign = await with_scenario(rows)
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")

    async def bind_all(prefix: str, count: int) -> int:
        bindings = [GroupBinding(f"{prefix}-{n}", scenario.id, n + 1) for n in range(count)]
        with rows.statements() as counted:
            made = await campaigns.bind_groups(Project(rows.store, PROJECT), campaign.id, campaign.alias_id, bindings)
        found = [await rows.get(groups, group) for group in made]
        assert [(g["external_id"], g["declared_size"]) for g in found] == [
            (f"{prefix}-{n}", n + 1) for n in range(count)
        ]
        again = await campaigns.bind_groups(
            Project(rows.store, PROJECT), campaign.id, campaign.alias_id, bindings[::-1]
        )
        assert again == made[::-1]
        return len(counted)

    assert await bind_all("few", 2) == await bind_all("many", 50)
    assert await campaigns.bind_groups(Project(rows.store, PROJECT), campaign.id, campaign.alias_id, []) == []


async def test_one_group_that_is_taken_leaves_the_others_unbound(rows: Rows) -> None:
    campaign = await with_scenario(rows)
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    await rows.group(external_id="live")
    bindings = [GroupBinding("free", scenario.id, 2), GroupBinding("live", scenario.id, 2)]
    with pytest.raises(Conflict, match="'live' exists already"):
        await campaigns.bind_groups(Project(rows.store, PROJECT), campaign.id, campaign.alias_id, bindings)
    with pytest.raises(NotFound):
        await find_group(Project(rows.store, PROJECT), "free")


async def test_the_groups_of_a_step_are_seen_in_one_look(rows: Rows) -> None:
    campaign = await with_scenario(rows)
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    for group, step, first in (("b", 1, 0), ("a", 1, 2), ("c", 2, 0)):
        await bind(rows, campaign, group)
        planned = [NewAttempt(scenario.id, step, Purpose.TRAIN, first + n, group, f"{group}-{n}") for n in range(2)]
        await attempts.new_attempts(rows.store, campaign.id, planned)
    seen = await campaigns.group_states(rows.store, campaign.id, 1, Purpose.TRAIN)
    assert [(g.external_id, g.scenario_external_id, g.state) for g in seen] == [
        ("a", "order-1", GroupState.OPEN), ("b", "order-1", GroupState.OPEN),
    ]  # fmt: skip
    assert (seen[0].tries, seen[0].current_score_id, seen[0].reason) == (0, None, None)
    assert await campaigns.group_states(rows.store, campaign.id, 1, Purpose.VAL) == []


async def test_settings_of_an_earlier_release_are_read_with_the_names_of_today(rows: Rows) -> None:
    stored = {"reward_recipe": "strict", "health": {"kl_engine": {"at": 0.1}, "converged": {"then": "off"}}}
    alias = await rows.alias()
    await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, "orders", stored)
    [campaign] = await campaigns.list_campaigns(Project(rows.store, PROJECT))
    assert campaign.settings == {"judge_recipe": "strict", "health": {"converged": {"then": "off"}}}
