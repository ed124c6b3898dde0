"""After ten wrong keys within a minute their sender waits, nobody else does, and what is remembered is bounded."""

from __future__ import annotations

import pytest

from proxy.dashboard.login_throttle import ALLOWED, REMEMBERED, LoginThrottle
from proxy.errors import TooMany


class Clock:
    def __init__(self) -> None:
        self.at = 1000.0

    def __call__(self) -> float:
        return self.at


def test_a_sender_waits_until_a_minute_after_the_first_of_the_last_ten() -> None:
    clock = Clock()
    tries = LoginThrottle(clock)
    for _ in range(ALLOWED):
        tries.require_few("10.0.0.1")
        tries.failed("10.0.0.1")
        clock.at += 1
    with pytest.raises(TooMany, match="try again in 50 s") as told:
        tries.require_few("10.0.0.1")
    assert told.value.retry_after_s == 50
    tries.require_few("10.0.0.2")
    clock.at += 50
    tries.require_few("10.0.0.1")


def test_what_is_remembered_is_bounded() -> None:
    tries = LoginThrottle(Clock())
    for number in range(REMEMBERED + 10):
        for _ in range(ALLOWED + 3):
            tries.failed(f"peer {number}")
    assert len(tries._wrong) == REMEMBERED
    assert len(tries._wrong.get(f"peer {REMEMBERED}") or ()) == ALLOWED
