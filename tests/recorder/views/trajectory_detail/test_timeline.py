"""The timeline of a run: every call has a bar of its own, in its lane, on an axis whose pauses are short."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.states import CallKind
from recorder.views.trajectory_detail.timeline import build_timeline
from tests.recorder.views.trajectory_detail.test_conversation import call, run, worked

times = st.floats(0, 1e6, allow_nan=False)


def test_models_and_tools_have_lanes_of_their_own() -> None:
    calls = [call("c1", [], at=0), call("s1", [], at=0.1, call_kind=CallKind.SUB)]
    found = build_timeline(run([], calls, [], tool_calls=[worked("c1", None)]))
    assert [(lane.name, lane.first_row, lane.rows) for lane in found.lanes] == [
        ("model", 0, 1),
        ("sub-agent", 1, 1),
        ("tool", 2, 1),
    ]
    assert [(bar.id, bar.row) for bar in found.bars] == [("c1", 0), ("s1", 1), ("tool-c1-None", 2)]


def test_a_long_pause_is_drawn_shorter_and_said() -> None:
    found = build_timeline(run([], [call("c1", [], at=0), call("c2", [], at=1000)], []))
    [pause] = found.pauses
    assert pause.seconds == pytest.approx(999.5)
    assert pause.width < 0.1
    assert (found.seconds, found.worked_s) == (1000.5, 1.0)


def test_a_run_without_calls_has_no_bars() -> None:
    assert build_timeline(run([], [], [])).bars == ()


def test_a_call_that_goes_on_reaches_to_the_latest_that_is_known() -> None:
    going, ended = call("c1", [], at=0, finished_at=None), call("c2", [], at=1)
    bars = build_timeline(run([], [going, ended], [])).bars
    assert bars[0].seconds is None
    assert bars[0].left + bars[0].width == pytest.approx(1.0)


@given(st.lists(st.tuples(times, st.floats(0, 1e4)), min_size=1, max_size=20))
def test_bars_stay_on_the_axis_and_none_covers_another(spans: list[tuple[float, float]]) -> None:
    calls = [call(f"c{n:02}", [], at=at, finished_at=at + took) for n, (at, took) in enumerate(spans)]
    found = build_timeline(run([], calls, []))
    assert all(bar.left >= 0 and bar.left + bar.width <= 1 + 1e-6 for bar in found.bars)
    for row in range(found.rows):
        own = [bar for bar in found.bars if bar.row == row]
        for before, after in itertools.pairwise(own):
            assert before.started_at + (before.seconds or 0) <= after.started_at
