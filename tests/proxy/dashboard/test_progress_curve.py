"""The curve of Home: every value lies within the picture, higher values lie higher, and time goes to the right."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from proxy.dashboard.progress_curve import HEIGHT, WIDTH, draw_progress
from recorder.stats.means import Interval
from recorder.views.campaigns.measures import Measure
from recorder.views.versions.progress import AliasProgress, VersionProgress
from recorder.views.versions.rewards import VersionReward

VALUES = st.floats(-50, 50).map(lambda value: round(value, 3))


def version(number: int, success: float | None, reward: float | None) -> VersionProgress:
    name = f"helpdesk@{number}"
    ends = Interval(success or 0.0, success or 0.0)
    held_out = None if success is None else Measure("success", success, 50, ends, "validation")
    mean = (
        None if reward is None else VersionReward("helpdesk", name, 9, 3, reward, Interval(reward, reward + 1), False)
    )
    return VersionProgress(name, "retired", True, held_out, mean, None)


@given(st.lists(st.tuples(st.none() | st.floats(0, 1), st.none() | VALUES), max_size=12))
def test_the_values_lie_in_the_picture_in_their_order(values: list[tuple[float | None, float | None]]) -> None:
    curve = draw_progress(AliasProgress("helpdesk", [version(at, *one) for at, one in enumerate(values)]))
    columns = [[one for one in column if one is not None] for column in zip(*values, strict=True)]
    assert (curve is not None) == any(len(column) >= 2 for column in columns)
    if curve is None:
        return
    assert [len(trace.dots) for trace in curve.traces] == [len(column) for column in columns if column]
    for trace, column in zip(curve.traces, [column for column in columns if column], strict=True):
        assert all(one.x < two.x for one, two in pairwise(trace.dots))
        for dot, value in zip(trace.dots, column, strict=True):
            assert 0 <= dot.x <= WIDTH
            assert 0 <= dot.y <= HEIGHT
            assert dot.low is not None
            assert dot.high is not None
            assert 0 <= dot.high <= dot.y <= dot.low <= HEIGHT
            assert all(dot.y <= other.y for other, v in zip(trace.dots, column, strict=True) if v <= value)


def test_shares_are_in_percent_and_the_summary_has_every_value() -> None:
    curve = draw_progress(AliasProgress("helpdesk", [version(0, 0.34, None), version(4, 0.96, 0.5)]))
    assert curve is not None
    assert [tick.text for tick in curve.versions] == ["@0", "@4"]
    assert [trace.name for trace in curve.traces] == ["held-out success", "reward in traffic"]
    assert curve.summary == (
        "held-out success: helpdesk@0 34% (34% to 34%), helpdesk@4 96% (96% to 96%); "
        "reward in traffic: helpdesk@4 0.5 (0.5 to 1.5)"
    )
