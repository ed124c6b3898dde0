"""Render a report as one HTML file: no script, no external resource, hostile transcripts as text.

Owns: filling the template, the file's Content-Security-Policy, and embedding charts. Refuses: the figures (`contents`),
which figures are drawn (`presentation`) and how (`recorder.stats.charts`).

Jinja escapes every text, and `clean` makes control characters visible. Only the charts are unescaped markup: their
labels are outlines, so they hold no text. The policy allows the one style sheet, by its hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from pathlib import Path
from typing import Final

import jinja2
from markupsafe import Markup, escape

from recorder.base.terminal import clean, format_number, percent
from recorder.processes import file_modes
from recorder.stats.charts import Chart, dark_inks, draw_svg
from trainer.report import presentation
from trainer.report.shapes import CampaignReport, MeasuredPoint

HERE: Final = Path(__file__).parent / "templates"
STEPS: Final = (10, 50)  # the first and the last of a long campaign, in its table
VALIDATIONS: Final = (10, 40)
_NAMED: Final = re.compile(r'(\bid="|href="#|url\(#)')
_TRACK: Final = 120.0  # length of the line that shows an interval


def write_page(report: CampaignReport, path: Path) -> None:
    """Write the page, readable by its owner only, because it holds conversations. Raises OSError."""
    file_modes.write_private(path, render_page(report))


def render_page(report: CampaignReport) -> str:
    """The page."""
    sheet = _sheet()
    return (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            sheet=Markup(sheet),  # noqa: S704 - Hone's own, and a style element holds no markup
            policy=security_policy(sheet),
            curve=_drawn(presentation.measure_chart(report), "curve"),
            seconds=_drawn(presentation.seconds_chart(report), "seconds"),
            health=[_drawn(chart, f"health{at}") for at, chart in enumerate(presentation.health_charts(report))],
            steps=presentation.head_and_tail(report.steps, *STEPS),
            own_points={point.step: point for point in report.own},
            validations=presentation.head_and_tail(report.validations, *VALIDATIONS),
            drawn=presentation.head_and_tail(report.draws.scenarios if report.draws else (), *presentation.DRAWN),
        )
    )


def security_policy(sheet: str) -> str:
    """The page's Content-Security-Policy: a browser may only apply its style sheet."""
    known = base64.b64encode(hashlib.sha256(sheet.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{known}'; base-uri 'none'; form-action 'none'"


def _sheet() -> str:
    """The style sheet, with rules that replace the charts' light colours by dark ones."""
    swapped = "".join(
        f'.drawn [{name}="{light}"] {{ {name}: {dark}; }}\n'
        for light, dark in dark_inks()
        for name in ("fill", "stroke")
    )
    own = (HERE / "report.css").read_text("utf-8")
    return f"{own}@media screen and (prefers-color-scheme: dark) {{\n{swapped}}}\n"


@functools.cache
def _environment() -> jinja2.Environment:
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(HERE),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.filters |= {
        "visible": clean,
        "count": presentation.format_count,
        "number": format_number,
        "percent": percent,
        "span": presentation.format_span,
    }
    made.filters |= {
        "when": presentation.format_time,
        "holds": presentation.goal_text,
        "title": presentation.figure_title,
    }
    made.globals |= {"presentation": presentation, "track": interval_track}
    return made


def _drawn(chart: Chart, name: str) -> Markup | None:
    """A chart as markup, with `name` in its ids so that they are unique on the page; None: there is nothing to draw."""
    if chart.empty:
        return None
    drawn = draw_svg(chart)
    svg = _NAMED.sub(lambda found: f"{found[1]}{name}-", drawn[drawn.index("<svg ") :])
    label = escape(clean(presentation.chart_text(chart)))
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704 - texts are outlines


def interval_track(point: MeasuredPoint) -> dict[str, float] | None:
    """The positions of a share and of its interval's ends on a line from 0 to 1; None: it has no interval within."""
    if point.value is None or point.low is None or point.high is None or point.low < 0 or point.high > 1:
        return None
    ends = {"low": point.low, "high": point.high, "value": point.value}
    return {name: round(4 + _TRACK * value, 1) for name, value in ends.items()}
