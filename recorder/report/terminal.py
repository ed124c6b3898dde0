"""Render a report for a terminal.

Owns: which parts are shown, and their order. Refuses: escaping, which `recorder.base.terminal` does for every string;
conversations, which only the page shows.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from recorder.base.terminal import NONE, build_table, clean, clean_line, format_number, percent
from recorder.report import presentation
from recorder.report.presentation import figure_title
from recorder.report.shapes import CampaignReport, DrawnScenario, MeasuredPoint

_HEAD, _TAIL = 4, 16  # the first and last validations shown, if there are many
_CHARS: Final = 100  # of a conversation's last message


def report_text(report: CampaignReport) -> RenderableType:
    """The whole report for a terminal."""
    parts: list[RenderableType] = [
        clean_line(f"{report.name} ({report.alias}): {report.status.code}", style="bold"),
        _facts(report),
        *_measured(report),
        *_goals(report),
        *_alarms(report),
        *_left_out(report),
        *_draws(report),
        *_health(report),
        *_pairs(report),
        *(clean_line(f"Not shown: {note}.", style="dim") for note in report.notes),
    ]
    return Group(*parts)


def report_summary(report: CampaignReport) -> str:
    """The end of a campaign in a few lines."""
    lines = [presentation.verdict_sentence(report), f"{report.status.code}: {report.status.text}"]
    lines += [f"continue: {report.status.goes_on}"] if report.status.goes_on else []
    lines += [
        f"serves: {presentation.service_sentence(report)}",
        f"judge: {presentation.judging_cost_text(report.judged)}",
    ]
    return clean("\n".join(lines))


def _facts(report: CampaignReport) -> RenderableType:
    rows = [
        ("why", report.status.text),
        ("continue", report.status.goes_on),
        ("result", presentation.verdict_sentence(report)),
        ("best", report.best.version if report.best else NONE),
        ("serves", presentation.service_sentence(report)),
        ("steps", _steps(report)),
        (
            "attempts",
            f"{presentation.format_count(report.attempts)}, {presentation.format_count(report.errored)} errored",
        ),
        ("trained on", f"{presentation.format_count(report.trained)} trajectories"),
        ("long tasks", presentation.lengths_text(report.lengths)),
        ("computed on", presentation.computed_on_text(report.computed_on)),
        ("tools", presentation.withheld_text(report.withheld)),
        ("judge", presentation.judging_cost_text(report.judged)),
        ("gates", presentation.gates_sentence(report.sampled)),
        ("seconds", ", ".join(f"{phase} {presentation.format_span(taken)}" for phase, taken in report.seconds.items())),
        ("began", f"{presentation.format_time(report.began_at)}, ended {presentation.format_time(report.ended_at)}"),
    ]
    return build_table(("", ""), [row for row in rows if row[1]])


def _steps(report: CampaignReport) -> str:
    most = f" of at most {report.most_steps}" if report.most_steps else ""
    failed = f", {report.failed_steps} failed" if report.failed_steps else ""
    return f"{report.steps_done}{most}{failed}"


def _measured(report: CampaignReport) -> Iterator[RenderableType]:
    points = report.validations or report.own
    if points:
        name = "validation" if report.validations else "its own attempts"
        yield _headed(f"{presentation.measure_name(report.kind).capitalize()} by {name}")
        yield _points(points, report)
    if report.baselines:
        yield _headed("Baselines" + (f", to beat {report.beat}" if report.beat else ""))
        yield _points(report.baselines, report)
    if report.tests:
        yield _headed("Test part, measured once")
        yield _points(report.tests, report)


def _points(points: Sequence[MeasuredPoint], report: CampaignReport) -> RenderableType:
    head, between, tail = presentation.head_and_tail(points, _HEAD, _TAIL)
    columns = ["after step", "version", "measure", "95 % interval", "attempts", "errored", "adversarial"]
    rows = [_point(point, report) for point in head]
    rows += [[f"{between} more", *("" for _ in columns[1:])]] if between else []
    rows += [_point(point, report) for point in tail]
    if all(point.adversarial is None for point in points):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return build_table(columns, rows, right=("after step", "measure", "attempts", "errored"))


def _point(point: MeasuredPoint, report: CampaignReport) -> list[str]:
    value, sure = (
        presentation.format_measure(point.value, report.kind),
        presentation.format_interval(point, report.kind),
    )
    counts = [str(point.attempts), str(point.errored)]
    return [str(point.step), point.version, value, sure, *counts, presentation.format_adversarial(point, report.kind)]


def _goals(report: CampaignReport) -> Iterator[RenderableType]:
    if report.goals:
        yield _headed("Goals, of the best version")
        yield build_table(
            ("", "", ""), [(g.text, format_number(g.value), presentation.goal_text(g)) for g in report.goals]
        )


def _alarms(report: CampaignReport) -> Iterator[RenderableType]:
    if report.alarms:
        yield _headed("Alarms")
        alarms = [(one.alarm.step, one.alarm.rule, one.alarm.then, one.alarm.detail) for one in report.alarms]
        yield build_table(("step", "rule", "then", ""), alarms, right=("step",))
        evidence = [each for one in report.alarms for each in one.alarm.evidence]
        rows = [
            (each.get("trajectory"), presentation.format_loose_number(each.get("reward")), each.get("part"))
            for each in evidence
        ]
        if rows:
            yield build_table(("trajectory", "reward", "paid by"), rows, right=("reward",))
    if report.changes:
        yield _headed("Changes")
        rows_of = [(one.step, one.what, f"{one.was} → {one.now}") for one in report.changes]
        yield build_table(("after step", "what", ""), rows_of, right=("after step",))


def _left_out(report: CampaignReport) -> Iterator[RenderableType]:
    if report.excluded:
        yield _headed("Excluded")
        yield build_table(
            ("trajectories", "reason", ""),
            [(o.trajectories, o.code, o.meaning) for o in report.excluded],
            right=("trajectories",),
        )


def _draws(report: CampaignReport) -> Iterator[RenderableType]:
    drawn = report.draws
    if drawn is None:
        return
    yield _headed("Drawn scenarios")
    yield clean_line(presentation.draws_sentence(drawn))
    reasons = [
        (one.reason, one.groups, one.equal, percent(presentation.wasted_share(one)), percent(one.expected))
        for one in drawn.by_reason
    ]
    by_reason = ("drawn", "groups", "equal", "wasted attempts", "expected to differ")
    yield build_table(by_reason, reasons, right=by_reason[1:])
    head, between, tail = presentation.head_and_tail(drawn.scenarios, *presentation.DRAWN)
    rows = [_drawn(one) for one in head]
    rows += [(f"{between} more", "", "", "", "", "")] if between else []
    rows += [_drawn(one) for one in tail]
    columns = ("scenario", "reward", "chance to differ", "drawn", "equal", "refills")
    yield build_table(columns, rows, right=columns[1:])


def _drawn(one: DrawnScenario) -> tuple[str, ...]:
    counts = (one.drawn, one.equal, one.refills)
    return one.scenario, format_number(one.reward), percent(one.differ), *map(str, counts)


def _health(report: CampaignReport) -> Iterator[RenderableType]:
    rows = []
    for name, values in report.health.items():
        there = [value for value in values if value is not None]
        rows.append((figure_title(name), *map(format_number, (there[0], there[-1], min(there), max(there)))))
    if rows:
        yield _headed("Health")
        columns = ("", "first", "last", "lowest", "highest")
        yield build_table(columns, rows, right=columns[1:])


def _pairs(report: CampaignReport) -> Iterator[RenderableType]:
    if report.pairs:
        yield _headed(f"Before and after, {report.pairs[0].before.version} and {report.pairs[0].after.version}")
        rows = []
        for pair in report.pairs:
            for one in (pair.before, pair.after):
                end = one.messages[-1].text[:_CHARS] if one.messages else ""
                rows.append((pair.title, one.version, format_number(one.reward), end))
        yield build_table(("task", "version", "reward", "last message"), rows, right=("reward",))


def _headed(text: str) -> Text:
    return Text("\n").append_text(clean_line(text, style="bold"))
