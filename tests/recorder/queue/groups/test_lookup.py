"""Groups looked up: what a name means, and how many wait in each state."""

from __future__ import annotations

import pytest

from recorder.errors import NotFound
from recorder.queue.groups.lookup import count_groups, find_group
from recorder.states import GroupState
from recorder.store.database import Project
from tests.recorder.rows import PROJECT, Rows


async def test_a_groups_name_means_its_newest_successor(rows: Rows) -> None:
    await rows.group(external_id="task", state="trained")
    successor = await rows.group(external_id="task", sequence=1)
    assert await find_group(Project(rows.store, PROJECT), "task") == successor


async def test_a_group_of_another_project_is_not_found(rows: Rows) -> None:
    group = await rows.group(external_id="task")
    for name in ("task", group):
        with pytest.raises(NotFound, match=f"no group '{name}' in project 'other'"):
            await find_group(Project(rows.store, "other"), name)


async def test_counts_tell_groups_for_training_from_others(rows: Rows) -> None:
    alias = await rows.alias()
    await rows.ready_group(alias_id=alias.id)
    await rows.ready_group(alias_id=alias.id, purpose="val")
    await rows.scored_group(alias_id=alias.id)
    await rows.ready_group(alias_id=alias.id, campaign_id="c")
    await rows.group(alias_id=alias.id, state="trained")
    assert await count_groups(rows.store, alias.id) == {GroupState.READY: 1, GroupState.SCORED: 1}
    assert await count_groups(rows.store, alias.id, "c") == {GroupState.READY: 1}
