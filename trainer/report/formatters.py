"""Format a report's figures, the same for the terminal and the page. Pure.

Owns: numbers, shares, durations, money, and the sentences with them. Refuses: layout and escaping.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Final, TypeVar

from recorder.base.terminal import NONE, format_number, percent
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.views.campaigns.events import CampaignMeasure
from trainer.report.shapes import CampaignReport, GoalResult, MeasuredPoint, WithheldTools

_UNITS: Final = ((86400.0, "d"), (3600.0, "h"), (60.0, "min"))
_NAMES: Final = {CampaignMeasure.SUCCESS: "success", CampaignMeasure.WINS: "win rate", CampaignMeasure.REWARD: "reward"}

T = TypeVar("T")


def measure_name(kind: CampaignMeasure) -> str:
    """What a campaign is measured by."""
    return _NAMES.get(kind, "measure")


def is_share(kind: CampaignMeasure) -> bool:
    """Whether it lies between 0 and 1, and reads in per cent."""
    return kind in (CampaignMeasure.SUCCESS, CampaignMeasure.WINS)


def percent_or_number(value: float | None, *, share: bool) -> str:
    """A share in per cent, another value to three places that count."""
    return percent(value) if share else format_number(value)


def format_measure(value: float | None, kind: CampaignMeasure) -> str:
    """A value of the report's kind."""
    return percent_or_number(value, share=is_share(kind))


def format_interval(point: MeasuredPoint, kind: CampaignMeasure) -> str:
    """Its 95 % interval; a dash where there is none."""
    if point.low is None or point.high is None:
        return NONE
    return f"{format_measure(point.low, kind)} to {format_measure(point.high, kind)}"


def format_adversarial(point: MeasuredPoint, kind: CampaignMeasure) -> str:
    """Success at scenarios that tempt to cheat."""
    if point.adversarial is None:
        return NONE
    return f"{format_measure(point.adversarial, kind)} of {point.adversarial_attempts}"


def format_count(value: float) -> str:
    """How many."""
    return f"{value:,.0f}"


def format_loose_number(value: object) -> str:
    """A number that somebody else wrote down, if it is one."""
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
    """What the campaign came to, in one sentence."""
    before, best = report.before, report.best
    if before is None or best is None or before.value is None:
        return "No version was validated, so the best version is unknown."
    if best.version == before.version:
        return f"No version measured better than {before.version}, which it began with."
    was, now = format_measure(before.value, report.kind), format_measure(best.value, report.kind)
    of = "comparisons with version 0" if report.kind is CampaignMeasure.WINS else "attempts"
    return f"{measure_name(report.kind).capitalize()} {was} → {now} of {best.attempts} {of}, by {best.version}."


def service_sentence(report: CampaignReport) -> str:
    """What is in service."""
    if report.served is not None and report.live not in (None, report.served):
        return f"{report.served} at its end, {report.live} now"
    return report.live or NONE


def judging_cost_text(spent: CampaignJudgingCost) -> str:
    """What judging cost."""
    if not spent.judgings and not spent.in_vain:
        return "no judging"
    if not spent.tokens_in and not spent.tokens_out:
        return f"{format_count(spent.judgings)} judgings, none by a model"
    told = [f"{format_count(spent.judgings)} judgings", f"{format_count(spent.tokens_in)} tokens sent"]
    told += [f"{format_count(spent.tokens_out)} tokens answered"]
    if spent.usd or not spent.unpriced:
        told += [f"${spent.usd:,.4f}" if spent.usd < 1 else f"${spent.usd:,.2f}"]
    told += [f"{format_count(spent.unpriced)} without a known price"] if spent.unpriced else []
    told += [f"{format_count(spent.in_vain)} requests failed"] if spent.in_vain else []
    return ", ".join(told)


def withheld_text(kept: WithheldTools) -> str:
    """Tools that attempts were not offered, and what became of calls of such; nothing where there were none."""
    told = [f"not offered, as they may write: {', '.join(kept.tools)}"] if kept.tools else []
    calls = "1 call of such a tool was" if kept.refused_calls == 1 else f"{format_count(kept.refused_calls)} calls were"
    told += [f"{calls} refused"] if kept.refused_calls else []
    return "; ".join(told)


def goal_text(goal: GoalResult) -> str:
    """Whether a goal is met."""
    return "not measured" if goal.holds is None else "holds" if goal.holds else "does not hold"


def head_and_tail(rows: Sequence[T], head: int, tail: int) -> tuple[Sequence[T], int, Sequence[T]]:
    """A long list's beginning and end, and how many lie between."""
    between = len(rows) - head - tail
    return (rows, 0, ()) if between <= 0 else (rows[:head], between, rows[-tail:])
