"""Spans of time in two numbers: what is usual, and what the slow ones take.

Owns: the rule (nearest rank, so that each is a time that was really taken). Refuses: what is measured.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Latency:
    """Seconds; None where nothing was measured."""

    p50_s: float | None
    p99_s: float | None


def latency(seconds: Collection[float]) -> Latency:
    """Of some spans."""
    ranked = sorted(seconds)
    return Latency(_at(ranked, 0.5), _at(ranked, 0.99)) if ranked else Latency(None, None)


def _at(ranked: list[float], share: float) -> float:
    return ranked[max(0, math.ceil(share * len(ranked)) - 1)]
