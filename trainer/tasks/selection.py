"""Draw the scenarios that a step attempts. Pure.

Owns: their order, which depends on the seed only, and the share of adversarial ones. Refuses: which scenarios may be
trained on (`trainer.tasks.parts`).
"""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from fractions import Fraction
from typing import Protocol, TypeVar


class DrawableScenario(Protocol):
    """A scenario that may be drawn."""

    @property
    def adversarial(self) -> bool:
        """Whether it tempts the agent to cheat."""


T = TypeVar("T")
M = TypeVar("M", bound=DrawableScenario)


def draw_scenarios(scenarios: Sequence[M], per_step: int, step: int, seed: int, adversarial_share: float) -> list[M]:
    """The scenarios of a step (counted from 1), all different, the adversarial ones last.

    Over the steps the adversarial ones are `adversarial_share` of all drawn, to less than one scenario: with few a
    step, only some steps have one. If there are fewer of a kind than a step needs, it takes them all.
    """
    ordinary, adversarial = _kinds(scenarios, adversarial_share)
    if not (ordinary and adversarial):
        return draw_in_passes(ordinary or adversarial, per_step, step, seed)
    plain, tempting = _of_a_step(len(ordinary), len(adversarial), per_step, adversarial_share)
    before, after = step - 1, step
    # rounded in opposite ways, so that both together fill a step
    drawn = _from_ring(ordinary, math.ceil(before * plain), math.ceil(after * plain), f"{seed}:ordinary")
    tempted = _from_ring(
        adversarial, math.floor(before * tempting), math.floor(after * tempting), f"{seed}:adversarial"
    )
    return [*drawn, *tempted]


def draw_in_passes(items: Sequence[T], per_step: int, step: int, seed: int) -> list[T]:
    """The items of a step, if all are of one kind.

    Each pass over the list is shuffled anew and cut into whole steps; the remainder waits for another pass.
    """
    size = min(per_step, len(items))
    if not size:
        return []
    steps_per_pass = len(items) // size
    number, position = divmod(step - 1, steps_per_pass)
    order = list(range(len(items)))
    random.Random(f"{seed}:{number}").shuffle(order)
    return [items[i] for i in order[position * size : (position + 1) * size]]


def steps_of_a_pass(scenarios: Sequence[DrawableScenario], per_step: int, adversarial_share: float) -> int:
    """The steps of one pass over the scenarios; where there are both kinds, over the ordinary ones."""
    ordinary, adversarial = _kinds(scenarios, adversarial_share)
    if ordinary and adversarial:
        plain, _ = _of_a_step(len(ordinary), len(adversarial), per_step, adversarial_share)
        return math.ceil(len(ordinary) / plain)
    count = len(ordinary or adversarial)
    return count // max(1, min(per_step, count))


def _kinds(scenarios: Sequence[M], adversarial_share: float) -> tuple[list[M], list[M]]:
    """The ordinary ones, and the adversarial ones where any are drawn."""
    ordinary = [one for one in scenarios if not one.adversarial]
    return ordinary, [one for one in scenarios if one.adversarial] if adversarial_share else []


def _of_a_step(ordinary: int, adversarial: int, per_step: int, share: float) -> tuple[Fraction, Fraction]:
    """The mean number of each kind in a step. Exact: the written decimal, not the float nearest to it."""
    tempting = min(per_step * Fraction(str(share)), Fraction(adversarial))
    return min(per_step - tempting, Fraction(ordinary)), tempting


def _from_ring(items: Sequence[T], start: int, end: int, seed: str) -> list[T]:
    """The items between two positions of an endless sequence: all items, shuffled once, repeated.

    The order of the passes stays the same, so no stretch as long as one pass has an item twice.
    """
    order = list(items)
    random.Random(seed).shuffle(order)
    return [order[at % len(order)] for at in range(start, end)]
