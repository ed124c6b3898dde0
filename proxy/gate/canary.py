"""A version compared with another by agents' trajectories: a canary, or a version that was promoted a while ago.

Owns: a trajectory's figures as values in 0..1, pairing of trajectories of one task, the tests and their error rates (5
% in all), the rule for the end of a canary, and what the ledger records. Refuses: reading trajectories
(`recorder.views`), and moving an alias (`proxy.versions.promotion`).

The unit is a task, not a trajectory: inside a group that both versions served, the value is the difference of the two
arms' means. A group that only one version served gives one value, which is compared with the next such group of the
other version; a reward that ranks the members of a group carries no information there and is skipped.

A canary never passes by its age alone: without compared trajectories, nothing is known about it.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final, Literal

from recorder.registry.versions import VersionView
from recorder.stats.significance_tests import SequentialTestResult, test_mean
from recorder.store.database import Project, Store
from recorder.views.versions.served_trajectories import list_served_trajectories


class ComparedFigure(StrEnum):
    """The figures of a trajectory that are compared."""

    REWARD = "reward"
    ERRORS = "errors"
    TOOL_FAILURES = "tool_failures"
    LENGTH = "length"
    LATENCY = "latency"


# False alarm rate over all looks: half for the reward, 5 % in all.
ALPHA: Final[Mapping[ComparedFigure, float]] = {
    figure: 0.025 if figure is ComparedFigure.REWARD else 0.025 / 4 for figure in ComparedFigure
}
# The range that is resolved, in doublings: 4 … 4,096 tokens per answer, 31 ms … 32 s per call.
TOKENS_LOG2: Final = (2.0, 12.0)
SECONDS_LOG2: Final = (-5.0, 5.0)
_DOUBLINGS: Final = 10  # of both ranges
# Answers that are a quarter longer or slower do not reject a version.
TOLERATED_TIMES: Final = 1.25
TOLERATED: Final[Mapping[ComparedFigure, float]] = {
    ComparedFigure.LENGTH: math.log2(TOLERATED_TIMES) / _DOUBLINGS,
    ComparedFigure.LATENCY: math.log2(TOLERATED_TIMES) / _DOUBLINGS,
}

# A loss of reward of at most this share of the range is tolerated: a version shown to lose less passes.
LOSS_TOLERATED: Final = 0.05
LOST: Final = (1 + LOSS_TOLERATED) / 2  # the mean of 1 - (1 + difference) / 2 at that loss
LOST_ALPHA: Final = 0.05


@dataclass(frozen=True, slots=True)
class TrajectoryFigures:
    """The figures of one ended trajectory. None: the figure is unknown.

    `ranked`: its reward is a rank in its group. `tool_failures`: share of its tool calls that failed; `answer_tokens`,
    `call_s`: means over its calls.
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
    """The tests by figure. `lost`: the test of the claim that its reward is worse than is tolerated."""

    doubts: Mapping[ComparedFigure, SequentialTestResult]
    lost: SequentialTestResult

    @property
    def worse_by(self) -> list[ComparedFigure]:
        """The figures in which the candidate is shown to be worse."""
        return [figure for figure, result in self.doubts.items() if result.shown_worse]

    @property
    def not_worse(self) -> bool:
        """Whether the loss of reward is shown to be tolerable: further trajectories would not change it."""
        return self.lost.shown_worse


def compare_trajectories(trajectories: Sequence[TrajectoryFigures]) -> CanaryComparison:
    """Compare the candidate's trajectories with the others', in the order in which their groups were decided."""
    seen = {
        figure: [(1 + difference) / 2 for difference in task_differences(trajectories, figure)]
        for figure in ComparedFigure
    }
    doubts = {
        figure: test_mean(seen[figure], at_least=null_mean(figure), alpha=ALPHA[figure]) for figure in ComparedFigure
    }
    lost = [1 - value for value in seen[ComparedFigure.REWARD]]
    return CanaryComparison(doubts, test_mean(lost, at_least=LOST, alpha=LOST_ALPHA))


def null_mean(figure: ComparedFigure) -> float:
    """Return the mean of (1 + difference) / 2 of a candidate at the tolerated limit."""
    return (1 - TOLERATED.get(figure, 0.0)) / 2


def task_differences(trajectories: Iterable[TrajectoryFigures], figure: ComparedFigure) -> list[float]:
    """Return the candidate's value minus the other's, by task: in -1..1, negative where the candidate did worse."""
    differences: list[float] = []
    alone: tuple[list[float], list[float]] = ([], [])
    for members in _by_group(trajectories).values():
        old, new = (_values(members, figure, candidate=arm) for arm in (False, True))
        if old and new:
            differences.append(_mean(new) - _mean(old))
        elif (old or new) and not (figure is ComparedFigure.REWARD and any(run.ranked for run in members)):
            alone[bool(new)].append(_mean(old or new))
            if all(alone):
                differences.append(alone[1].pop(0) - alone[0].pop(0))
    return differences


def _by_group(trajectories: Iterable[TrajectoryFigures]) -> Mapping[str, list[TrajectoryFigures]]:
    groups: defaultdict[str, list[TrajectoryFigures]] = defaultdict(list)
    for run in trajectories:
        groups[run.group_id].append(run)
    return groups


def _values(trajectories: Iterable[TrajectoryFigures], figure: ComparedFigure, *, candidate: bool) -> list[float]:
    values = [figure_value(run, figure) for run in trajectories if run.candidate is candidate]
    return [v for v in values if v is not None]


def _mean(values: Sequence[float]) -> float:
    return math.fsum(values) / len(values)


def figure_value(run: TrajectoryFigures, figure: ComparedFigure) -> float | None:
    """Return a trajectory's figure in 0..1, where more is better, clipped to the bounds; None if it is unknown.

    The value depends on the trajectory alone, so arms of different size have equal means if they are alike.
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
    """1 at the lower bound, 0 at the upper one, linear in doublings."""
    low, high = log2_bounds
    doublings = math.log2(amount) if amount > 0 else low
    return 1.0 - (min(max(doublings, low), high) - low) / (high - low)


Outcome = Literal["worse", "not_worse", "enough_tasks", "late", "open"]


async def compare_versions(store: Store, version: VersionView, other_id: str) -> CanaryComparison:
    """Compare a version's trajectories with another's, since the version entered its present state."""
    served = await list_served_trajectories(
        Project(store, version.project_id), {version.id, other_id}, version.state_at
    )
    figures = [
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
        for run in served
    ]
    return compare_trajectories(figures)


def canary_outcome(comparison: CanaryComparison, waited_s: float, *, tasks: int, max_age_s: float) -> Outcome:
    """Return the outcome of a canary that began `waited_s` ago.

    It passes once its reward is shown to be at most tolerably worse, or was compared on `tasks` tasks without any
    figure being shown worse.
    """
    if comparison.worse_by:
        return "worse"
    if comparison.not_worse:
        return "not_worse"
    if comparison.doubts[ComparedFigure.REWARD].samples >= tasks:
        return "enough_tasks"
    return "late" if waited_s >= max_age_s else "open"


def ledger_figures(comparison: CanaryComparison) -> dict[str, Any]:
    """Return the figures for the ledger: those in which it is worse, if any, with their values, and the reward's."""
    figures = {"worse_by": sorted(map(str, comparison.worse_by))} if comparison.worse_by else {}
    return figures | {str(figure): _seen(comparison, figure) for figure in _reported(comparison)}


def _reported(comparison: CanaryComparison) -> Iterable[ComparedFigure]:
    return [
        f
        for f in ComparedFigure
        if f in comparison.worse_by or (f is ComparedFigure.REWARD and comparison.doubts[f].samples)
    ]


def _seen(comparison: CanaryComparison, figure: ComparedFigure) -> dict[str, float]:
    doubt = comparison.doubts[figure]
    seen = {"value": doubt.mean, "tasks": doubt.samples, "capital": doubt.capital}
    if figure is ComparedFigure.REWARD:
        return {**seen, "tolerated": LOSS_TOLERATED}
    if figure in TOLERATED:  # on a scale of doublings, where shorter is more
        return {**seen, "times": 2 ** (_DOUBLINGS * (1 - 2 * doubt.mean)), "tolerated": TOLERATED_TIMES}
    return seen
