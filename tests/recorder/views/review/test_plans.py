"""What waits is found by indexes: no table that grows is walked for it, as SQLite plans it."""

from __future__ import annotations

import pytest

from benchmarks.pages import listening, walks
from recorder.store.database import Project
from recorder.views.review.queue import QueueRequest, load_queue
from tests.recorder.rows import PROJECT, Rows
from tests.recorder.views.review.waiting import ME, alarm, disputed_group, judged_twice, scored_task, two_versions

pytestmark = pytest.mark.sqlite_only("its plans")


async def test_no_table_that_grows_is_walked(rows: Rows) -> None:
    alias, base, live = await two_versions(rows)
    for version in (base, live):
        await scored_task(rows, alias, version, "task", 0.0, 1.0)
    group, members = await disputed_group(rows, 3)
    await alarm(rows, *members)
    for _ in range(10):
        await judged_twice(rows, (0.9, 0.1), (0.1, 0.9))
    with listening(rows.store) as heard:
        for asked in (QueueRequest(ME), QueueRequest(ME, group=group), QueueRequest(ME, against="base")):
            assert (await load_queue(Project(rows.store, PROJECT), asked)).entries
    assert len(heard) > 10
    assert await walks(rows.store, heard) == []
