"""Draw charts as SVG, light and dark, for the pages and a campaign's report.

Owns: what a chart is, drawing it (matplotlib, imported for the first chart, one chart at a time), and making its SVG
valid under a strict Content-Security-Policy: no style sheet or style attribute, text as outlines, nothing fetched. The
same chart gives the same bytes. Refuses: choosing figures; callers do that, and show the same figures as a table.
"""

from __future__ import annotations

import io
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

if TYPE_CHECKING:
    from matplotlib.axes import Axes

WIDE: Final = (9.0, 2.8)  # inches, of 72 points
_MOST_TICKS: Final = 12
_MOST_DOTS: Final = 60  # of a line; more dots would look like a band
_MOST_MARKS: Final = 12
_LABEL_CHARS: Final = 40
# In the order of a chart's series, which also differ by shape and position, never by colour alone.
_INKS: Final = {False: ("#0b5cad", "#7d4e00", "#1a6b31", "#b1222c"), True: ("#7ab7f2", "#e6b450", "#6fcf87", "#ff8b8b")}
_FILLS: Final = ("", "////", "....", "xxxx", "\\\\\\\\", "----")
_MARKS: Final = ("o", "s", "^", "D")
_DASHES: Final = ("--", "-.", (0, (1, 1)), (0, (5, 1, 1, 1, 1, 1)))  # of levels, in their order
_PAPER: Final = {False: ("#ffffff", "#57606a", "#d9dde1"), True: ("#14171a", "#a3abb3", "#3a4047")}
_STYLE: Final = re.compile(r' style="([^"<>]*)"')
_NEEDLESS: Final = re.compile(
    r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>|<metadata>.*?</metadata>|<!DOCTYPE[^>]*>|<!--.*?-->", re.DOTALL
)


@dataclass(frozen=True, slots=True)
class Series:
    """Values over a chart's labels, and the ends of their intervals, if known. None: no value."""

    name: str
    values: tuple[float | None, ...]
    low: tuple[float | None, ...] = ()
    high: tuple[float | None, ...] = ()


@dataclass(frozen=True, slots=True)
class ReferenceLine:
    """A value to compare the series with, as a horizontal line."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class EventMark:
    """An event at a position (counted from 0), drawn as a vertical line."""

    name: str
    at: int


@dataclass(frozen=True, slots=True)
class Axis:
    """What a chart's positions are: `name` heads them in a table, `at` has their values, in rising order.

    `labels`: names at equal distances, without values. `times`: unix seconds, for people `utc_offset_s` seconds ahead
    of UTC.
    """

    name: str = ""
    kind: Literal["labels", "numbers", "times"] = "labels"
    at: tuple[float, ...] = ()
    utc_offset_s: int = 0


@dataclass(frozen=True, slots=True)
class Chart:
    """A chart: series over `places` (their labels), as lines or as stacked bars.

    `rows`: as points beside the label of each position, which leaves room for long labels. `axis` is for charts that
    a browser draws. `waits_for`: what gives an empty chart its first value, as sentences.
    """

    title: str
    places: tuple[str, ...]
    series: tuple[Series, ...]
    bars: bool = False
    rows: bool = False
    share: bool = False  # the values are shares: from 0 to 1
    levels: tuple[ReferenceLine, ...] = ()
    marks: tuple[EventMark, ...] = ()  # the first few are drawn
    size: tuple[float, float] = WIDE  # inches, of 72 points
    axis: Axis = Axis()
    waits_for: str = ""

    @property
    def empty(self) -> bool:
        """Whether there is nothing to draw."""
        return not any(value is not None for one in self.series for value in one.values)


_one_at_a_time = threading.Lock()  # matplotlib's settings are global


def dark_inks() -> Iterator[tuple[str, str]]:
    """Yield each colour of a light drawing with its replacement in a dark one."""
    return zip(_PAPER[False] + _INKS[False], _PAPER[True] + _INKS[True], strict=True)


def draw_svg(chart: Chart, *, dark: bool = False) -> str:
    """Return a chart as SVG. It is slow: do not call it in an event loop."""
    from cycler import cycler
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    _, faint, line = _PAPER[dark]
    looks: Any = {  # matplotlib's type lists every setting
        "svg.fonttype": "path",
        "svg.hashsalt": "hone",
        "text.parse_math": False,
        "font.size": 11,
        "hatch.linewidth": 0.6,
        "hatch.color": _PAPER[dark][0],
        "axes.edgecolor": line,
        "axes.labelcolor": faint,
        "text.color": faint,
        "xtick.color": faint,
        "ytick.color": faint,
        "grid.color": line,
        "axes.prop_cycle": cycler(color=_INKS[dark]),
    }
    out = io.BytesIO()
    with _one_at_a_time, rc_context(looks):
        figure = Figure(figsize=chart.size, layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        if chart.rows:
            _rows(axes, chart, faint)
        else:
            (_bars if chart.bars else _lines)(axes, chart)
            _held_against(axes, chart, faint)
            _frame(axes, chart)
        _titled(axes, chart)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return strip_styles(out.getvalue().decode())


def _lines(axes: Axes, chart: Chart) -> None:
    for one, mark in zip(chart.series, _MARKS * len(chart.series), strict=False):
        there = [at for at, value in enumerate(one.values) if value is not None]
        values = [value for value in one.values if value is not None]
        size = 4 if len(there) <= _MOST_DOTS else 0
        [drawn] = axes.plot(there, values, marker=mark, markersize=size, linewidth=1.4, label=_label(one.name))
        _intervals(axes, one, drawn.get_color())


def _intervals(axes: Axes, one: Series, ink: Any) -> None:
    """Draw an error bar for each value, or one band if there are too many."""
    ends = enumerate(zip(one.low, one.high, strict=True))
    known = [(at, low, high) for at, (low, high) in ends if low is not None and high is not None]
    if len(known) > _MOST_DOTS:
        places, lows, highs = zip(*known, strict=True)
        axes.fill_between(places, lows, highs, color=ink, alpha=0.2, linewidth=0)
        return
    for place, low, high in known:
        axes.plot([place, place], [low, high], color=ink, linewidth=1.0, alpha=0.6, marker="_")


def _bars(axes: Axes, chart: Chart) -> None:
    below = [0.0] * len(chart.places)
    for number, one in enumerate(chart.series):
        heights = [value or 0.0 for value in one.values]
        fill = _FILLS[number % len(_FILLS)]
        axes.bar(range(len(heights)), heights, bottom=below, width=0.8, label=_label(one.name), hatch=fill, linewidth=0)
        below = [base + height for base, height in zip(below, heights, strict=True)]


def _rows(axes: Axes, chart: Chart, faint: str) -> None:
    """Draw values beside their labels, from the top down; series at one position are slightly offset."""
    for number, (one, mark) in enumerate(zip(chart.series, _MARKS * len(chart.series), strict=False)):
        below = 0.25 * (number - (len(chart.series) - 1) / 2)
        there = [(value, at + below) for at, value in enumerate(one.values) if value is not None]
        values, places = zip(*there, strict=True) if there else ((), ())
        [drawn] = axes.plot(values, places, marker=mark, markersize=5, linestyle="", label=_label(one.name))
        for at, (low, high) in enumerate(zip(one.low, one.high, strict=True)):
            if low is not None and high is not None:
                axes.plot([low, high], [at + below] * 2, color=drawn.get_color(), linewidth=1.2, marker="|")
    for number, level in enumerate(chart.levels):
        axes.axvline(level.value, color=faint, linewidth=1.0, linestyle=_DASHES[number % len(_DASHES)],
                     label=_label(level.name))  # fmt: skip
    axes.set_yticks(range(len(chart.places)), [_label(place) for place in chart.places])
    axes.set_ylim(len(chart.places) - 0.4, -0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="x", linewidth=0.6)
    axes.set_axisbelow(True)
    if chart.share:
        axes.set_xlim(-0.02, 1.02)


def _held_against(axes: Axes, chart: Chart, faint: str) -> None:
    for number, level in enumerate(chart.levels):
        axes.axhline(level.value, color=faint, linewidth=1.0, linestyle=_DASHES[number % len(_DASHES)],
                     label=_label(level.name))  # fmt: skip
    for mark in chart.marks[:_MOST_MARKS]:
        axes.axvline(mark.at, color=faint, linewidth=0.8, linestyle=":")
        words = axes.annotate(_label(mark.name), (mark.at, 0.02), xycoords=("data", "axes fraction"), rotation=90)
        words.set(fontsize=8, ha="right", va="bottom")


def _frame(axes: Axes, chart: Chart) -> None:
    every = max(1, -(-len(chart.places) // _MOST_TICKS))
    axes.set_xticks(range(0, len(chart.places), every), [_label(place) for place in chart.places[::every]])
    axes.set_xlim(-0.6, max(1, len(chart.places)) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    if chart.share:
        axes.set_ylim(-0.02, 1.02)


def _titled(axes: Axes, chart: Chart) -> None:
    axes.set_title(_label(chart.title), loc="left", fontsize=11)
    if len(chart.series) + len(chart.levels) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _label(text: str) -> str:
    """Return text as it is drawn: ASCII, on one line. A leading `_` would hide a legend entry."""
    seen = " ".join(text.encode("ascii", "replace").decode().split())[:_LABEL_CHARS].lstrip("_")
    return "".join(char if char.isprintable() else "?" for char in seen)


def strip_styles(drawn: str) -> str:
    """Return an SVG without comments, and without styles, which a strict Content-Security-Policy blocks."""
    bare = _NEEDLESS.sub("", drawn).replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)
    return _STYLE.sub(lambda found: _attributes(found[1]), bare)


def _attributes(style: str) -> str:
    pairs = (part.partition(":") for part in style.split(";") if part.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)
