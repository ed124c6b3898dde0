"""A report's figures as text and charts, the same for the terminal and the page. Pure.

Owns: numbers, shares, durations, money, the sentences with them, and which figures the charts show. Refuses: layout and
escaping (`terminal`, `page`), and drawing (`recorder.stats.charts`).
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Final, TypeVar

from recorder.base.terminal import NONE, format_number, percent
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.report.shapes import CampaignDraws, CampaignReport, DrawnGroups, GoalResult, MeasuredPoint, WithheldTools
from recorder.stats.charts import Chart, EventMark, ReferenceLine, Series
from recorder.views.campaigns.events import CampaignMeasure
from recorder.views.campaigns.lengths import AttemptLengths
from recorder.views.campaigns.tokens import CampaignTokens

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_NAMES: Final = {CampaignMeasure.SUCCESS: "success", CampaignMeasure.WINS: "win rate", CampaignMeasure.REWARD: "reward"}

T = TypeVar("T")


def measure_name(kind: CampaignMeasure) -> str:
    """The name of a campaign's measure."""
    return _NAMES.get(kind, "measure")


def is_share(kind: CampaignMeasure) -> bool:
    """Whether the measure is a share, shown in per cent."""
    return kind in (CampaignMeasure.SUCCESS, CampaignMeasure.WINS)


def percent_or_number(value: float | None, *, share: bool) -> str:
    """A share in per cent, another value with three significant digits."""
    return percent(value) if share else format_number(value)


def format_measure(value: float | None, kind: CampaignMeasure) -> str:
    """A value of the report's measure."""
    return percent_or_number(value, share=is_share(kind))


def format_interval(point: MeasuredPoint, kind: CampaignMeasure) -> str:
    """The point's 95 % interval; a dash if there is none."""
    if point.low is None or point.high is None:
        return NONE
    return f"{format_measure(point.low, kind)} to {format_measure(point.high, kind)}"


def format_adversarial(point: MeasuredPoint, kind: CampaignMeasure) -> str:
    """The measure at adversarial scenarios."""
    if point.adversarial is None:
        return NONE
    return f"{format_measure(point.adversarial, kind)} of {point.adversarial_attempts}"


def format_count(value: float) -> str:
    """A count with thousands separators."""
    return f"{value:,.0f}"


def lengths_text(lengths: AttemptLengths | None) -> str:
    """The share of long attempts among those made and those trained on; empty if nothing was trained on."""
    if lengths is None or lengths.long_share_trained is None:
        return ""
    cut = f"; {format_count(lengths.unfinished)} stopped at the campaign's end" if lengths.unfinished else ""
    return (
        f"attempts longer than {format_span(lengths.median_s)} (the median) are {percent(lengths.long_share)} of "
        f"{format_count(lengths.ended)} made, and {percent(lengths.long_share_trained)} of "
        f"{format_count(lengths.trained)} trained on{cut}"
    )


def format_loose_number(value: object) -> str:
    """A number from stored JSON; a dash for anything else."""
    return format_number(value) if isinstance(value, int | float) else NONE


def format_span(seconds: float | None) -> str:
    """A span of time in its largest unit."""
    if seconds is None:
        return NONE
    for size, unit in _UNITS:
        if seconds >= size:
            return f"{seconds / size:.1f} {unit}"
    return f"{seconds:.1f} s"


def format_time(at: float | None) -> str:
    """A time (unix seconds), in this machine's zone."""
    return NONE if at is None else time.strftime("%Y-%m-%d %H:%M %Z", time.localtime(at))


def verdict_sentence(report: CampaignReport) -> str:
    """The result of the campaign, in one sentence."""
    before, best = report.before, report.best
    if before is None or best is None or before.value is None:
        return "No version was validated, so the best version is unknown."
    if best.version == before.version:
        return f"No version measured better than {before.version}, the first one."
    was, now = format_measure(before.value, report.kind), format_measure(best.value, report.kind)
    of = "comparisons with version 0" if report.kind is CampaignMeasure.WINS else "attempts"
    return f"{measure_name(report.kind).capitalize()} {was} → {now} of {best.attempts} {of}, by {best.version}."


def service_sentence(report: CampaignReport) -> str:
    """The version in service."""
    if report.served is not None and report.live not in (None, report.served):
        return f"{report.served} at the end, {report.live} now"
    return report.live or NONE


def computed_on_text(copy: str | None) -> str:
    """What the trainer computed on; empty: the base itself."""
    return f"a copy of the base in {copy}; versions are served on the base itself" if copy else ""


def judging_cost_text(spent: CampaignJudgingCost) -> str:
    """The cost of judging."""
    if not spent.judgings and not spent.in_vain:
        return "no judging"
    if not spent.tokens_in and not spent.tokens_out:
        return f"{format_count(spent.judgings)} judgings, none by a model"
    parts = [f"{format_count(spent.judgings)} judgings", f"{format_count(spent.tokens_in)} tokens sent"]
    parts += [f"{format_count(spent.tokens_out)} tokens received"]
    if spent.usd or not spent.unpriced:
        parts += [f"${spent.usd:,.4f}" if spent.usd < 1 else f"${spent.usd:,.2f}"]
    parts += [f"{format_count(spent.unpriced)} without a known price"] if spent.unpriced else []
    parts += [f"{format_count(spent.in_vain)} requests failed"] if spent.in_vain else []
    return ", ".join(parts)


def withheld_text(kept: WithheldTools) -> str:
    """The tools that attempts were not offered, and how many calls of them were refused; empty: there are none."""
    parts = [f"not offered, because they may write: {', '.join(kept.tools)}"] if kept.tools else []
    calls = "1 call of such a tool was" if kept.refused_calls == 1 else f"{format_count(kept.refused_calls)} calls were"
    parts += [f"{calls} refused"] if kept.refused_calls else []
    return "; ".join(parts)


def draws_sentence(drawn: CampaignDraws) -> str:
    """How scenarios were drawn, and how many attempts taught nothing, before and after groups were replaced."""
    explored = f", {drawn.explore_share:.0%} of them drawn uniformly" if drawn.choose == "learnability" else ""
    refill = f"; up to {drawn.refill:.0%} more to replace equal groups" if drawn.refill else ""
    before = f"{percent(wasted_share(drawn.begun))} of {format_count(drawn.begun.attempts)} attempts"
    after = f", {percent(wasted_share(drawn.all))} of {format_count(drawn.all.attempts)} with those of refills"
    wasted = f"In groups of equal rewards were {before}{after if drawn.refill else ''}."
    return f"Scenarios drawn by {drawn.choose}{explored}{refill}. {wasted}"


def wasted_share(groups: DrawnGroups) -> float | None:
    """The share of attempts that taught nothing; None: there are none."""
    return groups.wasted / groups.attempts if groups.attempts else None


def gates_sentence(sampled: CampaignTokens) -> str:
    """What the gates took of the sampled tokens; empty: no gate asked anything."""
    if not sampled.gates or sampled.gate_share is None:
        return ""
    total = format_count(sampled.attempts + sampled.of_gates)
    limited = next((one for one in reversed(sampled.gates) if "gate.max_share" in one.why), None)
    last = f"; the last bounded one, {limited.version}: {limited.why}" if limited is not None else ""
    return f"gates took {percent(sampled.gate_share)} of {total} sampled tokens{last}"


def goal_text(goal: GoalResult) -> str:
    """Whether a goal is met."""
    return "not measured" if goal.holds is None else "holds" if goal.holds else "does not hold"


def head_and_tail(rows: Sequence[T], head: int, tail: int) -> tuple[Sequence[T], int, Sequence[T]]:
    """The first and last rows of a long list, and how many lie between."""
    between = len(rows) - head - tail
    return (rows, 0, ()) if between <= 0 else (rows[:head], between, rows[-tail:])


DRAWN: Final = (12, 4)  # scenarios shown of a long list: the first and the last
SMALL: Final = (4.6, 2.0)  # inches, of 72 points
_MOST_BARS: Final = 50  # with more steps, one bar stands for several
_TITLES: Final = {
    "reward": "Mean reward of the steps' attempts",
    "length": "Sampled tokens an attempt",
    "turns": "Turns an attempt",
    "repetition": "Repetition",
    "tool_calls": "Tool calls an attempt",
    "seconds": "Seconds an attempt",
    "zero_variance": "Groups with equal rewards",
    "perfect": "Attempts with the highest reward",
    "judge_agreement": "Pairs that the reward orders correctly",
    "entropy": "Entropy",
    "kl_engine": "KL, engine to trainer",
    "kl_base": "KL, base to trainer",
    "clip_fraction": "Clipped tokens",
    "drift.kl_base": "Drift from the base (KL)",
    "drift.kl_parent": "Drift from the parent (KL)",
    "drift.kl_day": "Drift from a day ago (KL)",
    "drift.kl_week": "Drift from a week ago (KL)",
    "drift.entropy": "Entropy on the drift set",
}
MOST_HEALTH: Final = 16  # charts at most: a recipe may have any number of parts


def measure_chart(report: CampaignReport) -> Chart:
    """The measure after each step and of the steps' own attempts, with target and baselines."""
    last = max([report.steps_done, *(one.step for one in report.validations)], default=0)
    validated = _series("validation", report.validations, last)
    own = _series("the steps' own attempts", report.own, last)
    if report.validations:  # two sets of intervals would overlap
        own = replace(own, low=(), high=())
    series = [one for one in (validated, own) if any(value is not None for value in one.values)]
    levels = [ReferenceLine("target", report.target)] if report.target is not None else []
    newest = {one.version: one.value for one in report.baselines}  # a baseline may be measured again, by another judge
    levels += [ReferenceLine(name, value) for name, value in newest.items() if value is not None]
    title = f"{measure_name(report.kind).capitalize()} after each step"
    places = tuple(str(step) for step in range(last + 1)) if series else ()
    marks = tuple(one for one in _marks(report) if one.at < len(places))
    return Chart(title, places, tuple(series), share=is_share(report.kind), levels=tuple(levels), marks=marks)


def _series(name: str, points: Sequence[MeasuredPoint], last: int) -> Series:
    at = {point.step: point for point in points}
    row = [at.get(step) for step in range(last + 1)]
    return Series(
        name,
        tuple(one.value if one else None for one in row),
        tuple(one.low if one else None for one in row),
        tuple(one.high if one else None for one in row),
    )


def _marks(report: CampaignReport) -> Iterator[EventMark]:
    for step in sorted({one.alarm.step for one in report.alarms} | {one.step for one in report.changes}):
        here = [one.alarm for one in report.alarms if one.alarm.step == step]
        words = [f"{alarm.rule} (paused)" if alarm.then == "pause" else alarm.rule for alarm in here]
        words += ["changed"] if any(one.step == step for one in report.changes) else []
        yield EventMark(", ".join(words), step)


def seconds_chart(report: CampaignReport) -> Chart:
    """The seconds of each phase; in a long campaign, means over several steps."""
    many = -(-len(report.steps) // _MOST_BARS) or 1
    folded = [report.steps[at : at + many] for at in range(0, len(report.steps), many)]
    places = tuple(f"{few[0].step}" if many == 1 else f"{few[0].step}-{few[-1].step}" for few in folded)
    series = tuple(
        Series(phase, tuple(statistics.fmean(step.seconds.get(phase, 0.0) for step in few) for few in folded))
        for phase in report.seconds
    )
    title = "Seconds of each step" if many == 1 else f"Seconds of a step, mean of {many}"
    return Chart(title, places, series, bars=True)


def health_charts(report: CampaignReport) -> list[Chart]:
    """A small chart of each health figure."""
    places = tuple(str(step.step) for step in report.steps)
    return [
        Chart(figure_title(name), places, (Series(figure_title(name), tuple(values)),), size=SMALL)
        for name, values in list(report.health.items())[:MOST_HEALTH]
    ]


def figure_title(name: str) -> str:
    """The title of a health figure."""
    return _TITLES.get(name, name.replace("part.", "Part: ", 1))


def chart_text(chart: Chart) -> str:
    """A text alternative of a chart: the first and last value of each series."""
    parts = []
    for one in chart.series:
        there = [value for value in one.values if value is not None]
        if there:
            first, last = (percent_or_number(value, share=chart.share) for value in (there[0], there[-1]))
            parts.append(f"{one.name} from {first} to {last}")
    return f"{chart.title}: {'; '.join(parts)}" if parts else chart.title
