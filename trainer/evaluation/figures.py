"""The figures of an evaluation: each attempt's arm, value and usage, and each version's measures. Pure.

Owns: reading attempts from groups and their scores, and the difference of each version from the first. Refuses: success
(`trainer.campaign.measurement`), intervals (`recorder.stats.significance_tests`), and the output
(`trainer.evaluation.display`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.states import CallState, TrajectoryState
from recorder.stats.significance_tests import PairedEstimate, Values, paired_difference, paired_mean
from recorder.views.trajectories.shapes import CallView, GroupView, TrajectoryView
from trainer.campaign.measurement import LoadedRound, attempt_rewards, attempt_values, counted_attempts
from trainer.campaign.sampling import attempt_number
from trainer.evaluation.request import EvaluationMeasures
from trainer.measures.arms import Arm
from trainer.measures.campaign_measure import TIE, AttemptValue, compare_values


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """The usage of an attempt: tokens by the engine's count, US dollars where the provider reports a price, seconds."""

    tokens_in: float | None = None
    tokens_out: float | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedAttempt:
    """One attempt. `arm`: the index of its arm. None: not measured, or unknown.

    `wins`: against each attempt of the first version in the same group, 1 for a win, one half for a tie, 0 for a loss.
    """

    arm: int
    scenario: str
    errored: bool
    success: bool | None
    reward: float | None
    wins: tuple[float, ...]
    usage: AttemptUsage
    adversarial: bool = False


def attempt_outcomes(
    loaded: LoadedRound, success: Mapping[str, bool], each: int, adversarial: Iterable[str] = ()
) -> Iterator[EvaluatedAttempt]:
    """The attempts of some groups; each version made `each` of them, the first version's come first.

    `success` by attempt id; `adversarial`: the ids of groups with adversarial scenarios.
    """
    rewards, adversarial_groups = attempt_rewards(loaded), frozenset(adversarial)
    for view in loaded.views:
        worth = attempt_values(view, rewards)
        first = [worth[place] for place in range(each) if place in worth]
        for member in _made(view):
            arm = attempt_number(member) // each
            yield EvaluatedAttempt(
                arm,
                view.scenario.id if view.scenario is not None else "",
                member.state is TrajectoryState.ERRORED,
                success.get(member.id),
                rewards.get(member.id),
                _wins(worth.get(attempt_number(member)), first) if arm else (),
                attempt_usage(member),
                view.id in adversarial_groups,
            )


def _made(view: GroupView) -> Iterable[TrajectoryView]:
    """The attempts of a group, each once."""
    return {attempt_number(member): member for member in counted_attempts(view) if attempt_number(member) >= 0}.values()


def _wins(ours: AttemptValue | None, theirs: Iterable[AttemptValue]) -> tuple[float, ...]:
    if ours is None:
        return ()
    return tuple(won for one in theirs if (won := compare_values(ours, one)) is not None)


def attempt_usage(member: TrajectoryView) -> AttemptUsage:
    """The usage of an attempt, with its sub-agents' and auxiliary calls."""
    answered = [call for call in member.calls if call.state is CallState.COMPLETE and call.superseded_by is None]
    seconds = None if member.ended_at is None else max(0.0, member.ended_at - member.started_at)
    costs = [cost for call in answered if (cost := _cost(call)) is not None]
    return AttemptUsage(
        _tokens(answered, "prompt_tokens"),
        _tokens(answered, "completion_tokens"),
        sum(costs) if costs else None,
        seconds,
    )


def _tokens(calls: Iterable[CallView], name: str) -> int | None:
    counts = [count for call in calls if isinstance(count := (call.usage or {}).get(name), int)]
    return sum(counts) if counts else None


def _cost(call: CallView) -> float | None:
    found: Any = (call.response_meta or {}).get("cost_usd")
    return float(found) if isinstance(found, int | float) else None


SUCCESS: Final = "success"
WIN_RATE: Final = "win_rate"
REWARD: Final = "reward"

Read = Callable[[EvaluatedAttempt], Sequence[float]]


@dataclass(frozen=True, slots=True)
class VersionFigures:
    """One version. `attempts`: how many ended, including those that `errored`.

    `measures`: success (a share), win rate (over comparisons with the first version's attempts at the same scenario and
    seed, a tie counts one half) and reward, as far as requested. `differences`: each minus the first version's; for
    wins the share won minus the share lost. `adversarial_measures`: the measures over adversarial scenarios, which no
    other figure includes. `usage`: mean usage of an attempt.
    """

    name: str
    model: str
    attempts: int
    errored: int
    measures: Mapping[str, PairedEstimate] = field(default_factory=dict)
    differences: Mapping[str, PairedEstimate] = field(default_factory=dict)
    adversarial_measures: Mapping[str, PairedEstimate] = field(default_factory=dict)
    usage: AttemptUsage = field(default_factory=AttemptUsage)


def version_figures(
    arms: Sequence[Arm], outcomes: Iterable[EvaluatedAttempt], wanted: EvaluationMeasures
) -> list[VersionFigures]:
    """The figures of each version, in the order of the arms."""
    by_arm: dict[int, list[EvaluatedAttempt]] = defaultdict(list)
    for one in outcomes:
        by_arm[one.arm].append(one)
    first = by_arm[arms[0].place]
    return [_version(arm, by_arm[arm.place], first if arm is not arms[0] else (), wanted) for arm in arms]


def _version(
    arm: Arm, made: Sequence[EvaluatedAttempt], first: Sequence[EvaluatedAttempt], wanted: EvaluationMeasures
) -> VersionFigures:
    ordinary = [one for one in made if not one.adversarial]
    adversarial = [one for one in made if one.adversarial]
    return VersionFigures(
        arm.name,
        arm.model,
        attempts=len(made),
        errored=sum(one.errored for one in made),
        measures=_measures(ordinary, wanted),
        differences=_differences(ordinary, [one for one in first if not one.adversarial], wanted),
        adversarial_measures=_measures(adversarial, wanted),
        usage=_mean_usage(made),
    )


def _measures(made: Sequence[EvaluatedAttempt], wanted: EvaluationMeasures) -> dict[str, PairedEstimate]:
    found = {name: paired_mean(_values(made, read), _within(made, read)) for name, read in _reads(wanted).items()}
    return {name: one for name, one in found.items() if one is not None}


def _differences(
    made: Sequence[EvaluatedAttempt], first: Sequence[EvaluatedAttempt], wanted: EvaluationMeasures
) -> dict[str, PairedEstimate]:
    found: dict[str, PairedEstimate | None] = {}
    for name, read in _reads(wanted).items():
        if name == WIN_RATE:  # wins minus losses: each comparison is a pair already
            found[name] = paired_mean(_values(made, _net), (-1.0, 1.0))
        else:
            within = _within([*made, *first], read)
            found[name] = paired_difference(_values(made, read), _values(first, read), within)
    return {name: one for name, one in found.items() if one is not None}


def _reads(wanted: EvaluationMeasures) -> dict[str, Read]:
    """How to read each requested measure from an attempt."""
    found: dict[str, Read] = {}
    if wanted.success:
        found[SUCCESS] = lambda one: () if one.success is None else (float(one.success),)
    if wanted.wins:
        found[WIN_RATE] = lambda one: one.wins
    if wanted.reward:
        found[REWARD] = lambda one: () if one.reward is None else (one.reward,)
    return found


def _net(one: EvaluatedAttempt) -> Sequence[float]:
    return [(won - TIE) / TIE for won in one.wins]


def _values(made: Iterable[EvaluatedAttempt], read: Read) -> Values:
    found: dict[str, list[float]] = defaultdict(list)
    for one in made:
        found[one.scenario] += read(one)
    return found


def _within(made: Iterable[EvaluatedAttempt], read: Read) -> tuple[float, float]:
    """The range of a value: 0 to 1, unless values show that a recipe uses another."""
    values = [value for one in made for value in read(one)]
    return min(0.0, *values, 0.0), max(1.0, *values, 1.0)


def _mean_usage(made: Sequence[EvaluatedAttempt]) -> AttemptUsage:
    each = [one.usage for one in made]
    means = {
        name: statistics.fmean(known)
        for name in ("tokens_in", "tokens_out", "usd", "seconds")
        if (known := [value for one in each if (value := getattr(one, name)) is not None])
    }
    return AttemptUsage(**means)
