"""Render a report: as one HTML file without scripts or external resources, or as a part of a page below /hone.

Both are the template `results.html`, in which hostile transcripts are text. Owns: filling the templates, the file's
Content-Security-Policy, and embedding charts. Refuses: the figures (`contents`), what fits on a page (`page_fit`),
which figures are drawn (`presentation`) and how (`recorder.stats.charts`).

Jinja escapes every text, and `clean` makes control characters visible. Only the charts are unescaped markup: their
labels are outlines, so they hold no text. The policy allows the one style sheet, by its hash.
"""

from __future__ import annotations

import base64
import functools
import hashlib
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import quote

import jinja2
from markupsafe import Markup, escape

from recorder.base.terminal import clean, format_number, percent
from recorder.processes import file_modes
from recorder.report import presentation
from recorder.report.shapes import CampaignReport, MeasuredPoint
from recorder.stats.charts import Chart, dark_inks, draw_svg

HERE: Final = Path(__file__).parent / "templates"
RESULTS_SHEET: Final = "results.css"  # the rules that file and page share
STEPS: Final = (10, 50)  # the first and the last of a long campaign, in the file's table
VALIDATIONS: Final = (10, 40)
PAGE_ROWS: Final = (5, 15)  # of both on the page, which a browser loads again and again
_NAMED: Final = re.compile(r'(\bid="|href="#|url\(#)')
_TRAJECTORY: Final = "traj_"  # the prefix of trajectories' ids
_TRACK: Final = 120.0  # length of the line that shows an interval


class HasMarkup(Protocol):
    """A rendered part of a page, as templates take it."""

    def __html__(self) -> str:
        """Return its HTML, escaped where it must be."""


def write_page(report: CampaignReport, path: Path) -> None:
    """Write the file, readable by its owner only, because it holds conversations. Raises OSError."""
    file_modes.write_private(path, render_page(report))


def render_page(report: CampaignReport, drawings: Mapping[str, str] | None = None) -> str:
    """The report as one file. `drawings`: its charts as light SVG, by name; None draws them here, which is slow."""
    sheet = _sheet()
    charts = report_charts(report)
    drawn = drawings if drawings is not None else {name: draw_svg(chart) for name, chart in charts.items()}
    pictures = {name: _embedded(charts[name], name, svg) for name, svg in drawn.items()}
    return (
        _environment(linked=False)
        .get_template("report.html")
        .render(
            _values(report, pictures, STEPS, VALIDATIONS),
            sheet=Markup(sheet),  # noqa: S704 - Hone's own, and a style element holds no markup
            policy=security_policy(sheet),
        )
    )


def render_results(report: CampaignReport, pictures: Mapping[str, HasMarkup]) -> Markup:
    """The same results as a part of a page below /hone, with links to versions and trajectories.

    `pictures`: what shows each chart, by its name.
    """
    values = _values(report, pictures, PAGE_ROWS, PAGE_ROWS)
    rendered = _environment(linked=True).get_template("results.html").render(values)
    return Markup(rendered)  # noqa: S704 - the template escapes every text


def report_charts(report: CampaignReport) -> dict[str, Chart]:
    """The charts that have something to draw, by name."""
    charts = {"curve": presentation.measure_chart(report), "seconds": presentation.seconds_chart(report)}
    charts |= {f"health{at}": chart for at, chart in enumerate(presentation.health_charts(report))}
    return {name: chart for name, chart in charts.items() if not chart.empty}


def _values(
    report: CampaignReport, pictures: Mapping[str, HasMarkup], steps: tuple[int, int], validations: tuple[int, int]
) -> dict[str, Any]:
    return {
        "report": report,
        "pictures": pictures,
        "steps": presentation.head_and_tail(report.steps, *steps),
        "own_points": {point.step: point for point in report.own},
        "validations": presentation.head_and_tail(report.validations, *validations),
        "drawn": presentation.head_and_tail(report.draws.scenarios if report.draws else (), *presentation.DRAWN),
    }


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
    own = "".join((HERE / name).read_text("utf-8") for name in ("report.css", RESULTS_SHEET))
    return f"{own}@media screen and (prefers-color-scheme: dark) {{\n{swapped}}}\n"


@functools.cache
def _environment(*, linked: bool) -> jinja2.Environment:
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
    made.globals |= {
        "presentation": presentation,
        "track": interval_track,
        "link_version": _link_version if linked else clean,
        "link_trajectory": _link_trajectory if linked else clean,
    }
    return made


def _link_version(name: object) -> Markup | str:
    """A version's name as a link to its page; a baseline has none, and an event of another program may lack a name."""
    return _link("versions", name) if isinstance(name, str) and "@" in name else clean("–" if name is None else name)


def _link_trajectory(id_: object) -> Markup | str:
    return _link("trajectories", id_) if isinstance(id_, str) and id_.startswith(_TRAJECTORY) else clean(id_)


def _link(kind: str, name: str) -> Markup:
    return Markup('<a href="/hone/{}/{}">{}</a>').format(kind, quote(name, safe="@"), clean(name))


def _embedded(chart: Chart, name: str, drawn: str) -> Markup:
    """A drawn chart as markup, with `name` in its ids so that they are unique in the file."""
    svg = _NAMED.sub(lambda found: f"{found[1]}{name}-", drawn[drawn.index("<svg ") :])
    label = escape(clean(presentation.chart_text(chart)))
    return Markup(svg.replace("<svg ", f'<svg role="img" aria-label="{label}" ', 1))  # noqa: S704 - texts are outlines


def interval_track(point: MeasuredPoint) -> dict[str, float] | None:
    """The positions of a share and of its interval's ends on a line from 0 to 1; None: it has no interval within."""
    if point.value is None or point.low is None or point.high is None or point.low < 0 or point.high > 1:
        return None
    ends = {"low": point.low, "high": point.high, "value": point.value}
    return {name: round(4 + _TRACK * value, 1) for name, value in ends.items()}
