"""Draw live traffic from its summary.json.

    python -m examples.live.picture build/live/1/summary.json live.svg

Owns the picture: success by minute and the versions that answered (top), what was trained on and excluded (bottom).
Refuses to smooth, select or compute: it draws the figures of the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any, Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from examples.helpdesk.curve import HELD_OUT, INK, LEARNING, save

LEFT_OUT: Final = ("#c9c9c9", "#a3a3a3", "#e0b84c", "#7d9c6d", "#9c7db5", "#6d8f9c")
SECONDS: Final = 60.0
GREY: Final = "#e5e5e5"
VERSION: Final = "#9cc2ee"
SHOWN: Final = 8  # trajectories; a share of fewer has no meaning

Json = dict[str, Any]


def draw(summary: Json) -> Figure:
    """Draw both panels, over one axis of minutes."""
    figure = Figure(figsize=(8.0, 5.4), layout="constrained")
    FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=(3, 2))
    _success(above, summary)
    _decisions(above, summary)
    _learned(below, summary["by_minute"])
    above.set_title(_title(summary), loc="left", color=INK, fontsize=11)
    below.set(xlabel="minute", ylabel="trajectories", xlim=(0, len(summary["by_minute"])))
    below.xaxis.set_major_locator(MaxNLocator(integer=True))
    for axes in (above, below):
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GREY, linewidth=0.8)
        axes.set_axisbelow(True)
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    return figure


def _title(summary: Json) -> str:
    before, after = summary["first_version"]["success"], summary["last_minute"]["success"]
    shown = " → ".join("none" if one is None else f"{one:.0%}" for one in (before, after))
    live, refused = summary["versions_live"], summary["versions_refused"]
    return f"{summary['traffic']}: {shown} of users' trajectories right; {live} versions live, {refused} rejected"


def _success(axes: Axes, summary: Json) -> None:
    asked = [(one["minute"] - 0.5, one["success"]) for one in summary["by_minute"] if one["success"] is not None]
    axes.plot(
        *zip(*asked, strict=True), marker="o", markersize=4, color=LEARNING, label="users' trajectories of a minute"
    )
    versions = [one for one in summary["by_version"].values() if one["runs"] >= SHOWN]
    at, share = [one["second"] / SECONDS for one in versions], [one["success"] for one in versions]
    axes.plot(at, share, "o", markersize=2.5, color=VERSION, label=f"of a version's, {SHOWN} or more")
    last = len(summary["by_minute"])
    for x, name in ((0.0, "before"), (float(last), "after")):
        if (held := summary["held_out"].get(name)) is not None:
            reach = [[held["success"] - held["low"]], [held["high"] - held["success"]]]
            label = "held-out orders, 95 %" if name == "before" else None
            axes.errorbar([x], [held["success"]], yerr=reach, fmt="s", color=HELD_OUT, label=label, clip_on=False)
    axes.set(ylim=(0, 1.04), ylabel="success")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))


def _decisions(axes: Axes, summary: Json) -> None:
    for live, mark, colour, label in (
        (True, "|", INK, "a version live"),
        (False, "x", "#d1495b", "a version rejected"),
    ):
        at = [one["second"] / SECONDS for one in summary["decisions"] if (one["move"] == "gate") == live]
        if at:
            axes.plot(at, [0.03] * len(at), mark, markersize=7, color=colour, linestyle="none", label=label)
    for note in summary["notes"]:
        axes.axvline(note["second"] / SECONDS, color=INK, linewidth=0.8, linestyle=":")
        axes.annotate(note["text"], (note["second"] / SECONDS, 1.0), fontsize=7, rotation=90, va="top", ha="right")


def _learned(axes: Axes, minutes: list[Json]) -> None:
    at = [one["minute"] - 0.5 for one in minutes]
    heights = [one["trained"] for one in minutes]
    axes.bar(at, heights, width=0.8, color=LEARNING, label="trained")
    bottom = heights
    for n, code in enumerate(sorted({code for one in minutes for code in one["left_out"]})):
        heights = [one["left_out"].get(code, 0) for one in minutes]
        axes.bar(at, heights, width=0.8, bottom=bottom, color=LEFT_OUT[n % len(LEFT_OUT)], label=code)
        bottom = [one + more for one, more in zip(bottom, heights, strict=True)]


def main() -> None:
    """Draw a summary."""
    parser = argparse.ArgumentParser(description="Draw a session of live traffic.")
    parser.add_argument("summary", type=Path)
    parser.add_argument("picture", type=Path, help="an .svg or .png file")
    given = parser.parse_args()
    save(draw(json.loads(given.summary.read_text(encoding="utf-8"))), given.picture)


if __name__ == "__main__":
    main()
