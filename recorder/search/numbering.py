"""The numbers of documents: by the millisecond in which their run began, so that a walk downwards meets new runs first.

Owns: how a number is made of a run's id and a count, and the bounds of a run's. Refuses: which number is free
(`recorder.search.filling`).
"""

from __future__ import annotations

from typing import Final

from recorder.ids import began_ms

_COUNT_BITS: Final = 20
PER_MS: Final = 1 << _COUNT_BITS  # documents of all runs that began in one millisecond
_LAST_MS: Final = (1 << 63 - _COUNT_BITS) - 1


def first_of(trajectory_id: str) -> int:
    """The least number of the runs that began with this one. An id that is not of our making began at 0."""
    return min(began_ms(trajectory_id), _LAST_MS) << _COUNT_BITS


def behind(trajectory_id: str) -> int:
    """The least number of the runs that began after this one."""
    return first_of(trajectory_id) + PER_MS


def same_ms(a: int, b: int) -> bool:
    """Whether two documents are of runs that began in one millisecond: their order says nothing of the runs'."""
    return a >> _COUNT_BITS == b >> _COUNT_BITS
