"""A version's runs beside another's: is it shown worse by any of five figures?

Owns: what a run's figures are as values in 0..1, how runs of one task are set against each other, the errors' rates
(5 % in all) that the figures share. Refuses: reading runs (`recorder.reading` does), and moving an alias.

The unit is a task, not a run: inside a group that both versions ran in, the difference of the two sides' means. A group
that one version alone ran in gives one value, and is set against the next such group of the other's; a reward that
ranks a group's members among themselves says nothing there and is left out.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from proxy.gate.betting import Doubt, doubt


class Figure(StrEnum):
    """What of a run is compared."""

    REWARD = "reward"
    ERRORS = "errors"
    TOOL_FAILURES = "tool_failures"
    LENGTH = "length"
    LATENCY = "latency"


# How often a version that is as good may be taken for worse, over all looks: half for the reward, in all 5 %.
ALPHA: Final[Mapping[Figure, float]] = {figure: 0.025 if figure is Figure.REWARD else 0.025 / 4 for figure in Figure}
# The least and the most of what is told apart, in doublings: 4 … 4,096 tokens an answer, 31 ms … 32 s a call.
TOKENS_LOG2: Final = (2.0, 12.0)
SECONDS_LOG2: Final = (-5.0, 5.0)
# Answers a quarter longer or later are no reason to keep a version out: on a scale of ten doublings.
TOLERATED: Final[Mapping[Figure, float]] = {
    Figure.LENGTH: math.log2(1.25) / 10,
    Figure.LATENCY: math.log2(1.25) / 10,
}

# A reward that is shown to be lower by less than this, of the whole range, is no reason to wait any longer.
LOSS_TOLERATED: Final = 0.05
LOST: Final = (1 + LOSS_TOLERATED) / 2  # the mean of 1 - (1 + difference) / 2 where it is lower by as much
LOST_ALPHA: Final = 0.05


@dataclass(frozen=True, slots=True)
class Run:
    """One run that ended. None: the figure could not be had.

    `ranked`: its reward says how it did among its group alone. `tool_failures`: share of its tool calls that failed;
    `answer_tokens`, `call_s`: means over its calls.
    """

    group_id: str
    candidate: bool
    reward: float | None = None
    ranked: bool = False
    errored: bool = False
    tool_failures: float | None = None
    answer_tokens: float | None = None
    call_s: float | None = None


@dataclass(frozen=True, slots=True)
class Comparison:
    """What was found, by figure. `lost`: the test of the claim that its reward is worse than is tolerated."""

    doubts: Mapping[Figure, Doubt]
    lost: Doubt

    @property
    def worse_by(self) -> list[Figure]:
        """The figures by which the candidate is shown worse."""
        return [figure for figure, found in self.doubts.items() if found.shown_worse]

    @property
    def not_worse(self) -> bool:
        """Whether the candidate's reward is shown to be no worse than is tolerated: more runs would not change it."""
        return self.lost.shown_worse


def compare(runs: Sequence[Run]) -> Comparison:
    """Compare the candidate's runs with the others', in the order in which their groups were decided."""
    seen = {figure: [(1 + difference) / 2 for difference in differences(runs, figure)] for figure in Figure}
    doubts = {figure: doubt(seen[figure], at_least=claim(figure), alpha=ALPHA[figure]) for figure in Figure}
    lost = [1 - value for value in seen[Figure.REWARD]]
    return Comparison(doubts, doubt(lost, at_least=LOST, alpha=LOST_ALPHA))


def claim(figure: Figure) -> float:
    """The mean of (1 + difference) / 2 that a candidate has which is no worse than is tolerated."""
    return (1 - TOLERATED.get(figure, 0.0)) / 2


def differences(runs: Iterable[Run], figure: Figure) -> list[float]:
    """The candidate's value less the other's, task by task: in -1..1, negative where the candidate did worse."""
    found: list[float] = []
    alone: tuple[list[float], list[float]] = ([], [])
    for members in _by_group(runs).values():
        old, new = (_values(members, figure, candidate=side) for side in (False, True))
        if old and new:
            found.append(_mean(new) - _mean(old))
        elif (old or new) and not (figure is Figure.REWARD and any(run.ranked for run in members)):
            alone[bool(new)].append(_mean(old or new))
            if all(alone):
                found.append(alone[1].pop(0) - alone[0].pop(0))
    return found


def _by_group(runs: Iterable[Run]) -> Mapping[str, list[Run]]:
    groups: defaultdict[str, list[Run]] = defaultdict(list)
    for run in runs:
        groups[run.group_id].append(run)
    return groups


def _values(runs: Iterable[Run], figure: Figure, *, candidate: bool) -> list[float]:
    found = [value(run, figure) for run in runs if run.candidate is candidate]
    return [v for v in found if v is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def value(run: Run, figure: Figure) -> float | None:
    """A run's figure in 0..1, where more is better; what lies beyond counts as the bound.

    Each run has its value by itself: sides of different size then still have the same mean where they are alike.
    """
    match figure:
        case Figure.REWARD:
            return None if run.reward is None else min(max(run.reward, 0.0), 1.0)
        case Figure.ERRORS:
            return 0.0 if run.errored else 1.0
        case Figure.TOOL_FAILURES:
            return None if run.tool_failures is None else 1.0 - run.tool_failures
        case Figure.LENGTH:
            return None if run.answer_tokens is None else _shortness(run.answer_tokens, TOKENS_LOG2)
        case Figure.LATENCY:
            return None if run.call_s is None else _shortness(run.call_s, SECONDS_LOG2)


def _shortness(amount: float, log2_bounds: tuple[float, float]) -> float:
    """1 at the lower bound, 0 at the upper one, even in doublings."""
    low, high = log2_bounds
    doublings = math.log2(amount) if amount > 0 else low
    return 1.0 - (min(max(doublings, low), high) - low) / (high - low)
