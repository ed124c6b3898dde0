"""How long to wait before trying again what a server refused or broke off. Refuses: trying."""

from __future__ import annotations

import asyncio
import time
from typing import Final

FIRST_WAIT_S: Final = 0.1  # before the second try; twice as long before each further one
LONGEST_WAIT_S: Final = 15.0


class Patience:
    """The waits between tries, longer each time, until one was of use for a while."""

    def __init__(self) -> None:
        self._wait_s = FIRST_WAIT_S
        self._since = time.monotonic()

    async def wait(self) -> None:
        """Wait; what is tried next begins when this returns."""
        if time.monotonic() - self._since > LONGEST_WAIT_S:
            self._wait_s = FIRST_WAIT_S
        await asyncio.sleep(self._wait_s)
        self._wait_s = min(2 * self._wait_s, LONGEST_WAIT_S)
        self._since = time.monotonic()
