"""Bind one group to its scenario, as tests of campaigns need it."""

from __future__ import annotations

from recorder.queue import campaigns
from recorder.queue.campaigns import GroupBinding
from recorder.store.database import Project


async def bind_group(
    project: Project, name: str, campaign_id: str, scenario_id: str, declared_size: int, alias_id: str
) -> str:
    """`bind_groups` for one group; returns its id."""
    (group_id,) = await campaigns.bind_groups(
        project, campaign_id, alias_id, [GroupBinding(name, scenario_id, declared_size)]
    )
    return group_id
