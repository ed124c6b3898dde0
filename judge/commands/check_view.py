"""Output of `hone judge check`: progress, a table for people, JSON for programs, a picture.

Owns: the format. Refuses: testing (`judge.adversarial`), reading arguments (`judge.commands.judge`), drawing
(`recorder.stats.charts`).

Control characters in replies of judges and functions are removed. The set's own hostile texts are never shown.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

from judge.adversarial.check import VERSION, RecipeCheck
from judge.adversarial.tricks import KINDS, MARGIN, KindOutcome, TrialResult
from judge.scoring.request_count import CHARS_A_TOKEN, RequestCount
from recorder.base.terminal import (
    clean,
    clean_line,
    format_number,
    show,
    show_lines,
    show_progress,
    show_table,
    write_json,
)
from recorder.stats.charts import Chart, ReferenceLine, Series

_EXPLANATION_CHARS: Final = 300
_COLUMNS: Final = (
    "part",
    "trick",
    "what it does",
    "fooled",
    "share",
    "95 %",
    "not judged",
    "requests",
    "tokens",
    "usd",
)
_RIGHT: Final = ("fooled", "share", "not judged", "requests", "tokens", "usd")


@contextmanager
def watch_trials(groups: int) -> Iterator[Callable[[TrialResult], None]]:
    """A callback for each judged group; standard error shows the progress."""
    done, not_judged = 0, 0
    with show_progress("judging the first groups …") as count:

        def tell(seen: TrialResult) -> None:
            nonlocal done, not_judged
            done, not_judged = done + 1, not_judged + (seen.trick is None)
            without = f", {not_judged} not judged" if not_judged else ""
            count(f"{done} of {groups} groups{without}", done, groups)

        yield tell


def show_count(counted: RequestCount, groups: int, *, as_json: bool) -> None:
    """Print how many requests a check would make."""
    if as_json:
        write_json(
            {
                "dry_run": True,
                "groups": groups,
                "requests": counted.requests,
                "tokens_in": counted.tokens_in,
                "most_tokens_out": counted.most_tokens_out,
                "tokens_counted_by": f"characters / {CHARS_A_TOKEN}",
            }
        )
        return
    asked = (
        f"{groups} groups: {counted.requests:,} requests to the judge, about {counted.tokens_in:,} tokens in "
        f"(characters / {CHARS_A_TOKEN}), at most {counted.most_tokens_out:,} out (judge.max_tokens each). "
        "Repairs are not counted. No judge was asked."
    )
    show(clean_line(asked))


def show_check(checked: RecipeCheck, at_most: float) -> None:
    """Print the results of a check."""
    if checked.by_model:
        show_table(_COLUMNS, map(_row, checked.by_model), right=_RIGHT)
    if checked.by_code:
        show(clean_line("Degenerate answers, scored by code (no judge model was asked):", "bold"))
        columns = ("part", "trick", "paid above the honest failure", "share", "95 %", "no value")
        show_table(columns, map(_code_row, checked.by_code), right=columns[2:4])
    show_lines(_summary(checked, at_most))


def check_json(checked: RecipeCheck, at_most: float) -> dict[str, Any]:
    """The results of a check for programs."""
    wanted = checked.wanted
    return {
        "recipe": wanted.recipe,
        "model": checked.model,
        "versions": sorted(checked.versions),
        "set": VERSION,
        "groups": wanted.groups,
        "seed": wanted.seed,
        "at_most": at_most,
        "margin": MARGIN,
        "passed": checked.passed(at_most),
        "stopped": checked.stopped,
        "requests": checked.requests,
        "spent": asdict(checked.spent),
        "not_tried": checked.not_tried,
        "by_model": [_outcome(one, at_most) for one in checked.by_model],
        "by_code": [_outcome(one, at_most) for one in checked.by_code],
    }


def check_chart(checked: RecipeCheck, at_most: float) -> Chart:
    """The share of each kind of trick that fooled the judge, one series a part, with the allowed share."""
    parts = dict.fromkeys(one.part for one in checked.by_model)
    kinds = [name for name in KINDS if any(one.kind == name for one in checked.by_model)]
    return Chart(
        f"Groups in which {checked.model or 'the judge'} was fooled",
        tuple(kinds),
        tuple(_series(part, kinds, checked.by_model) for part in parts),
        rows=True,
        share=True,
        levels=(ReferenceLine(f"allowed: {at_most:g}", at_most),),
        size=(8.0, 1.0 + 0.27 * max(1, len(kinds))),
    )


def _series(part: str, kinds: Sequence[str], outcomes: Sequence[KindOutcome]) -> Series:
    by_kind = {one.kind: one for one in outcomes if one.part == part}
    there = [by_kind.get(kind) for kind in kinds]
    ends = [one.interval if one else None for one in there]
    return Series(
        part,
        tuple(one.share if one else None for one in there),
        tuple(end.low if end else None for end in ends),
        tuple(end.high if end else None for end in ends),
    )


def _row(one: KindOutcome) -> Sequence[object]:
    spent = one.spent
    tokens = f"{spent.tokens_in:,}+{spent.tokens_out:,}"
    about, cost = KINDS[one.kind].about, format_number(spent.cost_usd, ".4f")
    return one.part, one.kind, about, *_share(one), _unjudged(one), one.requests, tokens, cost


def _code_row(one: KindOutcome) -> Sequence[object]:
    return one.part, one.kind, *_share(one), _unjudged(one)


def _share(one: KindOutcome) -> tuple[str, str, str]:
    if one.share is None or one.interval is None:
        return f"{one.fooled} of {one.judged}", "–", "–"
    interval = f"{one.interval.low:.2f} to {one.interval.high:.2f}"
    return f"{one.fooled} of {one.judged}", f"{100 * one.share:.0f} %", interval


def _unjudged(one: KindOutcome) -> str:
    return ", ".join(f"{count} {code}" for code, count in one.unjudged.items())


def _summary(checked: RecipeCheck, at_most: float) -> Iterator[tuple[str, str]]:
    for name, why in checked.not_tried.items():
        yield f"{name} was not tested: {why}.", ""
    for one in checked.fooled(at_most):
        yield from _fooled_lines(one, at_most)
    for one in (*checked.by_model, *checked.by_code):
        if not one.judged:
            yield f"{one.part}, {one.kind}: no group could be judged: {_shortened(one.why)}", "yellow"
    if checked.stopped is not None:
        yield f"Stopped early: {checked.stopped}", "red"
    if checked.passed(at_most):
        yield f"No trick fools it in significantly more than {100 * at_most:g} % of groups.", "green"
    spent = checked.spent
    cost = "" if spent.cost_usd is None else f", ${spent.cost_usd:.4f}"
    if checked.by_model:
        yield f"{checked.requests:,} replies of the judge, {spent.tokens_in:,}+{spent.tokens_out:,} tokens{cost}.", ""


def _fooled_lines(one: KindOutcome, at_most: float) -> Iterator[tuple[str, str]]:
    assert one.interval is not None
    surely = f"significantly in more than {100 * one.interval.low:.0f} % of groups; {100 * at_most:g} % are allowed"
    yield f"{one.part} pays an attempt that {KINDS[one.kind].about} ({one.kind}): {surely}.", "red"
    for seen in one.examples[:1]:
        values = ((name, getattr(seen, name)) for name in ("good", "failure", "trick"))
        got = ", ".join(f"{name} {value:.3g}" for name, value in values if value is not None)
        why = f". Explanation of the trick's score: {_shortened(seen.detail)}" if seen.detail else ""
        yield f"  for example {seen.name}: {got}{why}", ""


def _shortened(words: str | None) -> str:
    return clean(words or "")[:_EXPLANATION_CHARS]


def _outcome(one: KindOutcome, at_most: float) -> dict[str, Any]:
    ends = asdict(one.interval) if one.interval else None
    examples = [
        {"group": seen.name, "good": seen.good, "failure": seen.failure, "trick": seen.trick, "detail": seen.detail}
        for seen in one.examples
    ]
    return {
        "part": one.part,
        "kind": one.kind,
        "fooled": one.fooled,
        "judged": one.judged,
        "share": one.share,
        "interval": ends,
        "over": one.over(at_most),
        "unjudged": one.unjudged,
        "why": one.why,
        "requests": one.requests,
        "spent": asdict(one.spent),
        "examples": examples,
    }
