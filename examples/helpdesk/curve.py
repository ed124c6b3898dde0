"""Draw the demo's curve from a campaign's summary.json: the picture in docs/start.md.

    python -m examples.helpdesk.curve .hone/demo/1/summary.json docs/demo.svg

Owns the picture. Refuses to smooth, select or compute: it draws the figures of the file.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

from matplotlib import rc_context
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import PercentFormatter

INK, LEARNING, HELD_OUT = "#333333", "#2a7de1", "#d1495b"


def draw(summary: dict[str, Any]) -> Figure:
    """Draw the success of each step's attempts, and success on held-out orders before and after, with its interval."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    _steps(axes, summary["success_by_step"])
    last = len(summary["success_by_step"])
    _measured(axes, 0.4, summary["before"], label="held-out orders, 95 % interval")
    _measured(axes, last + 0.6, summary["after"])
    axes.set(ylim=(0, 1.04), xlim=(0, last + 1), xlabel="step", ylabel="success")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.set_title(
        f"{summary['before']['success']:.1%} → {summary['after']['success']:.1%} of "
        f"{summary['after']['attempts']} held-out orders in {summary['seconds']:.0f} s on two CPU cores",
        loc="left",
        color=INK,
        fontsize=11,
    )
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, loc="lower right", fontsize=9)
    return figure


def _steps(axes: Axes, steps: list[dict[str, Any]]) -> None:
    numbers, shares = [s["step"] for s in steps], [s["success"] for s in steps]
    axes.plot(numbers, shares, marker="o", markersize=4, color=LEARNING, label="the step's own 64 attempts")


def _measured(axes: Axes, x: float, measured: dict[str, Any], label: str | None = None) -> None:
    share = measured["success"]
    reach = [[share - measured["low"]], [measured["high"] - share]]
    axes.errorbar([x], [share], yerr=reach, fmt="s", markersize=6, capsize=4, color=HELD_OUT, label=label)


def main() -> None:
    """Draw a summary."""
    parser = argparse.ArgumentParser(description="Draw the demo's curve.")
    parser.add_argument("summary", type=Path)
    parser.add_argument("picture", type=Path, help="an .svg or .png file")
    given = parser.parse_args()
    figure = draw(json.loads(given.summary.read_text(encoding="utf-8")))
    save(figure, given.picture)


def save(figure: Figure, picture: Path) -> None:
    """Write the picture without a date and with fixed ids, so that the same figures give the same file."""
    metadata = {"Date": None} if picture.suffix == ".svg" else None
    with rc_context({"svg.hashsalt": "hone"}):
        figure.savefig(picture, metadata=metadata, dpi=150)


if __name__ == "__main__":
    main()
