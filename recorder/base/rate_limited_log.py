"""Log repeating errors at a bounded rate.

Owns: which lines are logged, and the number of omitted lines. Refuses: the text.
"""

from __future__ import annotations

import logging
import time
from typing import Final

EVERY_S: Final = 10.0


class RateLimitedLog:
    """Logs at most one line every `every_s` seconds; the next line has the number of omitted ones.

    Use one object for each kind of error.
    """

    def __init__(self, log: logging.Logger, every_s: float = EVERY_S) -> None:
        self._log = log
        self._every_s = every_s
        self._at = float("-inf")
        self._held = 0

    def __call__(self, level: int, message: str, *args: object, error: BaseException | None = None) -> None:
        """Log the message, with the traceback of `error` if given, or count it as omitted."""
        now = time.monotonic()
        if now - self._at < self._every_s:
            self._held += 1
            return
        more = f" ({self._held} more like this were not logged)" if self._held else ""
        self._at, self._held = now, 0
        self._log.log(level, f"{message}{more}", *args, exc_info=error)
