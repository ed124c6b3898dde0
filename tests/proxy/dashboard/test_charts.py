"""The pages' charts: which figures they draw, and the same image for the same chart."""

from __future__ import annotations

import asyncio

import pytest

from proxy.dashboard import charts
from proxy.dashboard.drawn import curve, of_lessons, of_steps
from recorder.charts import Chart, Series
from recorder.learned.lessons import Lessons

BARS = Chart("Seconds", ("1", "2"), (Series("train", (3.0, None)), Series("load", (1.0, 2.0))), bars=True)


@pytest.mark.slow  # draws
async def test_the_same_figures_are_drawn_the_same_and_light_differs_from_dark() -> None:
    before = await charts.svg(BARS, dark=True)
    charts._drawn.drop((BARS, True))
    again, light = await asyncio.gather(charts.svg(BARS, dark=True), charts.svg(BARS, dark=False))
    assert again == before
    assert light != again


def test_reasons_beyond_the_first_few_are_drawn_together() -> None:
    runs = {"trained": 9} | {f"reason_{number}": 8 - number for number in range(7)}
    told = of_lessons([Lessons(0.0, 60.0, runs), Lessons(60.0, 60.0, {})])
    assert {one.name: one.values for one in told.series} == {
        "trained": (9.0, 0.0), "reason_0": (8.0, 0.0), "reason_1": (7.0, 0.0), "reason_2": (6.0, 0.0),
        "reason_3": (5.0, 0.0), "reason_4": (4.0, 0.0), "other reasons": (5.0, 0.0),
    }  # fmt: skip


def test_where_there_is_nothing_to_draw_charts_are_empty() -> None:
    assert all(chart.empty for chart in (*of_steps([]).values(), curve([]), of_lessons([])))
