"""What came of each attempt of an evaluation: as whom it was made, what it was worth, what it took.

Owns: reading that out of groups and their scores. Pure. Refuses: success (`trainer.campaign.measurement`), and what
follows for the versions (`trainer.evaluation.figures`).

What an evaluation says of each version: its measures, how they differ from the first one's, what its attempts took.

Owns: these figures. Pure. Refuses: their intervals (`recorder.stats.paired_tests`), and how they read
(`trainer.evaluation.display`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from recorder.states import CallState, TrajectoryState
from recorder.stats.paired_tests import PairedEstimate, Values, paired_difference, paired_mean
from recorder.views.trajectories.shapes import CallView, GroupView, TrajectoryView
from trainer.campaign.measurement import LoadedRound, attempt_rewards, attempt_values, counted_attempts
from trainer.campaign.sampling import attempt_number
from trainer.evaluation.request import EvaluationMeasures
from trainer.measures.arms import Arm
from trainer.measures.campaign_measure import TIE, AttemptValue, compare_values


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """What an attempt took: tokens as the engine counts them, dollars where a provider tells a price, seconds."""

    tokens_in: float | None = None
    tokens_out: float | None = None
    usd: float | None = None
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class EvaluatedAttempt:
    """One attempt. `side`: the place of its version. None: not measured, or nobody can tell.

    `wins`: against each attempt of the first version in the same group, 1 for a win, a half for a tie, 0 for a loss.
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
    """What came of the attempts of some groups, in which each version made `each` of them, the first one's first.

    `success` by their ids; `adversarial`: the ids of groups whose scenarios tempt to cheat.
    """
    rewards, tempting = attempt_rewards(loaded), frozenset(adversarial)
    for view in loaded.views:
        worth = attempt_values(view, rewards)
        first = [worth[place] for place in range(each) if place in worth]
        for member in _made(view):
            side = attempt_number(member) // each
            yield EvaluatedAttempt(
                side,
                view.scenario.id if view.scenario is not None else "",
                member.state is TrajectoryState.ERRORED,
                success.get(member.id),
                rewards.get(member.id),
                _wins(worth.get(attempt_number(member)), first) if side else (),
                attempt_usage(member),
                view.id in tempting,
            )


def _made(view: GroupView) -> Iterable[TrajectoryView]:
    """The attempts of a group, each once."""
    return {attempt_number(member): member for member in counted_attempts(view) if attempt_number(member) >= 0}.values()


def _wins(ours: AttemptValue | None, theirs: Iterable[AttemptValue]) -> tuple[float, ...]:
    if ours is None:
        return ()
    return tuple(won for one in theirs if (won := compare_values(ours, one)) is not None)


def attempt_usage(member: TrajectoryView) -> AttemptUsage:
    """What an attempt took, its sub-agents' calls and errands among it."""
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
    """One version. `attempts`: how many ended, those that `errored` among them.

    `measures`: its success (a share), win rate (of comparisons with the first version's attempts at the same scenario
    and seed, a tie half) and reward, as far as they are told. `differences`: by how much each is above the first one's;
    of wins the share that is won less that is lost. `tempted`: the measures over scenarios that tempt to cheat, which
    are in nothing else here. `took`: means of an attempt.
    """

    name: str
    model: str
    attempts: int
    errored: int
    measures: Mapping[str, PairedEstimate] = field(default_factory=dict)
    differences: Mapping[str, PairedEstimate] = field(default_factory=dict)
    tempted: Mapping[str, PairedEstimate] = field(default_factory=dict)
    usage: AttemptUsage = field(default_factory=AttemptUsage)


def version_figures(
    sides: Sequence[Arm], outcomes: Iterable[EvaluatedAttempt], told: EvaluationMeasures
) -> list[VersionFigures]:
    """What came of all attempts, by version, in the order of the sides."""
    by_side: dict[int, list[EvaluatedAttempt]] = defaultdict(list)
    for one in outcomes:
        by_side[one.arm].append(one)
    first = by_side[sides[0].place]
    return [_version(side, by_side[side.place], first if side is not sides[0] else (), told) for side in sides]


def _version(
    side: Arm, made: Sequence[EvaluatedAttempt], first: Sequence[EvaluatedAttempt], told: EvaluationMeasures
) -> VersionFigures:
    ordinary = [one for one in made if not one.adversarial]
    tempting = [one for one in made if one.adversarial]
    return VersionFigures(
        side.name,
        side.model,
        attempts=len(made),
        errored=sum(one.errored for one in made),
        measures=_measures(ordinary, told),
        differences=_differences(ordinary, [one for one in first if not one.adversarial], told),
        tempted=_measures(tempting, told),
        usage=_took(made),
    )


def _measures(made: Sequence[EvaluatedAttempt], told: EvaluationMeasures) -> dict[str, PairedEstimate]:
    found = {name: paired_mean(_values(made, read), _within(made, read)) for name, read in _reads(told).items()}
    return {name: one for name, one in found.items() if one is not None}


def _differences(
    made: Sequence[EvaluatedAttempt], first: Sequence[EvaluatedAttempt], told: EvaluationMeasures
) -> dict[str, PairedEstimate]:
    found: dict[str, PairedEstimate | None] = {}
    for name, read in _reads(told).items():
        if name == WIN_RATE:  # what is won less what is lost, of comparisons that are paired as they are
            found[name] = paired_mean(_values(made, _net), (-1.0, 1.0))
        else:
            within = _within([*made, *first], read)
            found[name] = paired_difference(_values(made, read), _values(first, read), within)
    return {name: one for name, one in found.items() if one is not None}


def _reads(told: EvaluationMeasures) -> dict[str, Read]:
    """How each measure that is told is read out of an attempt."""
    found: dict[str, Read] = {}
    if told.success:
        found[SUCCESS] = lambda one: () if one.success is None else (float(one.success),)
    if told.wins:
        found[WIN_RATE] = lambda one: one.wins
    if told.reward:
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
    """What a value can be: 0 to 1, unless a recipe says otherwise, which its values then show."""
    values = [value for one in made for value in read(one)]
    return min(0.0, *values, 0.0), max(1.0, *values, 1.0)


def _took(made: Sequence[EvaluatedAttempt]) -> AttemptUsage:
    each = [one.usage for one in made]
    means = {
        name: statistics.fmean(known)
        for name in ("tokens_in", "tokens_out", "usd", "seconds")
        if (known := [value for one in each if (value := getattr(one, name)) is not None])
    }
    return AttemptUsage(**means)
