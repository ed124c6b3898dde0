"""How a chart looks: an SVG, light or dark, by matplotlib.

Owns: drawing, and making the SVG fit for the pages' rules: no style sheet or style attribute, text as outlines, nothing
fetched. The process that draws loads it, and no other. Refuses: which figures are shown (a page says so, and shows the
same as a table).
"""

from __future__ import annotations

import io
import re
from typing import TYPE_CHECKING, Any, Final

from cycler import cycler
from matplotlib import rc_context
from matplotlib.figure import Figure

from proxy.dashboard.drawing.chart import Chart

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_SIZE: Final = (9.0, 2.8)  # inches, of 72 points
_MOST_TICKS: Final = 12
_LABEL_CHARS: Final = 40
# Told apart by shape and place too: nothing is known by its colour alone. Their order is that of a chart's series.
_INKS: Final = {False: ("#0b5cad", "#7d4e00", "#1a6b31", "#b1222c"), True: ("#7ab7f2", "#e6b450", "#6fcf87", "#ff8b8b")}
_FILLS: Final = ("", "////", "....", "xxxx", "\\\\\\\\", "----")
_MARKS: Final = ("o", "s", "^", "D")
_PAPER: Final = {False: ("#ffffff", "#57606a", "#d9dde1"), True: ("#14171a", "#a3abb3", "#3a4047")}
_STYLE: Final = re.compile(r' style="([^"<>]*)"')
_NEEDLESS: Final = re.compile(
    r"<defs>\s*<style[^>]*>[^<]*</style>\s*</defs>|<metadata>.*?</metadata>|<!DOCTYPE[^>]*>", re.DOTALL
)


def draw(chart: Chart, *, dark: bool) -> bytes:
    """A chart as SVG; the same bytes for the same chart."""
    out = io.BytesIO()
    with rc_context(_looks(dark=dark)):
        figure = Figure(figsize=_SIZE, layout="constrained", facecolor="none")
        axes = figure.add_subplot(facecolor="none")
        (_bars if chart.bars else _lines)(axes, chart)
        _frame(axes, chart)
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return plain(out.getvalue().decode()).encode()


def _looks(*, dark: bool) -> dict[Any, Any]:  # its own type names each of its settings
    paper, faint, line = _PAPER[dark]
    return {
        "svg.fonttype": "path",
        "svg.hashsalt": "hone",
        "text.parse_math": False,
        "font.size": 11,
        "hatch.linewidth": 0.6,
        "hatch.color": paper,
        "axes.edgecolor": line,
        "axes.labelcolor": faint,
        "text.color": faint,
        "xtick.color": faint,
        "ytick.color": faint,
        "grid.color": line,
        "axes.prop_cycle": cycler(color=_INKS[dark]),
    }


def _lines(axes: Axes, chart: Chart) -> None:
    for one, mark in zip(chart.series, _MARKS * len(chart.series), strict=False):
        there = [at for at, value in enumerate(one.values) if value is not None]
        values = [value for value in one.values if value is not None]
        [drawn] = axes.plot(there, values, marker=mark, markersize=4, linewidth=1.4, label=_label(one.name))
        for at in there:
            low, high = (ends[at] if ends else None for ends in (one.low, one.high))
            if low is not None and high is not None:
                axes.plot([at, at], [low, high], color=drawn.get_color(), linewidth=1.0, alpha=0.6, marker="_")


def _bars(axes: Axes, chart: Chart) -> None:
    below = [0.0] * len(chart.places)
    for number, one in enumerate(chart.series):
        heights = [value or 0.0 for value in one.values]
        fill = _FILLS[number % len(_FILLS)]
        axes.bar(range(len(heights)), heights, bottom=below, width=0.8, label=_label(one.name), hatch=fill, linewidth=0)
        below = [base + height for base, height in zip(below, heights, strict=True)]


def _frame(axes: Axes, chart: Chart) -> None:
    every = max(1, -(-len(chart.places) // _MOST_TICKS))
    axes.set_xticks(range(0, len(chart.places), every), [_label(place) for place in chart.places[::every]])
    axes.set_xlim(-0.6, max(1, len(chart.places)) - 0.4)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_title(_label(chart.title), loc="left", fontsize=11)
    if chart.share:
        axes.set_ylim(-0.02, 1.02)
    if len(chart.series) > 1:
        axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _label(text: str) -> str:
    """Text as it is drawn: ASCII, on one line. A leading `_` would hide a legend's line."""
    seen = " ".join(text.encode("ascii", "replace").decode().split())[:_LABEL_CHARS].lstrip("_")
    return "".join(char if char.isprintable() else "?" for char in seen)


def plain(drawn: str) -> str:
    """An SVG without style sheet and style attributes, which the pages' Content-Security-Policy refuses."""
    bare = _NEEDLESS.sub("", drawn).replace("<svg ", '<svg stroke-linejoin="round" stroke-linecap="butt" ', 1)
    return _STYLE.sub(lambda found: _attributes(found[1]), bare)


def _attributes(style: str) -> str:
    pairs = (part.partition(":") for part in style.split(";") if part.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)
