"""Which run a W3C trace was seen with, for tool calls that bring nothing else.

Owns: a bounded memory of `traceparent`s of model calls. Refuses: trusting a trace that several runs share.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from proxy.attribution.hints import read_traceparent
from recorder.lru import Lru

REMEMBERED: Final = 20_000


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
        for key in _keys(traceparent.decode("latin-1") if traceparent else None):
            runs = self._runs.get(key) or frozenset()
            if len(runs) < 2:  # two say all that many would
                self._runs.put(key, runs | {trajectory_id})

    def of(self, traceparent: object) -> Traced | None:
        """The one run that a `traceparent` was seen with."""
        for key, same_span in zip(_keys(traceparent), (True, False), strict=False):
            runs = self._runs.get(key) or frozenset()
            if len(runs) == 1:
                return Traced(next(iter(runs)), same_span)
        return None


def _keys(traceparent: object) -> list[str]:
    """Of the span, of the trace."""
    return [str(hint) for hint in read_traceparent(traceparent)]
