"""Shutdown of this process, as running calls see it.

Owns: which calls wait on another party now, ending all of them at once, and which requests have no end of their own.
Refuses: when to shut down (`proxy.supervision.draining`), and what a call then sends to its client
(`proxy.serving.calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import Unavailable

REQUEST: Final = "hone.request"  # the scope's key of its `RunningRequest`


class ShuttingDown(Unavailable):
    """This process is stopping. A retry reaches its successor."""

    code = "stopping"
    retry_after_s = 5


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A request that is being served."""

    answered: bool = False  # its answer began
    listens: bool = False  # its answer is a stream of notifications: a stop ends it as soon as no other request runs


def mark_endless(scope: Mapping[str, Any]) -> None:
    """Mark a request with an answer that does not end by itself."""
    if (request := scope.get(REQUEST)) is not None:
        request.listens = True


class Shutdown:
    """Ends the waiting calls of this process. One per process."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[Callable[[], None]] = set()

    def wait_with(self, cut: Callable[[], None]) -> None:
        """Register `cut`, which is called at shutdown; at once if the shutdown has begun."""
        self._waiting.add(cut)
        if self.over:
            cut()

    def forget(self, cut: Callable[[], None]) -> None:
        """Unregister `cut`."""
        self._waiting.discard(cut)

    def cut(self) -> None:
        """End every waiting call now."""
        self.over = True
        for cut in list(self._waiting):
            cut()
