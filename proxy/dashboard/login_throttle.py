"""Limit failed sign-ins: after `ALLOWED` unknown keys within a minute, the sender has to wait.

Failures are counted by the sender's address, in this process. Behind a load balancer all senders share one address.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from typing import Final

from proxy.errors import TooMany
from recorder.base.lru import Lru

ALLOWED: Final = 10
WITHIN_S: Final = 60.0
REMEMBERED: Final = 1000  # senders


class LoginThrottle:
    """The recent failed sign-ins. One a process."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._wrong: Lru[str, tuple[float, ...]] = Lru(REMEMBERED)

    def require_few(self, sender: str) -> None:
        """Raise TooMany if a sender has to wait."""
        lately = self._lately(sender)
        if len(lately) >= ALLOWED:
            wait_s = max(1, math.ceil(lately[0] + WITHIN_S - self._clock()))
            raise TooMany(
                f"too many unknown keys from {sender[:100]}: try again in {wait_s} s.",
                retry_after_s=wait_s,
            )

    def failed(self, sender: str) -> None:
        """Count a failed sign-in."""
        self._wrong.put(sender, (*self._lately(sender), self._clock())[-ALLOWED:])

    def _lately(self, sender: str) -> tuple[float, ...]:
        since = self._clock() - WITHIN_S
        return tuple(at for at in self._wrong.get(sender) or () if at > since)
