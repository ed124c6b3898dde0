"""Draw a long run: success of each form, KL, entropy, and length of answers, by step.

Owns the picture. Refuses to smooth, select or compute: it draws the figures of the file.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Final

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator, PercentFormatter

from examples.helpdesk.curve import INK, save
from examples.rlvr.long_run.phases import FORMS
from examples.rlvr.long_run.points import FormPoint, LongRunRecord

COLOURS: Final = dict(zip(FORMS, ("#2a7de1", "#d1495b", "#3a9d5d"), strict=True))
BASE, PARENT = "#333333", "#8a9bb0"
GREY: Final = "#e5e5e5"


def draw(record: LongRunRecord) -> Figure:
    """Draw four panels over one axis of steps; the background's colour is that of the form that is trained."""
    figure = Figure(figsize=(7.2, 8.4), layout="constrained")
    FigureCanvasAgg(figure)
    success, drift, entropy, tokens = figure.subplots(4, 1, sharex=True, height_ratios=(3, 2, 2, 2))
    _by_form(success, record, lambda one: one.success, "success, held out", interval=True)
    success.yaxis.set_major_formatter(PercentFormatter(xmax=1))
    success.set(ylim=(0, 1.02))
    _drift(drift, record)
    _by_form(entropy, record, lambda one: one.entropy, "entropy, nats a token")
    _by_form(tokens, record, lambda one: one.tokens, "tokens an answer")
    success.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    drift.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0), fontsize=8)
    for axes in (success, drift, entropy, tokens):
        for phase in record.phases:
            axes.axvspan(phase.first, phase.last, color=COLOURS[phase.form], alpha=0.07, linewidth=0)
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(axis="y", color=GREY, linewidth=0.8)
        axes.set_axisbelow(True)
    tokens.set(xlabel="step", xlim=(0, record.phases[-1].last))
    tokens.xaxis.set_major_locator(MaxNLocator(integer=True))
    last = record.points[-1].step
    success.set_title(f"{last} steps over three forms in turn, seed {record.seed}", loc="left", color=INK, fontsize=11)
    return figure


def _by_form(
    axes: Axes, record: LongRunRecord, figure: Callable[[FormPoint], float], label: str, *, interval: bool = False
) -> None:
    for form in FORMS:
        seen = [(point.step, point.forms[form]) for point in record.points if form in point.forms]
        steps = [step for step, _ in seen]
        axes.plot(steps, [figure(one) for _, one in seen], marker="o", markersize=3, color=COLOURS[form], label=form)
        if interval:
            low, high = [one.low for _, one in seen], [one.high for _, one in seen]
            axes.fill_between(steps, low, high, color=COLOURS[form], alpha=0.15, linewidth=0)
    axes.set_ylabel(label, fontsize=8)


def _drift(axes: Axes, record: LongRunRecord) -> None:
    """KL to the base and to the parent differ by orders of magnitude."""
    for name, colour, label in (("kl_base", BASE, "to the base"), ("kl_parent", PARENT, "to the parent")):
        seen = [(point.step, point.drift[name]) for point in record.points if point.drift.get(name, 0) > 0]
        steps, values = [step for step, _ in seen], [value for _, value in seen]
        axes.plot(steps, values, marker="o", markersize=3, color=colour, label=label)
    axes.set_yscale("log")
    axes.set_ylabel("KL, nats a token", fontsize=8)


def write(record: LongRunRecord, picture: Path) -> None:
    """Draw a run into a file."""
    save(draw(record), picture)
