"""Charts are SVG that the pages' rules allow, the same for the same figures, whatever their labels say."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from proxy.dashboard.drawing.chart import Chart, Series, as_json, from_json
from proxy.dashboard.drawing.draw import draw, plain
from proxy.dashboard.drawn import curve, of_lessons, of_steps
from recorder.learned.lessons import Lessons

HOSTILE = ("<script>alert(1)</script>", "$\\frac{", '" style="fill: url(http://x)"', "_\x00\u202eمرحبا", "]]>--")
LINES = Chart(HOSTILE[0], HOSTILE, tuple(Series(name, (1.0, None, 0.5, 0.25, 2.0)) for name in HOSTILE))
BARS = Chart("Seconds", ("1", "2"), (Series("train", (3.0, None)), Series("load", (1.0, 2.0))), bars=True)


@pytest.mark.slow  # draws
@pytest.mark.parametrize("chart", [LINES, BARS, Chart("Nothing", (), ())], ids=lambda chart: chart.title[:8])
def test_a_drawing_has_no_style_no_script_and_fetches_nothing(chart: Chart) -> None:
    drawn = draw(chart, dark=False).decode()
    root = ElementTree.fromstring(drawn)
    tags = {one.tag.rpartition("}")[2] for one in root.iter()}
    assert tags <= {"svg", "g", "defs", "path", "use", "clipPath", "rect", "pattern"}, tags
    for one in root.iter():
        for name, value in one.attrib.items():
            local = name.rpartition("}")[2]
            assert local != "style"
            assert not local.startswith("on")
            assert local != "href" or value.startswith("#")
            assert "url(" not in value or value.startswith("url(#")


@pytest.mark.slow  # draws
def test_the_same_figures_are_drawn_the_same_and_light_differs_from_dark() -> None:
    assert draw(BARS, dark=True) == draw(BARS, dark=True) != draw(BARS, dark=False)


@pytest.mark.parametrize("chart", [LINES, BARS, Chart("Nothing", (), ())], ids=lambda chart: chart.title[:8])
def test_a_chart_comes_through_json_as_it_was(chart: Chart) -> None:
    line = as_json(chart)
    assert "\n" not in line
    assert from_json(line) == chart


def test_style_attributes_become_attributes_of_their_own_and_sheets_go() -> None:
    drawn = (
        '<svg ><defs>\n<style type="text/css">*{a: b}</style>\n</defs><path style="fill: #fff; stroke-width: 2"/></svg>'
    )
    assert plain(drawn) == (
        '<svg stroke-linejoin="round" stroke-linecap="butt" ><path fill="#fff" stroke-width="2"/></svg>'
    )


def test_reasons_beyond_the_first_few_are_drawn_together() -> None:
    runs = {"trained": 9} | {f"reason_{number}": 8 - number for number in range(7)}
    told = of_lessons([Lessons(0.0, 60.0, runs), Lessons(60.0, 60.0, {})])
    assert {one.name: one.values for one in told.series} == {
        "trained": (9.0, 0.0), "reason_0": (8.0, 0.0), "reason_1": (7.0, 0.0), "reason_2": (6.0, 0.0),
        "reason_3": (5.0, 0.0), "reason_4": (4.0, 0.0), "other reasons": (5.0, 0.0),
    }  # fmt: skip


def test_where_there_is_nothing_to_draw_charts_are_empty() -> None:
    assert all(chart.empty for chart in (*of_steps([]).values(), curve([]), of_lessons([])))
