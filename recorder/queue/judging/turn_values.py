"""Values of single turns among the parts of a score: the extra numbers `PART.turn.N` of a part, N from 1. Pure.

Owns: their names, and the value of a turn that several parts rate. Refuses: which parts rate turns (the judge), and
advantages (`recorder.stats.turn_credit`).
"""

from __future__ import annotations

import math
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from recorder.queue.judging.scores import NewPart
from recorder.stats.turn_credit import TurnValues

_EXTRA: Final = re.compile(r"turn\.([1-9]\d{0,5})")


def turn_extra(number: int) -> str:
    """Return the name of a turn's value beside a part's own."""
    return f"turn.{number}"


def turn_number(extra: str) -> int | None:
    """Return the number of the turn that an extra value is of; None: it is of no turn."""
    found = _EXTRA.fullmatch(extra)
    return int(found[1]) if found is not None else None


def turn_of(part: str) -> tuple[str, int] | None:
    """Return the part and the number of the turn whose value `PART.turn.N` is; None: it is the value of no turn."""
    name, _, extra = part.rpartition(".turn.")
    number = turn_number(f"turn.{extra}")
    return (name, number) if name and number is not None else None


def read_turn_values(parts: Iterable[NewPart]) -> TurnValues:
    """Return the turns' values in a score: the mean over the parts in the reward's mean, by their weights.

    Parts without a weight above 0 (measured, penalties, vetoes, dropped) give none, unless a turn's value has a weight
    of its own.
    """
    given = list(parts)
    weights = {(one.trajectory_id, one.part): one.weight for one in given if one.weight is not None and one.weight > 0}
    rated: dict[str, dict[int, list[tuple[float, float]]]] = defaultdict(lambda: defaultdict(list))
    for one in given:
        turn = turn_of(one.part)
        if turn is None or one.value is None or not math.isfinite(one.value):
            continue
        name, number = turn
        weight = weights.get((one.trajectory_id, one.part)) or weights.get((one.trajectory_id, name))
        if weight is not None:
            rated[one.trajectory_id][number].append((weight, one.value))
    return {id_: {number: _mean(found) for number, found in sorted(own.items())} for id_, own in rated.items()}


def _mean(rated: list[tuple[float, float]]) -> float:
    heaviest = max(weight for weight, _ in rated)  # so that no sum overflows
    shares = [weight / heaviest for weight, _ in rated]
    return math.fsum(share * value for share, (_, value) in zip(shares, rated, strict=True)) / math.fsum(shares)
