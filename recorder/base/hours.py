"""Parse times as people write them: hours of the day (`22:00-06:00`), and moments (`24h` ago, a date).

By the clock of this machine.

Owns: these, as pure functions. Refuses: asking what time it is.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Final

_DAY_S: Final = 86400.0
_AGO: Final = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)([smhd])", re.ASCII)
_SECONDS: Final = re.compile(r"\d{1,11}(\.\d{1,9})?", re.ASCII)
_UNITS_S: Final = {"s": 1, "m": 60, "h": 3600, "d": 86400}
_FORM: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)-([01]\d|2[0-3]):([0-5]\d)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Hours:
    """A range of the day, in seconds since midnight; it passes midnight if the end is before the start."""

    begin_s: float
    end_s: float

    def opens_in_s(self, local: datetime) -> float:
        """Return the seconds from a local time until the hours begin; 0 within them."""
        since_s = (local - local.replace(hour=0, minute=0, second=0, microsecond=0)).total_seconds()
        if (since_s - self.begin_s) % _DAY_S < (self.end_s - self.begin_s) % _DAY_S:
            return 0.0
        return (self.begin_s - since_s) % _DAY_S


def parse_hours(text: str) -> Hours:
    """`22:00-06:00`. Raises ValueError with what is expected."""
    found = _FORM.fullmatch(text)
    if found is None or (found[1], found[2]) == (found[3], found[4]):
        raise ValueError(f"{text!r} names no hours: write them as 22:00-06:00; leave them out for the whole day")
    begin_h, begin_m, end_h, end_m = map(int, found.groups())
    return Hours(begin_h * 3600.0 + begin_m * 60.0, end_h * 3600.0 + end_m * 60.0)


def parse_time(text: str, now: float) -> float:
    """Unix seconds of an ISO date, of unix seconds, or of how long before `now` (`90m`, `24h`, `7d`).

    Raises ValueError with what is expected.
    """
    if ago := _AGO.fullmatch(text):
        return now - float(ago[1]) * _UNITS_S[ago[2]]
    try:
        return float(text) if _SECONDS.fullmatch(text) else datetime.fromisoformat(text).timestamp()
    except (ValueError, OverflowError, OSError) as e:  # a year that the machine's clock has no number for
        raise ValueError(f"{text!r} is not a time: use 24h, 7d, 2026-11-20, 2026-11-20T09:00 or unix seconds") from e
