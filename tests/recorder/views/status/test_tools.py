"""What became of tool calls: by tool, and the last that went wrong in the words of whoever failed."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.ids import new_id
from recorder.stats.means import latency_quantiles
from recorder.store.database import Project, Store
from recorder.store.schema import tool_calls
from recorder.views.status.tools import DETAIL_CHARS, load_tool_usage
from tests.recorder.rows import PROJECT, Rows


@pytest.fixture
def rows(store: Store) -> Rows:
    return Rows(store)


async def called(rows: Rows, outcome: str, at: float, **values: Any) -> None:
    row = {"id": new_id("tool"), "project_id": PROJECT, "join_source": "path", "join_confidence": "stated"}
    of = {"server": "orders", "name": "orders__find", "tool": "find", "outcome": outcome}
    await rows.insert(tool_calls, {**row, **of, "started_at": at, "finished_at": at + 1.0, **values})


async def test_no_tool_was_called(store: Store) -> None:
    found = await load_tool_usage(Project(store, PROJECT))
    assert (found.calls, found.is_complete, found.tools, found.errors) == (0, True, [], [])


async def test_calls_are_counted_by_tool_and_by_how_they_ended(store: Store, rows: Rows) -> None:
    for at, outcome in enumerate(("complete", "complete", "failed", "errored", "input_required", "aborted")):
        await called(rows, outcome, float(at))
    await called(rows, "complete", 9.0, server=None, name="bash", tool="bash", finished_at=12.0)
    bash, find = (await load_tool_usage(Project(store, PROJECT))).tools
    assert (bash.server, bash.tool, bash.calls, bash.latency.p50_s) == (None, "bash", 1, 3.0)
    assert (find.calls, find.bad, find.last_at) == (6, 2, 5.0)
    assert find.outcomes == {"complete": 2, "failed": 1, "errored": 1, "input_required": 1, "aborted": 1}


@pytest.mark.parametrize("result", [None, [], "text", {"content": "text"}, {"content": [1, {"text": 2}]}, {"a": 1}])
async def test_an_answer_that_says_nothing_is_told_as_nothing(store: Store, rows: Rows, result: Any) -> None:
    await called(rows, "failed", 1.0, result=result)
    [error] = (await load_tool_usage(Project(store, PROJECT))).errors
    assert error.detail == ""


async def test_what_went_wrong_is_told_newest_first_and_cut(store: Store, rows: Rows) -> None:
    run = await rows.trajectory()
    await called(rows, "failed", 1.0, result={"content": [{"type": "text", "text": "no"}, {"text": "x" * 900}]})
    await called(rows, "errored", 2.0, error="its server is down", trajectory_id=run)
    newest, older = (await load_tool_usage(Project(store, PROJECT))).errors
    assert (newest.detail, newest.trajectory_id, newest.seconds) == ("its server is down", run, 1.0)
    assert older.detail == ("no\n" + "x" * 900)[:DETAIL_CHARS]


@given(st.lists(st.floats(0, 1e6)))
def test_a_latency_is_a_time_that_was_taken_and_most_take_no_longer(spans: list[float]) -> None:
    found = latency_quantiles(spans)
    if not spans:
        assert (found.p50_s, found.p99_s) == (None, None)
        return
    assert found.p50_s is not None
    assert found.p99_s is not None
    assert {found.p50_s, found.p99_s} <= set(spans)
    assert sum(span <= found.p50_s for span in spans) * 2 >= len(spans)
    assert sum(span <= found.p99_s for span in spans) * 100 >= 99 * len(spans)
