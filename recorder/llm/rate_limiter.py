"""Rate limits of a model: requests and tokens per minute, and the pauses that it requests.

Owns: the usage of the last minute, shared by all callers in one process, and parsing `Retry-After`. Refuses: sending
requests (`recorder.llm.client`).
"""

from __future__ import annotations

import functools
import math
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Final

MINUTE_S: Final = 60.0
MOST_HELD_S: Final = 86_400.0  # a longer pause is shortened to a day


@dataclass(slots=True)
class RequestSlot:
    """One admitted request. Its tokens are an upper bound until its answer has the exact number."""

    at: float
    tokens: int


class RateLimiter:
    """The requests to a model within the last minute. For one event loop; it does not wait itself."""

    def __init__(
        self,
        requests_per_minute: int | None,
        tokens_per_minute: int | None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._requests = requests_per_minute
        self._tokens = tokens_per_minute
        self._clock = clock
        self._turns: deque[RequestSlot] = deque()
        self._held_until = 0.0

    def take(self, tokens: int) -> RequestSlot | float:
        """Return a slot for a request of at most `tokens` tokens, or the seconds to wait before trying again.

        A request with more tokens than a minute allows gets its slot when no other request has one.
        """
        at = self._clock()
        if self._held_until > at:
            return self._held_until - at
        while self._turns and self._turns[0].at + MINUTE_S <= at:
            self._turns.popleft()
        if self._full(tokens):
            return self._turns[0].at + MINUTE_S - at
        turn = RequestSlot(at, tokens)
        self._turns.append(turn)
        return turn

    def _full(self, tokens: int) -> bool:
        if not self._turns:
            return False
        if self._requests is not None and len(self._turns) >= self._requests:
            return True
        return self._tokens is not None and sum(turn.tokens for turn in self._turns) + tokens > self._tokens

    def hold(self, for_s: float) -> None:
        """Give no slot for `for_s` seconds."""
        self._held_until = max(self._held_until, self._clock() + min(for_s, MOST_HELD_S))

    def held_s(self) -> float:
        """Return the seconds for which no slot is given."""
        return max(0.0, self._held_until - self._clock())


@functools.cache
def shared_limiter(
    model: str, api_base: str | None, requests_per_minute: int | None, tokens_per_minute: int | None
) -> RateLimiter:
    """Return the rate limiter of a model in this process; all callers with the same settings share it."""
    return RateLimiter(requests_per_minute, tokens_per_minute)


def retry_after_s(retry_after: str | None, now: float) -> float:
    """Return the seconds of a `Retry-After`, a number or a date (`now`: unix seconds); 0 if it is neither."""
    if retry_after is None:
        return 0.0
    try:
        seconds = float(retry_after)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(retry_after).timestamp() - now
        except (ValueError, OverflowError):
            return 0.0
    return max(0.0, seconds) if math.isfinite(seconds) else 0.0
