"""Pairs as a simulated judge and simulated people order them: groups differ in how hard they are."""

from __future__ import annotations

import numpy as np

from judge.calibration.labels import FIRST, SECOND, TIE, LabelledPair

TIES = 0.1  # share of pairs that people, and the judge, cannot tell apart


def pairs(
    rng: np.random.Generator, groups: int, each: int, skill: float = 0.75, *, early: float = 0.0, long: float = 0.0
) -> list[LabelledPair]:
    """`each` pairs in each group. A judge of that skill, which goes by place or length in such a share of pairs."""
    found = []
    for group in range(groups):
        right = rng.beta(8 * skill, 8 * (1 - skill))
        for _ in range(each):
            earlier, longer, truth = (int(sign) for sign in rng.choice((FIRST, SECOND), 3))
            people = TIE if rng.random() < TIES else truth
            drawn = rng.random()
            judge = truth if rng.random() < right else -truth
            judge = earlier if drawn < early else longer if drawn < early + long else judge
            judge = TIE if rng.random() < TIES else judge
            found.append(LabelledPair(f"g{group}", people, judge, earlier, longer))
    return found
