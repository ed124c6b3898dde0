"""Credit of single turns: how far a turn's value is from those of its group's turns of the same number. Pure.

Owns: the differences, and when a turn has one. Refuses: where values come from (`recorder.queue.judging.turn_values`),
and what a step does with them (`trainer.objectives.group_rows`).

Turns of the same number are compared because they are at about the same point of the task; with fewer than two values
there is nothing to compare with.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

TurnValues = Mapping[str, Mapping[int, float]]
"""Trajectory id → the number of a turn on its main path, from 1 → the turn's value."""


def turn_differences(values: TurnValues) -> dict[str, dict[int, float]]:
    """Return each turn's value minus the mean over all turns of its number, without turns that are alone."""
    by_number: dict[int, list[float]] = {}
    for own in values.values():
        for number, value in own.items():
            by_number.setdefault(number, []).append(value)
    means = {number: math.fsum(found) / len(found) for number, found in by_number.items() if len(found) > 1}
    return {
        id_: {number: value - means[number] for number, value in own.items() if number in means}
        for id_, own in values.items()
    }
