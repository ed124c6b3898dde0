"""Draw a summary (`examples.running.summary`): success and reward of the steps, validations, alarms.

    python -m examples.running.picture build/examples/inbox/1/summary.json curve.svg

Owns the picture. Refuses to smooth, select or compute: it draws the figures of the file.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from examples.helpdesk.curve import HELD_OUT, INK, LEARNING, save

REWARD, ALARM = "#8a9bb0", "#e08e0b"


def draw(summary: Mapping[str, Any]) -> Figure:
    """Draw success and reward by step, validations and held-out measurements with their intervals, and alarms."""
    figure = Figure(figsize=(7.2, 3.4), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    steps = summary["steps"]
    last = max((step["step"] for step in steps), default=0)
    _line(axes, steps, "reward", color=REWARD, linestyle="--", linewidth=1, label="mean reward of a step's attempts")
    _line(axes, steps, "success", color=LEARNING, marker="o", markersize=4, label="success of a step's attempts")
    _measured(axes, summary["validations"], fmt="o", color=INK, label=f"{_validation(summary)}, 95 % interval")
    held = [{"step": -0.6, **summary["before"]}, {"step": last + 0.6, **summary["after"]}]
    _measured(axes, held, fmt="s", color=HELD_OUT, label="held out, 95 % interval")
    for nth, alarm in enumerate(summary["alarms"]):
        axes.axvline(alarm["step"], color=ALARM, linewidth=1.5, linestyle=":", label="alarm" if nth == 0 else None)
        axes.annotate(
            alarm["rule"], (alarm["step"], 1 - 0.06 * (nth % 3)), (4, 0), textcoords="offset points",
            color=ALARM, fontsize=8, va="center",
        )  # fmt: skip
    axes.set(ylim=(0, 1.04), xlim=(-1, last + 1), xlabel="step")
    axes.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_title(_title(summary), loc="left", color=INK, fontsize=11)
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e5e5e5", linewidth=0.8)
    axes.set_axisbelow(True)
    figure.legend(frameon=False, loc="outside lower center", ncols=2, fontsize=8)  # no point is below it
    return figure


def _validation(summary: Mapping[str, Any]) -> str:
    """Return the label of validations: success, or the win rate if the campaign measured nothing else."""
    return "validation: win rate against version 0" if "wins" in summary else "validation"


def _title(summary: Mapping[str, Any]) -> str:
    before, after = summary["before"]["success"], summary["after"]["success"]
    told = f"{summary['example']}, seed {summary['seed']}"
    if before is None or after is None:
        return told
    return f"{told}: {before:.1%} → {after:.1%} held out in {summary['seconds']:.0f} s"


def _line(axes: Axes, steps: Sequence[Mapping[str, Any]], figure: str, **looks: Any) -> None:
    seen = [step for step in steps if step[figure] is not None]
    axes.plot([step["step"] for step in seen], [step[figure] for step in seen], **looks)


def _measured(axes: Axes, points: Sequence[Mapping[str, Any]], **looks: Any) -> None:
    seen = [point for point in points if point["success"] is not None]
    if not seen:
        return
    shares = [point["success"] for point in seen]
    below = [share - point["low"] for share, point in zip(shares, seen, strict=True)]
    above = [point["high"] - share for share, point in zip(shares, seen, strict=True)]
    axes.errorbar([point["step"] for point in seen], shares, yerr=[below, above], markersize=5, capsize=3, **looks)


def write(summary: Mapping[str, Any], picture: Path) -> None:
    """Draw a summary into a file."""
    save(draw(summary), picture)


def main() -> None:
    """Draw a summary."""
    parser = argparse.ArgumentParser(description="Draw an example's run.")
    parser.add_argument("summary", type=Path)
    parser.add_argument("picture", type=Path, help="an .svg or .png file")
    given = parser.parse_args()
    write(json.loads(given.summary.read_text(encoding="utf-8")), given.picture)


if __name__ == "__main__":
    main()
