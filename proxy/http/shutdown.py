"""The end of this process as running calls hear of it.

Owns: which calls wait for somebody else right now, telling all of them at once that there is no more time, and which
requests have no end of their own. Refuses: deciding when (`proxy.supervision.draining`), and what a call then tells its
client (`proxy.serving.calls`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from proxy.errors import Unavailable

REQUEST: Final = "hone.request"  # the scope's key of its `RunningRequest`


class ShuttingDown(Unavailable):
    """This process ends. Whoever asks again finds the next one."""

    code = "stopping"
    retry_after_s = 5


@dataclass(eq=False, slots=True)
class RunningRequest:
    """A request that runs."""

    listens: bool = False  # its answer is news of whatever happens: a stop ends it as soon as no other runs


def mark_endless(scope: Mapping[str, Any]) -> None:
    """Say of a request that its answer has no end of its own."""
    if (request := scope.get(REQUEST)) is not None:
        request.listens = True


class Shutdown:
    """What running calls are cut by. One a process."""

    def __init__(self) -> None:
        self.over = False
        self._waiting: set[Callable[[], None]] = set()

    def wait_with(self, cut: Callable[[], None]) -> None:
        """Call `cut` when there is no more time; at once where that is so already."""
        self._waiting.add(cut)
        if self.over:
            cut()

    def forget(self, cut: Callable[[], None]) -> None:
        """It waits no more."""
        self._waiting.discard(cut)

    def cut(self) -> None:
        """There is no more time: every waiting call ends now."""
        self.over = True
        for cut in list(self._waiting):
            cut()
