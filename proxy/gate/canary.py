"""A version's runs beside another's: is it shown worse by any of five figures?

Owns: what a run's figures are as values in 0..1, how runs of one task are set against each other, the errors' rates
(5 % in all) that the figures share. Refuses: reading runs (`recorder.views` does), and moving an alias.

The unit is a task, not a run: inside a group that both versions ran in, the difference of the two sides' means. A group
that one version alone ran in gives one value, and is set against the next such group of the other's; a reward that
ranks a group's members among themselves says nothing there and is left out.

A version beside another, by the runs that agents made on both: a canary, or one that was promoted a while ago.

Owns: reading the two sides' runs, the rule by which a canary passes or ends, and what a row says of it. Refuses: the
test (`proxy.gate.canary`), and moving anything (`proxy.versions.promotion` does).

A canary never passes by its age: what few or no runs were compared with is as unknown as on its first day.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from recorder.registry.versions import VersionView
from recorder.stats.sequential_tests import SequentialTestResult, test_mean
from recorder.store.database import Project, Store
from recorder.views.versions.served_trajectories import list_served_trajectories


class ComparedFigure(StrEnum):
    """What of a run is compared."""

    REWARD = "reward"
    ERRORS = "errors"
    TOOL_FAILURES = "tool_failures"
    LENGTH = "length"
    LATENCY = "latency"


# How often a version that is as good may be taken for worse, over all looks: half for the reward, in all 5 %.
ALPHA: Final[Mapping[ComparedFigure, float]] = {
    figure: 0.025 if figure is ComparedFigure.REWARD else 0.025 / 4 for figure in ComparedFigure
}
# The least and the most of what is told apart, in doublings: 4 … 4,096 tokens an answer, 31 ms … 32 s a call.
TOKENS_LOG2: Final = (2.0, 12.0)
SECONDS_LOG2: Final = (-5.0, 5.0)
# Answers a quarter longer or later are no reason to keep a version out: on a scale of ten doublings.
TOLERATED: Final[Mapping[ComparedFigure, float]] = {
    ComparedFigure.LENGTH: math.log2(1.25) / 10,
    ComparedFigure.LATENCY: math.log2(1.25) / 10,
}

# A reward that is shown to be lower by less than this, of the whole range, is no reason to wait any longer.
LOSS_TOLERATED: Final = 0.05
LOST: Final = (1 + LOSS_TOLERATED) / 2  # the mean of 1 - (1 + difference) / 2 where it is lower by as much
LOST_ALPHA: Final = 0.05


@dataclass(frozen=True, slots=True)
class TrajectoryFigures:
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
class CanaryComparison:
    """What was found, by figure. `lost`: the test of the claim that its reward is worse than is tolerated."""

    doubts: Mapping[ComparedFigure, SequentialTestResult]
    lost: SequentialTestResult

    @property
    def worse_by(self) -> list[ComparedFigure]:
        """The figures by which the candidate is shown worse."""
        return [figure for figure, found in self.doubts.items() if found.shown_worse]

    @property
    def not_worse(self) -> bool:
        """Whether the candidate's reward is shown to be no worse than is tolerated: more runs would not change it."""
        return self.lost.shown_worse


def compare_trajectories(runs: Sequence[TrajectoryFigures]) -> CanaryComparison:
    """Compare the candidate's runs with the others', in the order in which their groups were decided."""
    seen = {
        figure: [(1 + difference) / 2 for difference in task_differences(runs, figure)] for figure in ComparedFigure
    }
    doubts = {
        figure: test_mean(seen[figure], at_least=null_mean(figure), alpha=ALPHA[figure]) for figure in ComparedFigure
    }
    lost = [1 - value for value in seen[ComparedFigure.REWARD]]
    return CanaryComparison(doubts, test_mean(lost, at_least=LOST, alpha=LOST_ALPHA))


def null_mean(figure: ComparedFigure) -> float:
    """The mean of (1 + difference) / 2 that a candidate has which is no worse than is tolerated."""
    return (1 - TOLERATED.get(figure, 0.0)) / 2


def task_differences(runs: Iterable[TrajectoryFigures], figure: ComparedFigure) -> list[float]:
    """The candidate's value less the other's, task by task: in -1..1, negative where the candidate did worse."""
    found: list[float] = []
    alone: tuple[list[float], list[float]] = ([], [])
    for members in _by_group(runs).values():
        old, new = (_values(members, figure, candidate=side) for side in (False, True))
        if old and new:
            found.append(_mean(new) - _mean(old))
        elif (old or new) and not (figure is ComparedFigure.REWARD and any(run.ranked for run in members)):
            alone[bool(new)].append(_mean(old or new))
            if all(alone):
                found.append(alone[1].pop(0) - alone[0].pop(0))
    return found


def _by_group(runs: Iterable[TrajectoryFigures]) -> Mapping[str, list[TrajectoryFigures]]:
    groups: defaultdict[str, list[TrajectoryFigures]] = defaultdict(list)
    for run in runs:
        groups[run.group_id].append(run)
    return groups


def _values(runs: Iterable[TrajectoryFigures], figure: ComparedFigure, *, candidate: bool) -> list[float]:
    found = [figure_value(run, figure) for run in runs if run.candidate is candidate]
    return [v for v in found if v is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def figure_value(run: TrajectoryFigures, figure: ComparedFigure) -> float | None:
    """A run's figure in 0..1, where more is better; what lies beyond counts as the bound.

    Each run has its value by itself: sides of different size then still have the same mean where they are alike.
    """
    match figure:
        case ComparedFigure.REWARD:
            return None if run.reward is None else min(max(run.reward, 0.0), 1.0)
        case ComparedFigure.ERRORS:
            return 0.0 if run.errored else 1.0
        case ComparedFigure.TOOL_FAILURES:
            return None if run.tool_failures is None else 1.0 - run.tool_failures
        case ComparedFigure.LENGTH:
            return None if run.answer_tokens is None else _shortness(run.answer_tokens, TOKENS_LOG2)
        case ComparedFigure.LATENCY:
            return None if run.call_s is None else _shortness(run.call_s, SECONDS_LOG2)


def _shortness(amount: float, log2_bounds: tuple[float, float]) -> float:
    """1 at the lower bound, 0 at the upper one, even in doublings."""
    low, high = log2_bounds
    doublings = math.log2(amount) if amount > 0 else low
    return 1.0 - (min(max(doublings, low), high) - low) / (high - low)


Outcome = Literal["worse", "not_worse", "enough_tasks", "late", "open"]


async def compare_versions(store: Store, version: VersionView, other_id: str) -> CanaryComparison:
    """Compare a version's runs with another's, since it is in the state that it is in."""
    found = await list_served_trajectories(Project(store, version.project_id), {version.id, other_id}, version.state_at)
    runs = [
        TrajectoryFigures(
            run.group_id,
            run.version_id == version.id,
            reward=run.reward,
            ranked=run.ranked,
            errored=run.errored,
            tool_failures=run.tool_failures,
            answer_tokens=run.answer_tokens,
            call_s=run.call_s,
        )
        for run in found
    ]
    return compare_trajectories(runs)


def canary_outcome(found: CanaryComparison, waited_s: float, *, tasks: int, max_age_s: float) -> Outcome:
    """What becomes of a canary that was compared so far, `waited_s` after it began.

    It passes once its reward is shown to be no worse than is tolerated, or was compared on so many `tasks` without any
    figure being shown worse.
    """
    if found.worse_by:
        return "worse"
    if found.not_worse:
        return "not_worse"
    if found.doubts[ComparedFigure.REWARD].samples >= tasks:
        return "enough_tasks"
    return "late" if waited_s >= max_age_s else "open"


def ledger_figures(found: CanaryComparison) -> dict[str, Any]:
    """What a row says: by what it is worse, if by anything, and what was seen of that and of the reward."""
    told = {"worse_by": sorted(map(str, found.worse_by))} if found.worse_by else {}
    return told | {str(figure): _seen(found, figure) for figure in _told(found)}


def _told(found: CanaryComparison) -> Iterable[ComparedFigure]:
    return [
        f for f in ComparedFigure if f in found.worse_by or (f is ComparedFigure.REWARD and found.doubts[f].samples)
    ]


def _seen(found: CanaryComparison, figure: ComparedFigure) -> dict[str, float]:
    doubt = found.doubts[figure]
    return {"value": doubt.mean, "tasks": doubt.samples, "capital": doubt.capital}
