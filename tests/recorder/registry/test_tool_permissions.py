"""Whose attempts may use tools that write, what was kept from them, and that nobody else is meant."""

from __future__ import annotations

import pytest

from recorder.queue import campaigns
from recorder.queue.campaigns import GroupBinding, NewScenario
from recorder.registry import tool_permissions
from recorder.store.database import Project
from recorder.store.schema import tool_calls
from tests.recorder.rows import PROJECT, Rows


async def begun(rows: Rows, name: str, **settings: bool) -> str:
    alias = await rows.alias()
    campaign = await campaigns.create_campaign(Project(rows.store, PROJECT), alias.id, name, settings)
    await campaigns.add_scenarios(rows.store, campaign.id, "train", [NewScenario("s", 1)])
    [scenario] = await campaigns.list_scenarios(rows.store, campaign.id, "train")
    await campaigns.bind_groups(
        Project(rows.store, PROJECT), campaign.id, alias.id, [GroupBinding(f"{name}.1", scenario.id, 1)]
    )
    return campaign.id


async def test_attempts_are_known_by_their_group_their_run_and_their_key(rows: Rows) -> None:
    campaign = await begun(rows, "mine")
    run = await rows.trajectory(made_by=campaign)

    async def barred(project: str, group: str | None = None, run: str | None = None, family: str = "") -> str | None:
        return await tool_permissions.find_barred_campaign(
            Project(rows.store, project), group=group, trajectory_id=run, family=family
        )

    assert await barred(PROJECT, group="mine.1") == campaign
    assert await barred(PROJECT, run=run) == campaign
    assert await barred(PROJECT, family=campaign) == campaign
    assert await barred("another", "mine.1", run, campaign) is None


async def test_live_callers_are_nobodys_attempt(rows: Rows) -> None:
    await begun(rows, "mine")
    group = await rows.group(external_id="live")
    run = await rows.trajectory(group, made_by="key_1")
    for group_name in (None, "live", "unheard of"):
        found = await tool_permissions.find_barred_campaign(
            Project(rows.store, PROJECT), group=group_name, trajectory_id=run, family="key_1"
        )
        assert found is None


@pytest.mark.parametrize("begun_with", [{"allow_writes": False}, {}])
async def test_a_campaign_may_write_once_it_says_so(rows: Rows, begun_with: dict[str, bool]) -> None:
    campaign = await begun(rows, "mine", **begun_with)

    async def barred() -> str | None:
        return await tool_permissions.find_barred_campaign(
            Project(rows.store, PROJECT), group="mine.1", trajectory_id=None, family=""
        )

    assert await barred() == campaign
    await tool_permissions.set_writes_allowed(rows.store, campaign, allowed=True)
    assert await barred() is None
    await tool_permissions.set_writes_allowed(rows.store, campaign, allowed=False)
    assert await barred() == campaign


async def test_what_was_left_out_is_told_once_and_refused_calls_are_counted(rows: Rows) -> None:
    campaign, other = await begun(rows, "mine"), await begun(rows, "other")
    await tool_permissions.note_withheld_tools(Project(rows.store, PROJECT), campaign, ["refund", "cancel"])
    await tool_permissions.note_withheld_tools(
        Project(rows.store, PROJECT), campaign, ["refund"]
    )  # another process of the proxy
    assert await tool_permissions.list_withheld_tools(rows.store, campaign) == ["refund", "cancel"]
    assert await tool_permissions.list_withheld_tools(rows.store, other) == []
    run = await rows.trajectory(made_by=campaign)
    said = {
        "1": f"{tool_permissions.REFUSED}: refund is not …",
        "2": "-32602: Unknown tool",
        "3": f"{tool_permissions.REFUSED}: again",
    }
    for number, error in said.items():
        await rows.insert(
            tool_calls,
            {
                "id": f"tool_{number}", "project_id": PROJECT, "trajectory_id": run, "join_source": "path",
                "join_confidence": "stated", "name": "refund", "tool": "refund", "outcome": "errored", "error": error,
                "started_at": 1.0, "finished_at": 2.0,
            },
        )  # fmt: skip
    assert await tool_permissions.count_refused_calls(rows.store, campaign) == 2
    assert await tool_permissions.count_refused_calls(rows.store, other) == 0
