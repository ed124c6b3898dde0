"""The end of this process as running calls hear of it.

Owns: which calls wait for somebody else right now, and telling all of them at once that there is no more time.
Refuses: deciding when (`proxy.programs.draining`), and what a call then tells its client (`proxy.serving.calls`).
"""

from __future__ import annotations

from collections.abc import Callable

from proxy.errors import Unavailable


class Stopping(Unavailable):
    """This process ends. Whoever asks again finds the next one."""

    code = "stopping"
    retry_after_s = 5


class Stop:
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
