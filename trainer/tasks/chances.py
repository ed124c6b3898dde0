"""The chance that a scenario's next attempts differ, from its earlier groups, and drawing scenarios by it. Pure.

Owns: estimates with decay and a prior, the weight of a scenario, and weighted draws. Refuses: the store
(`trainer.campaign.draw`), how many scenarios a step draws, and the order of a uniform draw (`trainer.tasks.selection`).

A group whose rewards are all equal teaches nothing, because no advantage can be computed. Foster et al. (arXiv
2502.12272) draw prompts by their learnability p (1 - p), where p is the share of successes. Here the weight is the
chance that n attempts are not all equal, 1 - p^n - (1 - p)^n, which is proportional to it for n = 2 and 3.

Rewards of 0 and 1: p has a beta distribution, so the chance is a mean over it: what is known little counts as that.
Other rewards: the share of a scenario's groups whose rewards were not equal takes the place of the formula.
"""

from __future__ import annotations

import math
import random
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

from recorder.queue.draws import GroupOutcome
from recorder.stats.advantages import ZERO_VARIANCE

# Chosen by simulation (benchmarks/learnability.py). Half-lives of 4 and 8 steps waste about the same, and 4 follows a
# policy that learns fast. A weight that is the chance itself avoids few equal groups: most scenarios are nearly always
# or hardly ever solved, and together they weigh much. Above 8, scenarios that were never drawn wait too long.
HALF_LIFE: Final = 4.0  # steps after which a group counts half
SHARPNESS: Final = 8.0  # the weight of a scenario is its chance to the power of this
PRIOR: Final = 2.0  # attempts, or groups, that the mean of all scenarios counts for in the estimate of one

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ScenarioChance:
    """The estimates of a scenario: the mean reward of its next attempts, and the chance that a group's differ, 0..1.

    `groups`: how many earlier groups they come from.
    """

    reward: float
    differ: float
    groups: int = 0


@dataclass(slots=True)
class _DecayedSums:
    """Weighted sums over groups."""

    attempts: float = 0.0
    reward: float = 0.0
    groups: float = 0.0
    differ: float = 0.0
    count: int = 0

    def add(self, outcome: GroupOutcome, weight: float) -> None:
        self.attempts += weight * len(outcome.rewards)
        self.reward += weight * math.fsum(outcome.rewards)
        self.groups += weight
        self.differ += 0.0 if outcome.equal else weight
        self.count += 1


class ChanceEstimator:
    """Estimates for the scenarios of a campaign before a step, from the outcomes of earlier groups.

    `group_size`: attempts at a scenario. Groups of fewer than two rewards are ignored.
    """

    def __init__(self, outcomes: Iterable[GroupOutcome], step: int, group_size: int) -> None:
        known = [one for one in outcomes if one.comparable]
        self._group_size = group_size
        self._binary = all(min(abs(r), abs(r - 1)) <= ZERO_VARIANCE for one in known for r in one.rewards)
        self._all = _DecayedSums()
        self._of: defaultdict[str, _DecayedSums] = defaultdict(_DecayedSums)
        for one in known:
            weight = 0.5 ** (max(0, step - 1 - one.step) / HALF_LIFE)
            self._all.add(one, weight)
            self._of[one.scenario_id].add(one, weight)

    def chance(self, scenario_id: str) -> ScenarioChance:
        """The estimates of a scenario; of one without groups, those of all scenarios together."""
        everything, own = self._all, self._of.get(scenario_id, _DecayedSums())
        if self._binary:
            mean = (everything.reward + PRIOR / 2) / (everything.attempts + PRIOR)
            successes = PRIOR * mean + own.reward
            failures = PRIOR * (1 - mean) + own.attempts - own.reward
            reward = successes / (successes + failures)
            return ScenarioChance(reward, chance_of_difference(successes, failures, self._group_size), own.count)
        mean = everything.reward / everything.attempts
        reward = (PRIOR * mean + own.reward) / (PRIOR + own.attempts)
        differ = (everything.differ + PRIOR / 2) / (everything.groups + PRIOR)
        return ScenarioChance(reward, (PRIOR * differ + own.differ) / (PRIOR + own.groups), own.count)


def chance_of_difference(successes: float, failures: float, attempts: int) -> float:
    """The chance that so many attempts neither all succeed nor all fail, if p is of Beta(successes, failures).

    It is 1 - E[p^n] - E[(1 - p)^n] (beta-binomial distribution).
    """
    total = successes + failures
    all_succeed = math.prod((successes + n) / (total + n) for n in range(attempts))
    all_fail = math.prod((failures + n) / (total + n) for n in range(attempts))
    return min(1.0, max(0.0, 1.0 - all_succeed - all_fail))


def draw_by_chance(items: Sequence[T], chances: Sequence[float], number: int, seed: str) -> list[T]:
    """At most `number` different items, each weighed by its chance; the same for the same seed.

    Sampling without replacement by exponential keys (Efraimidis and Spirakis, 2006). Items without a chance come last.
    """
    rng = random.Random(seed)
    keys = [(_key(rng.random(), chance), at) for at, chance in enumerate(chances)]
    return [items[at] for _, at in sorted(keys)[:number]]


def _key(uniform: float, chance: float) -> float:
    """The logarithm of an exponential variable of rate chance ** SHARPNESS, which may be too small for a float."""
    if chance <= 0:
        return math.inf
    return math.log(-math.log(uniform or math.ulp(0.0))) - SHARPNESS * math.log(chance)
