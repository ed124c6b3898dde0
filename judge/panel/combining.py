"""Several replies about one group made into one verdict for each run, and how far they agree.

Owns: the mean, the median, and agreement. Pure. Refuses: asking (`judge.panel.asking`), and what follows from
disagreement (`judge.rewards.by_ruler`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Final

from judge.llm import subscores as parts
from judge.llm.reader import Sub, Verdict
from judge.panel_settings import Combine, SubscoreSettings
from recorder.agreement import compare

Verdicts = Mapping[str, Verdict]  # by trajectory id
Weighed = Sequence[tuple[float, float]]  # weight and value
DIGITS: Final = 12  # so that equal replies in another order make equal scores


def mean(weighed: Weighed) -> float:
    """The mean by weight."""
    heaviest = max(weight for weight, _ in weighed)
    shares = [(weight / heaviest, value) for weight, value in weighed]  # so no sum of weights overflows
    found = math.fsum(share * value for share, value in shares) / math.fsum(share for share, _ in shares)
    values = [value for _, value in weighed]
    return min(max(round(found, DIGITS), min(values)), max(values))


def median(weighed: Weighed) -> float:
    """The value with half of the weight on either side; between two, where these have half each."""
    ordered = sorted((value, weight) for weight, value in weighed)
    half = math.fsum(weight for _, weight in ordered) / 2
    below = 0.0
    for place, (value, weight) in enumerate(ordered):
        below += weight
        if math.isclose(below, half) and place + 1 < len(ordered):
            return (value + ordered[place + 1][0]) / 2
        if below >= half:
            return value
    return ordered[-1][0]


COMBINE: Final[Mapping[Combine, Callable[[Weighed], float]]] = {"mean": mean, "median": median}


def combined(
    replies: Sequence[tuple[float, Verdicts]], how: Combine, subscores: Sequence[SubscoreSettings] = ()
) -> dict[str, Verdict]:
    """One verdict for each run that all of the replies (weight, verdicts) have; there is at least one reply.

    Sub-scores are combined each by itself, and make the score. The words are those of the reply that came nearest.
    """
    if len(replies) == 1:
        return dict(replies[0][1])
    runs = [run for run in replies[0][1] if all(run in verdicts for _, verdicts in replies)]
    return {run: _one([(weight, verdicts[run]) for weight, verdicts in replies], how, subscores) for run in runs}


def _one(said: Sequence[tuple[float, Verdict]], how: Combine, subscores: Sequence[SubscoreSettings]) -> Verdict:
    subs = {sub.name: _sub([(weight, one.subs[sub.name]) for weight, one in said], how) for sub in subscores}
    if subs:
        score = parts.mean(subscores, {name: sub.score for name, sub in subs.items()})
    else:
        score = COMBINE[how]([(weight, one.score) for weight, one in said])
    nearest = min((one for _, one in said), key=lambda one: abs(one.score - score))
    scores = [one.score for _, one in said]
    told = f"{nearest.explanation} [{len(said)} replies: {min(scores):.2f} to {max(scores):.2f}]".strip()
    return Verdict(score, told, subs)


def _sub(said: Sequence[tuple[float, Sub]], how: Combine) -> Sub:
    score = COMBINE[how]([(weight, sub.score) for weight, sub in said])
    return Sub(score, min((sub for _, sub in said), key=lambda sub: abs(sub.score - score)).reason)


def agreement(replies: Sequence[Verdicts]) -> float | None:
    """The mean of Kendall's tau-b over all pairs of replies, -1 to 1; None: no two of them both tell runs apart.

    Runs that a reply ties are in its tau as ties; a reply that ties all of them has no order, and no pair counts it.
    """
    scores = [{run: verdict.score for run, verdict in verdicts.items()} for verdicts in replies]
    taus = [tau for one, other in combinations(scores, 2) if (tau := compare(one, other).tau) is not None]
    return statistics.fmean(taus) if taus else None
