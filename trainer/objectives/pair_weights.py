"""How much a judged pair teaches, by how often its judge orders pairs as people do. Pure.

A group of two has one comparison. A judge that orders a pair rightly with probability a gives, on average, 2a − 1 times
the advantage of a judge that is always right. In larger groups, wrong and right comparisons of a trajectory already
cancel each other in its reward.
"""

from __future__ import annotations


def pair_weight(agreement: float | None) -> float:
    """Return max(0, 2a − 1) for a pairwise agreement a with people (0 to 1); 1 if it was not measured."""
    return 1.0 if agreement is None else max(0.0, 2 * agreement - 1)
