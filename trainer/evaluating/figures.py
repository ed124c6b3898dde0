"""What an evaluation says of each version: its measures, how they differ from the first one's, what its attempts took.

Owns: these figures. Pure. Refuses: their intervals (`trainer.evaluating.paired`), and how they read
(`trainer.evaluating.showing`).
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from trainer.evaluating.asked import Measures
from trainer.evaluating.outcomes import Outcome, Took
from trainer.evaluating.paired import Estimate, Values, difference, mean
from trainer.measuring.sides import Side
from trainer.measuring.wins import TIE

SUCCESS: Final = "success"
WIN_RATE: Final = "win_rate"
REWARD: Final = "reward"

Read = Callable[[Outcome], Sequence[float]]


@dataclass(frozen=True, slots=True)
class Version:
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
    measures: Mapping[str, Estimate] = field(default_factory=dict)
    differences: Mapping[str, Estimate] = field(default_factory=dict)
    tempted: Mapping[str, Estimate] = field(default_factory=dict)
    took: Took = field(default_factory=Took)


def versions(sides: Sequence[Side], outcomes: Iterable[Outcome], told: Measures) -> list[Version]:
    """What came of all attempts, by version, in the order of the sides."""
    by_side: dict[int, list[Outcome]] = defaultdict(list)
    for one in outcomes:
        by_side[one.side].append(one)
    first = by_side[sides[0].place]
    return [_version(side, by_side[side.place], first if side is not sides[0] else (), told) for side in sides]


def _version(side: Side, made: Sequence[Outcome], first: Sequence[Outcome], told: Measures) -> Version:
    ordinary = [one for one in made if not one.adversarial]
    tempting = [one for one in made if one.adversarial]
    return Version(
        side.name,
        side.model,
        attempts=len(made),
        errored=sum(one.errored for one in made),
        measures=_measures(ordinary, told),
        differences=_differences(ordinary, [one for one in first if not one.adversarial], told),
        tempted=_measures(tempting, told),
        took=_took(made),
    )


def _measures(made: Sequence[Outcome], told: Measures) -> dict[str, Estimate]:
    found = {name: mean(_values(made, read), _within(made, read)) for name, read in _reads(told).items()}
    return {name: one for name, one in found.items() if one is not None}


def _differences(made: Sequence[Outcome], first: Sequence[Outcome], told: Measures) -> dict[str, Estimate]:
    found: dict[str, Estimate | None] = {}
    for name, read in _reads(told).items():
        if name == WIN_RATE:  # what is won less what is lost, of comparisons that are paired as they are
            found[name] = mean(_values(made, _net), (-1.0, 1.0))
        else:
            within = _within([*made, *first], read)
            found[name] = difference(_values(made, read), _values(first, read), within)
    return {name: one for name, one in found.items() if one is not None}


def _reads(told: Measures) -> dict[str, Read]:
    """How each measure that is told is read out of an attempt."""
    found: dict[str, Read] = {}
    if told.success:
        found[SUCCESS] = lambda one: () if one.success is None else (float(one.success),)
    if told.wins:
        found[WIN_RATE] = lambda one: one.wins
    if told.reward:
        found[REWARD] = lambda one: () if one.reward is None else (one.reward,)
    return found


def _net(one: Outcome) -> Sequence[float]:
    return [(won - TIE) / TIE for won in one.wins]


def _values(made: Iterable[Outcome], read: Read) -> Values:
    found: dict[str, list[float]] = defaultdict(list)
    for one in made:
        found[one.scenario] += read(one)
    return found


def _within(made: Iterable[Outcome], read: Read) -> tuple[float, float]:
    """What a value can be: 0 to 1, unless a recipe says otherwise, which its values then show."""
    values = [value for one in made for value in read(one)]
    return min(0.0, *values, 0.0), max(1.0, *values, 1.0)


def _took(made: Sequence[Outcome]) -> Took:
    each = [one.took for one in made]
    means = {
        name: statistics.fmean(known)
        for name in ("tokens_in", "tokens_out", "usd", "seconds")
        if (known := [value for one in each if (value := getattr(one, name)) is not None])
    }
    return Took(**means)
