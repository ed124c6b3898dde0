"""A process in which nothing varies: the clock stands, ids are counted, random bits are drawn from a seed.

Owns: what is made steady, for the whole process and for good: `python -m tests.golden` alone calls it, before it
imports what makes ids.
"""

from __future__ import annotations

import os
import random
import secrets
import socket
import sqlite3
import time
from collections import Counter
from functools import wraps
from typing import Any, Final

from recorder import ids

BEGIN: Final = 1_740_996_000.0  # 2025-03-03 10:00:00 UTC
_STEP_S: Final = 0.5
# Ids whose making moves the clock on. Calls and messages do not: how many of them there are must not move every time.
_MOVING: Final = frozenset({"traj", "step", "ver", "score", "camp"})
_UNIX_EPOCH: Final = 2_440_587.5  # in Julian days


class Clock:
    """A clock that stands still until an id of an event moves it on."""

    def __init__(self) -> None:
        self.at = BEGIN
        self._made: Counter[str] = Counter()

    def time(self) -> float:
        """The time, in unix seconds."""
        return self.at

    def new_id(self, prefix: str) -> str:
        """An id as `recorder.ids` makes it, of this clock's time; its end counts the ids with this prefix."""
        self.at += _STEP_S if prefix in _MOVING else 0.0
        self._made[prefix] += 1
        return f"{ids.first_id_at(prefix, self.at)[:-8]}{self._made[prefix]:08d}"


def make_steady() -> Clock:
    """Fix clock, time zone, randomness and this machine's names, and return the clock."""
    clock, drawn = Clock(), random.Random(7)
    os.environ["TZ"] = "UTC"
    time.tzset()
    vars(time).update(time=clock.time, time_ns=lambda: int(clock.time() * 1_000_000_000))
    ids.new_id = clock.new_id
    vars(random).update(SystemRandom=lambda: random.Random(7))
    vars(secrets).update(randbits=drawn.getrandbits)
    secrets.token_bytes = lambda nbytes=None: drawn.randbytes(nbytes or 32)
    secrets.token_hex = lambda nbytes=None: drawn.randbytes(nbytes or 32).hex()
    secrets.token_urlsafe = secrets.token_hex
    socket.gethostname = lambda: "host"
    sqlite3.connect = _with_clock(sqlite3.connect, clock)
    return clock


def _with_clock(connect: Any, clock: Clock) -> Any:
    """`sqlite3.connect`, whose connections have the steady clock as theirs."""

    @wraps(connect)
    def connected(*args: Any, **kw: Any) -> sqlite3.Connection:
        made: sqlite3.Connection = connect(*args, **kw)
        made.create_function("julianday", 1, lambda _: _UNIX_EPOCH + clock.time() / 86_400)
        return made

    return connected
