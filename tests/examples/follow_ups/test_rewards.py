"""The rewards of whole trajectories, from a store with follow-ups, shadow answers and groups."""

from __future__ import annotations

from pathlib import Path

from examples.live.follow_ups.rewards import read_rewards
from recorder.settings import RecorderSettings
from recorder.states import Origin
from recorder.store.bootstrap import open_store
from recorder.store.schema import trajectories
from tests.recorder.rows import Rows


async def test_only_rewards_of_whole_live_trajectories_are_read(tmp_path: Path) -> None:
    store = await open_store(tmp_path, RecorderSettings(), migrate=True)
    try:
        rows = Rows(store)
        live, shadow, relative = [await rows.ready_group(2) for _ in range(3)]
        first, second = await rows.members(live)
        for member in await rows.members(shadow):
            await rows.set(trajectories, member, origin=Origin.SHADOW)
        for group, absolute in ((live, True), (shadow, True), (relative, False)):
            await rows.score(group, absolute=absolute)
    finally:
        await store.close()
    assert await read_rewards(tmp_path, RecorderSettings()) == {first: 0.0, second: 1.0}
