"""The output of an evaluation: a table for people, JSON for programs, a chart.

Refuses: the figures (`trainer.evaluation.figures`) and command-line arguments (`trainer.commands`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict
from typing import Any, Final

from recorder.base.terminal import NONE, echo, format_number, show_lines, show_table
from recorder.stats.charts import Chart, ReferenceLine, Series
from recorder.stats.significance_tests import PairedEstimate
from trainer.evaluation.figures import REWARD, SUCCESS, WIN_RATE, VersionFigures
from trainer.evaluation.runner import EvaluationResult
from trainer.measures.campaign_measure import TIE

_LABELS: Final = {SUCCESS: "success", WIN_RATE: "wins", REWARD: "reward"}
_USAGE: Final = {"tokens_in": "tokens in", "tokens_out": "tokens out", "usd": "usd", "seconds": "seconds"}
_FORMS: Final = {"tokens_in": ",.0f", "tokens_out": ",.0f", "usd": ".5f", "seconds": ".1f"}
_WHY_CHARS: Final = 300
_SIGNS: Final = {1: "better", -1: "worse", 0: "no significant difference"}


def show_evaluation(found: EvaluationResult) -> None:
    """Print the result."""
    names = [name for name in _LABELS if any(name in one.measures for one in found.versions)]
    first = found.versions[0]
    heads = ["version", "is"]
    for name in names:
        heads += [_LABELS[name]] if len(found.versions) == 1 else [_LABELS[name], f"difference from {first.name}", ""]
    show_table(heads, [_measure_row(one, names, alone=len(found.versions) == 1) for one in found.versions])
    columns = ("version", "attempts", "errored", *_USAGE.values())
    echo()
    show_table(columns, map(_usage_row, found.versions), right=columns[1:])
    echo()
    show_lines(_notes(found, names))


def _measure_row(one: VersionFigures, names: Sequence[str], *, alone: bool) -> list[str]:
    cells = [one.name, one.model]
    for name in names:
        cells.append(_estimate(one.measures.get(name), share=name != REWARD))
        if not alone:
            more = one.differences.get(name)
            cells += [_estimate(more, share=name != REWARD, signed=True), _SIGNS[more.sign] if more else ""]
    return cells


def _estimate(found: PairedEstimate | None, *, share: bool, signed: bool = False) -> str:
    if found is None:
        return NONE
    form = f"{'+' if signed else ''}{'.1f' if share else '.3f'}"
    value, ends = found.value, found.interval
    scale = 100 if share else 1
    unit = (" points" if signed else " %") if share else ""
    within = f" ({scale * ends.low:{form}} to {scale * ends.high:{form}})" if ends else ""
    return f"{scale * value:{form}}{unit}{within}"


def _usage_row(one: VersionFigures) -> list[str]:
    each = ((getattr(one.usage, name), _FORMS[name]) for name in _USAGE)
    return [
        one.name,
        f"{one.attempts:,}",
        f"{one.errored:,}",
        *(format_number(value, form) for value, form in each),
    ]


def _notes(found: EvaluationResult, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    many = f"{found.scenarios} scenarios, {found.attempts} attempts of each version at each"
    seeds = f", for each of {found.seeds} seeds" if found.seeds > 1 else ""
    yield f"{many}{seeds}. Intervals are 95 %, by bootstrap over scenarios.", ""
    yield "Tokens, dollars and seconds are means over attempts.", ""
    if WIN_RATE in names:
        yield f"Wins are against {found.versions[0].name} in one blind group; the difference is wins minus losses.", ""
    if found.adversarial_scenarios:
        count, measures = found.adversarial_scenarios, _adversarial_measures(found)
        yield f"{count} adversarial scenarios are excluded from these figures: {measures}.", ""
    if found.failed:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(found.failed.items()))
        why = f" The first: {found.first_error[:_WHY_CHARS]}" if found.first_error else ""
        yield f"{sum(found.failed.values())} attempts failed ({reasons}).{why}", "yellow"
    if found.unscored:
        yield f"{found.unscored} of {found.groups} groups have no score and are not counted.", "yellow"
    judged = found.judging
    if judged is not None:
        tokens = f"{judged.tokens_in:,} tokens in, {judged.tokens_out:,} out"
        price = "no price known" if judged.unpriced and not judged.usd else f"{judged.usd:.4f} USD"
        yield f"Judging: {judged.judgings} groups, {tokens}, {price}.", ""


def _adversarial_measures(found: EvaluationResult) -> str:
    def of(one: VersionFigures) -> str:
        each = (f"{_LABELS[name]} {format_number(figure.value)}" for name, figure in one.adversarial_measures.items())
        return f"{one.name} {', '.join(each) or NONE}"

    return "; ".join(map(of, found.versions))


def evaluation_json(found: EvaluationResult) -> dict[str, Any]:
    """The result as JSON."""
    return {
        "id": found.id,
        "alias": found.alias,
        "scenarios": found.scenarios,
        "adversarial_scenarios": found.adversarial_scenarios,
        "attempts": found.attempts,
        "seeds": found.seeds,
        "against": found.versions[0].name,
        "versions": [
            {
                "name": one.name,
                "model": one.model,
                "attempts": one.attempts,
                "errored": one.errored,
                "measures": _plain(one.measures),
                "differences": _plain(one.differences),
                "adversarial_measures": _plain(one.adversarial_measures),
                "usage": asdict(one.usage),
            }
            for one in found.versions
        ],
        "groups": found.groups,
        "unscored": found.unscored,
        "failed": dict(found.failed),
        "first_error": found.first_error,
        "judging": asdict(found.judging) if found.judging is not None else None,
        "seconds": found.seconds,
    }


def _plain(figures: Mapping[str, PairedEstimate]) -> dict[str, Any]:
    return {name: asdict(figure) for name, figure in figures.items()}


def evaluation_chart(found: EvaluationResult) -> Chart:
    """Each version's first measure, with its interval: success, else wins, else reward."""
    name = next((name for name in _LABELS if any(name in one.measures for one in found.versions)), SUCCESS)
    each = [one.measures.get(name) for one in found.versions]
    ends = [figure.interval if figure else None for figure in each]
    series = Series(
        _LABELS[name],
        tuple(figure.value if figure else None for figure in each),
        tuple(end.low if end else None for end in ends),
        tuple(end.high if end else None for end in ends),
    )
    first, names = found.versions[0], tuple(one.name for one in found.versions)
    levels = (ReferenceLine(f"as good as {first.name}", TIE),) if name == WIN_RATE else ()
    title = {SUCCESS: "Share of successes", WIN_RATE: f"Share of comparisons with {first.name} won", REWARD: "Reward"}
    size = (8.0, 1.0 + 0.3 * len(names))
    return Chart(title[name], names, (series,), rows=True, share=name != REWARD, levels=levels, size=size)
