"""Which charts there are, and that a chart comes to the process that draws as it was."""

from __future__ import annotations

import json

import pytest

from proxy.dashboard.chart_child import decode_question, encode_question
from recorder.processes.user_code_host import encode_line
from recorder.stats.charts import Chart, EventMark, ReferenceLine, Series
from recorder.views.charts.steps import outcome_chart, step_charts
from recorder.views.charts.versions import ancestry_chart
from recorder.views.versions.steps import OutcomeCounts

ODD = "]]>\n\x00\u202eمرحبا"
LINES = Chart(
    ODD, (ODD,), (Series(ODD, (1.0,), (0.5,), (None,)),), levels=(ReferenceLine(ODD, 0.5),), marks=(EventMark(ODD, 0),)
)


@pytest.mark.parametrize("chart", [LINES, Chart("Nothing", (), ())], ids=["all of it", "empty"])
@pytest.mark.parametrize("dark", [True, False])
def test_a_chart_is_asked_for_on_one_line(chart: Chart, dark: bool) -> None:
    line = encode_line(encode_question(chart, dark=dark))
    assert line.endswith(b"\n")
    assert line.count(b"\n") == 1
    assert decode_question(json.loads(line)) == (dark, chart)


def test_reasons_beyond_the_first_few_are_drawn_together() -> None:
    runs = {"trained": 9} | {f"reason_{number}": 8 - number for number in range(7)}
    told = outcome_chart([OutcomeCounts(0.0, 60.0, runs), OutcomeCounts(60.0, 60.0, {})])
    assert {one.name: one.values for one in told.series} == {
        "trained": (9.0, 0.0), "reason_0": (8.0, 0.0), "reason_1": (7.0, 0.0), "reason_2": (6.0, 0.0),
        "reason_3": (5.0, 0.0), "reason_4": (4.0, 0.0), "other reasons": (5.0, 0.0),
    }  # fmt: skip


def test_where_there_is_nothing_to_draw_charts_are_empty_and_say_what_they_wait_for() -> None:
    charts = (*step_charts([]).values(), ancestry_chart([]), outcome_chart([]))
    assert all(chart.empty for chart in charts)
    assert all(chart.waits_for.endswith(".") for chart in charts)


def test_times_are_on_an_axis_of_their_own() -> None:
    told = outcome_chart([OutcomeCounts(0.0, 60.0, {"trained": 1}), OutcomeCounts(60.0, 60.0, {})])
    assert (told.axis.kind, told.axis.at) == ("times", (0.0, 60.0))
