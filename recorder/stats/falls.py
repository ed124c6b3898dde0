"""Whether what a policy earns has fallen, over rounds of attempts at scenarios that differ from round to round. Pure.

Owns: the comparison, its intervals clustered by scenario, and how sure it must be. Refuses: which attempts are a round,
and what follows from a fall (`trainer.campaign.health`, `recorder.views.status.stages`).

Rounds draw different scenarios, so their means differ by the draw alone. A scenario is therefore compared with its own
earlier attempts where most of the newest have any. Otherwise the last three rounds are compared with the three before,
each scenario counting once; the standard error is then that of scenarios of one population, which a lucky draw of equal
scenarios cannot make small.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, variance
from typing import Final

from recorder.stats.means import Interval

ROUNDS: Final = 3  # the newest rounds that are compared, at most, and those before
EARLIER: Final = 3  # of a scenario's earlier rounds that it is compared with: the newest, since the policy moves
FEWEST: Final = 3  # scenarios: fewer have no standard error worth the name
# Standard errors at which a fall is shown. It is looked for after each round: by simulation (benchmarks/reward_fall.py)
# that is wrong in at most 1 % of whole campaigns.
SURE: Final = 4.0
SURE_OF_THREE: Final = 3.5  # by three rounds beside three, which no shorter window is tried against
_Z: Final = 1.96  # of the normal distribution, for 95 %


@dataclass(frozen=True, slots=True)
class ScenarioFigure:
    """The attempts at one scenario in one round: how many, their mean, and their standard deviation."""

    attempts: int
    mean: float
    std: float = 0.0


Round = Mapping[str, ScenarioFigure]  # by scenario


@dataclass(frozen=True, slots=True)
class Fall:
    """The mean before and now, and the 95 % interval of the fall between them.

    `paired`: `scenarios` were compared with their own earlier attempts, else the newest `rounds` with those before.
    """

    before: float
    now: float
    interval: Interval
    rounds: int
    scenarios: int
    paired: bool

    @property
    def by(self) -> float:
        """How far the mean fell."""
        return self.before - self.now


def find_fall(rounds: Sequence[Round], at: float) -> Fall | None:
    """The fall of the newest one, two or three rounds by at least `at`, in the unit of the means; None: none is shown.

    `rounds` are in order. The surest of several findings is returned.
    """
    tried = (_compared(rounds[:-size], rounds[-size:]) for size in range(1, min(ROUNDS, len(rounds) - 1) + 1))
    shown = [one for one in tried if one is not None and one.fall.by >= at and one.shown]
    return max(shown, key=lambda one: one.errors).fall if shown else None


def describe_fall(fall: Fall, what: str, scenario: str, round_: str) -> str:
    """A fall in words. `what`: the mean that fell; `scenario` and `round_`: what the two are called."""
    newest = f"newest {round_}" if fall.rounds == 1 else f"newest {fall.rounds} {round_}s"
    beside = "their own earlier attempts" if fall.paired else f"those of the {round_}s before"
    interval = f"95 % interval {fall.interval.low:.2f} to {fall.interval.high:.2f}"
    return (
        f"{what} fell from {fall.before:.3f} to {fall.now:.3f} (by {fall.by:.2f}, {interval}): {fall.scenarios} "
        f"{scenario}s of the {newest} beside {beside}"
    )


@dataclass(frozen=True, slots=True)
class _Comparison:
    """A fall, by how many standard errors, and by how many it must be. `apart`: the 95 % intervals do not overlap."""

    fall: Fall
    errors: float
    sure: float
    apart: bool

    @property
    def shown(self) -> bool:
        return self.apart and self.errors >= self.sure


def _compared(older: Sequence[Round], newer: Sequence[Round]) -> _Comparison | None:
    now = _by_scenario(newer)
    before = {name: found for name, found in _by_scenario(older).items() if name in now}
    if len(before) >= max(FEWEST, len(now) / 2):
        pairs = [(_pooled(found[-EARLIER:]), _pooled(now[name])) for name, found in before.items()]
        return _paired(pairs, len(newer))
    earlier = _by_scenario(older[-ROUNDS:])
    if min(len(earlier), len(now)) < FEWEST:
        return None
    return _beside([_pooled(found) for found in earlier.values()], [_pooled(found) for found in now.values()], newer)


def _by_scenario(rounds: Iterable[Round]) -> dict[str, list[ScenarioFigure]]:
    found: defaultdict[str, list[ScenarioFigure]] = defaultdict(list)
    for one in rounds:
        for name, figure in one.items():
            found[name].append(figure)
    return dict(found)


def _pooled(figures: Sequence[ScenarioFigure]) -> ScenarioFigure:
    """All attempts at a scenario together."""
    attempts = sum(one.attempts for one in figures)
    mean = math.fsum(one.attempts * one.mean for one in figures) / attempts
    squares = math.fsum(one.attempts * (one.std**2 + (one.mean - mean) ** 2) for one in figures)
    return ScenarioFigure(attempts, mean, math.sqrt(squares / attempts))


def _paired(pairs: Sequence[tuple[ScenarioFigure, ScenarioFigure]], rounds: int) -> _Comparison:
    """Scenarios beside their own earlier attempts.

    The error is that of the differences between scenarios, but at least what chance makes of the attempts: of few
    scenarios, the differences may be alike by chance.
    """
    before, now = fmean(one.mean for one, _ in pairs), fmean(one.mean for _, one in pairs)
    differences = [one.mean - other.mean for one, other in pairs]
    between = variance(differences) / len(pairs)
    free = sum(one.attempts - 1 for pair in pairs for one in pair)
    squares = math.fsum(one.attempts * one.std**2 for pair in pairs for one in pair)
    if free:
        within = squares / free * math.fsum(1 / one.attempts for pair in pairs for one in pair) / len(pairs) ** 2
    else:  # one attempt each does not show its chance: the differences from none do
        within = fmean(by * by for by in differences) / len(pairs)
    error = math.sqrt(max(between, within))
    fall = Fall(before, now, _around(before - now, error), rounds, len(pairs), True)
    return _Comparison(fall, _errors(fall.by, error), SURE, fall.interval.low > 0)


def _beside(older: Sequence[ScenarioFigure], newer: Sequence[ScenarioFigure], rounds: Sequence[Round]) -> _Comparison:
    """Scenarios beside others, all from one population if nothing fell."""
    means, now_means = [one.mean for one in older], [one.mean for one in newer]
    before, now = fmean(means), fmean(now_means)
    own = math.sqrt(variance(means) / len(means)), math.sqrt(variance(now_means) / len(now_means))
    error = math.sqrt(variance([*means, *now_means]) * (1 / len(means) + 1 / len(now_means)))
    fall = Fall(before, now, _around(before - now, math.hypot(*own)), len(rounds), len(newer), False)
    sure = SURE_OF_THREE if len(rounds) == ROUNDS else SURE
    return _Comparison(fall, _errors(fall.by, error), sure, fall.by > _Z * sum(own))


def _around(value: float, error: float) -> Interval:
    return Interval(value - _Z * error, value + _Z * error)


def _errors(by: float, error: float) -> float:
    return by / error if error else math.copysign(math.inf, by)
