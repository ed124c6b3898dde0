"""A report on a terminal.

Owns: what of it is shown there, and in which order. Refuses: making text harmless, which it leaves to
`recorder.base.terminal` for every string; conversations, which the page has.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from rich.console import Group, RenderableType
from rich.text import Text

from recorder.base.terminal import NONE, clean, line, number, table
from trainer.report import words
from trainer.report.charts import title
from trainer.report.shapes import Point, Report

_HEAD, _TAIL = 4, 16  # validations that are shown of many
_CHARS: Final = 100  # of a conversation's end


def shown(report: Report) -> RenderableType:
    """All that a terminal shows of a campaign."""
    parts: list[RenderableType] = [
        line(f"{report.name} ({report.alias}): {report.stands.code}", style="bold"),
        _facts(report),
        *_measured(report),
        *_goals(report),
        *_alarms(report),
        *_left_out(report),
        *_health(report),
        *_pairs(report),
        *(line(f"Not told: {note}.", style="dim") for note in report.notes),
    ]
    return Group(*parts)


def summary(report: Report) -> str:
    """The end of a campaign in a few lines."""
    lines = [words.verdict(report), f"{report.stands.code}: {report.stands.words}"]
    lines += [f"go on: {report.stands.goes_on}"] if report.stands.goes_on else []
    lines += [f"serves: {words.serves(report)}", f"judge: {words.judged(report.judged)}"]
    return clean("\n".join(lines))


def _facts(report: Report) -> RenderableType:
    rows = [
        ("why", report.stands.words),
        ("go on", report.stands.goes_on),
        ("came to", words.verdict(report)),
        ("best", report.best.version if report.best else NONE),
        ("serves", words.serves(report)),
        ("steps", _steps(report)),
        ("attempts", f"{words.count(report.attempts)}, {words.count(report.errored)} errored"),
        ("trained on", f"{words.count(report.trained)} runs"),
        ("tools", words.withheld(report.withheld)),
        ("judge", words.judged(report.judged)),
        ("seconds", ", ".join(f"{phase} {words.span(taken)}" for phase, taken in report.seconds.items())),
        ("began", f"{words.when(report.began_at)}, ended {words.when(report.ended_at)}"),
    ]
    return table(("", ""), [row for row in rows if row[1]])


def _steps(report: Report) -> str:
    most = f" of at most {report.most_steps}" if report.most_steps else ""
    failed = f", {report.failed_steps} failed" if report.failed_steps else ""
    return f"{report.steps_done}{most}{failed}"


def _measured(report: Report) -> Iterator[RenderableType]:
    points = report.validations or report.own
    if points:
        name = "validation" if report.validations else "its own attempts"
        yield _headed(f"{words.named(report.kind).capitalize()} by {name}")
        yield _points(points, report)
    if report.baselines:
        yield _headed("Baselines" + (f", to beat {report.beat}" if report.beat else ""))
        yield _points(report.baselines, report)
    if report.tests:
        yield _headed("Test part, measured once")
        yield _points(report.tests, report)


def _points(points: Sequence[Point], report: Report) -> RenderableType:
    head, between, tail = words.ends_of(points, _HEAD, _TAIL)
    columns = ["after step", "version", "measure", "95 % interval", "attempts", "errored", "tempted to cheat"]
    rows = [_point(point, report) for point in head]
    rows += [[f"{between} more", *("" for _ in columns[1:])]] if between else []
    rows += [_point(point, report) for point in tail]
    if all(point.adversarial is None for point in points):
        columns, rows = columns[:-1], [row[:-1] for row in rows]
    return table(columns, rows, right=("after step", "measure", "attempts", "errored"))


def _point(point: Point, report: Report) -> list[str]:
    value, sure = words.measure(point.value, report.kind), words.interval(point, report.kind)
    counts = [str(point.attempts), str(point.errored)]
    return [str(point.step), point.version, value, sure, *counts, words.adversarial(point, report.kind)]


def _goals(report: Report) -> Iterator[RenderableType]:
    if report.goals:
        yield _headed("Goals, of the best version")
        yield table(("", "", ""), [(g.words, number(g.value), words.holds(g)) for g in report.goals])


def _alarms(report: Report) -> Iterator[RenderableType]:
    if report.alarms:
        yield _headed("Alarms")
        rows = [(one.alarm.step, one.alarm.rule, one.alarm.then, one.alarm.detail) for one in report.alarms]
        yield table(("step", "rule", "then", ""), rows, right=("step",))
        evidence = [each for one in report.alarms for each in one.alarm.evidence]
        told = [(each.get("trajectory"), words.loose(each.get("reward")), each.get("part")) for each in evidence]
        if told:
            yield table(("run", "reward", "paid by"), told, right=("reward",))
    if report.changes:
        yield _headed("Changes")
        rows_of = [(one.step, one.what, f"{one.was} → {one.now}") for one in report.changes]
        yield table(("after step", "what", ""), rows_of, right=("after step",))


def _left_out(report: Report) -> Iterator[RenderableType]:
    if report.left_out:
        yield _headed("Left out")
        yield table(("runs", "reason", ""), [(o.runs, o.code, o.meaning) for o in report.left_out], right=("runs",))


def _health(report: Report) -> Iterator[RenderableType]:
    rows = []
    for name, values in report.health.items():
        there = [value for value in values if value is not None]
        rows.append((title(name), *map(number, (there[0], there[-1], min(there), max(there)))))
    if rows:
        yield _headed("Health")
        columns = ("", "first", "last", "lowest", "highest")
        yield table(columns, rows, right=columns[1:])


def _pairs(report: Report) -> Iterator[RenderableType]:
    if report.pairs:
        yield _headed(f"Before and after, {report.pairs[0].before.version} and {report.pairs[0].after.version}")
        rows = []
        for pair in report.pairs:
            for side in (pair.before, pair.after):
                end = side.messages[-1].text[:_CHARS] if side.messages else ""
                rows.append((pair.scenario, side.version, number(side.reward), end))
        yield table(("scenario", "version", "reward", "it ended with"), rows, right=("reward",))


def _headed(text: str) -> Text:
    return Text("\n").append_text(line(text, style="bold"))
