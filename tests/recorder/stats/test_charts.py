"""Charts are SVG that strict rules allow, the same for the same figures, whatever their labels say."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from recorder.stats.charts import Chart, EventMark, ReferenceLine, Series, dark_inks, draw_svg, strip_styles

HOSTILE = ("<script>alert(1)</script>", "$\\frac{", '" style="fill: url(http://x)"', "_\x00\u202eمرحبا", "]]>--")
LINES = Chart(HOSTILE[0], HOSTILE, tuple(Series(name, (1.0, None, 0.5, 0.25, 2.0)) for name in HOSTILE))
BARS = Chart("Seconds", ("1", "2"), (Series("train", (3.0, None)), Series("load", (1.0, 2.0))), bars=True)
MANY = tuple(number / 100 for number in range(100))
BAND = Chart("Many", tuple(map(str, range(100))), (Series("success", MANY, MANY, tuple(at + 0.1 for at in MANY)),))
HELD = Chart(
    "Held against", tuple("0123"), (Series("success", (0.1, None, 0.5, 0.25)),), share=True,
    levels=tuple(ReferenceLine(name, 0.2) for name in HOSTILE), marks=tuple(EventMark(name, 2) for name in HOSTILE),
)  # fmt: skip

SHARES = ((0.1, None, 1.0, 0.0, 0.5), (0.0, None, 0.8, 0.0, 0.4), (0.3, None, 1.0, 0.1, 0.6))
ROWS = Chart(
    "Rows", HOSTILE, tuple(Series(name, *SHARES) for name in HOSTILE[:2]), rows=True, share=True,
    levels=(ReferenceLine(HOSTILE[1], 0.05),),
)  # fmt: skip


@pytest.mark.slow  # draws
@pytest.mark.parametrize(
    "chart", [LINES, BARS, HELD, BAND, ROWS, Chart("Nothing", (), ())], ids=lambda chart: chart.title[:8]
)
def test_a_drawing_has_no_style_no_script_and_fetches_nothing(chart: Chart) -> None:
    drawn = draw_svg(chart)
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
def test_a_light_drawing_has_no_colour_that_a_dark_one_lacks_a_place_for() -> None:
    light, dark = draw_svg(HELD), draw_svg(HELD, dark=True)
    for bright, dim in dark_inks():
        light = light.replace(f'"{bright}"', f'"{dim}"')
    assert _without_ids(light) == _without_ids(dark)


def _without_ids(drawn: str) -> str:
    """matplotlib makes them of how a thing looks."""
    return re.sub(r"\b[a-z][0-9a-f]{10}\b", "", drawn)


def test_style_attributes_become_attributes_of_their_own_and_sheets_go() -> None:
    drawn = (
        '<svg ><defs>\n<style type="text/css">*{a: b}</style>\n</defs><path style="fill: #fff; stroke-width: 2"/></svg>'
    )
    assert strip_styles(drawn) == (
        '<svg stroke-linejoin="round" stroke-linecap="butt" ><path fill="#fff" stroke-width="2"/></svg>'
    )
