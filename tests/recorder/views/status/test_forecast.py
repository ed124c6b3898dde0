"""What is waited for, in numbers and times: groups by state, and when the next closes or is tried again."""

from __future__ import annotations

import pytest

from recorder.settings import RecorderSettings
from recorder.store.database import Project, Store
from recorder.views.status.forecast import GroupForecast, forecast_groups, groups_in_progress
from tests.recorder.rows import PROJECT, Rows

SETTINGS = RecorderSettings(idle_timeout_s=900, group_window_s=300, group_timeout_s=3600)


async def asked(store: Store) -> GroupForecast:
    return await forecast_groups(Project(store, PROJECT), SETTINGS)


async def test_the_next_close_is_told_by_the_rule_of_each_group(store: Store) -> None:
    rows = Rows(store)
    await rows.group(declared_size=4, joined_at=1000.0, last_call_at=1000.0)
    assert (await asked(store)).due == {"open": 1000.0 + 3600}
    await rows.group(joined_at=4200.0)
    assert (await asked(store)).due == {"open": 4200.0 + 300}
    running = await rows.group(joined_at=100.0)
    await rows.trajectory(running, last_call_at=3000.0)
    found = await asked(store)
    assert found.due == {"open": 3000.0 + 900}
    assert (found.groups, found.open_trajectories) == ({"open": 3}, 1)
    assert found.sentence(at=3442.0) == "3 groups open, the next closes in 07:38"
    assert found.sentence(times=False) == "3 groups open"


async def test_a_group_that_failed_is_tried_again(store: Store) -> None:
    await Rows(store).group(state="unscored", try_after=500.0)
    found = await asked(store)
    assert found.sentence(at=440.0) == "1 group could not be judged, the next is tried again in 01:00"
    assert found.in_s("unscored", at=600.0) == 0


async def test_nothing_is_waited_for(store: Store) -> None:
    assert (await asked(store)).sentence() == "no group yet"
    await Rows(store).group(state="trained")
    found = await asked(store)
    assert found.sentence() == "no group yet"
    assert groups_in_progress(found.groups) == {}


@pytest.mark.parametrize("state", ["ready", "judging", "scored", "training", "tried"])
async def test_what_needs_no_time_has_none(state: str, store: Store) -> None:
    await Rows(store).group(state=state)
    found = await asked(store)
    assert found.due == {}
    assert found.sentence().startswith("1 group ")
