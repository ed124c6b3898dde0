"""Which run a W3C trace was seen with, for tool calls that bring nothing else.

Owns: a bounded memory of `traceparent`s of model calls. Refuses: trusting a trace that several runs share.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from recorder.lru import Lru

REMEMBERED: Final = 20_000
_TRACEPARENT = re.compile(r"[0-9a-f]{2}-([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


@dataclass(frozen=True, slots=True)
class Traced:
    """What a trace says: the run, and whether it was the very same span."""

    trajectory_id: str
    same_span: bool


class Traces:
    """The traces of recent model calls. One a proxy process."""

    def __init__(self) -> None:
        self._runs: Lru[str, frozenset[str]] = Lru(REMEMBERED)  # trace, or trace and span → the runs seen with it

    def seen(self, traceparent: bytes | None, trajectory_id: str) -> None:
        """A model call of a run carried this."""
        parsed = _parsed(traceparent.decode("latin-1")) if traceparent else None
        for key in parsed or ():
            runs = self._runs.get(key) or frozenset()
            if len(runs) < 2:  # two say all that many would
                self._runs.put(key, runs | {trajectory_id})

    def of(self, traceparent: object) -> Traced | None:
        """The one run that a `traceparent` was seen with."""
        parsed = _parsed(traceparent) if isinstance(traceparent, str) else None
        for key, same_span in zip(parsed or (), (True, False), strict=False):
            runs = self._runs.get(key) or frozenset()
            if len(runs) == 1:
                return Traced(next(iter(runs)), same_span)
        return None


def _parsed(traceparent: str) -> tuple[str, str] | None:
    """(trace and span, trace)."""
    match = _TRACEPARENT.fullmatch(traceparent.strip().lower())
    return (f"{match[1]}-{match[2]}", match[1]) if match else None
