"""Create internal ids (``traj_01hv…``, sortable by time) and validate external ones. Refuses: lookups."""

from __future__ import annotations

import os
import re
import time

from recorder.errors import InvalidId

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32
_PAIRS = tuple(a + b for a in _ALPHABET for b in _ALPHABET)  # 10 bits per lookup
_PAIR_SHIFTS = range(120, -1, -10)
_DIGITS = {digit: value for value, digit in enumerate(_ALPHABET)}
_LENGTH = 26
_EXTERNAL = re.compile(r"[A-Za-z0-9._:~-]{1,128}")


def new_id(prefix: str) -> str:
    """Return ``<prefix>_<26 characters>``: 48 bits of unix milliseconds, then 80 random bits."""
    value = (time.time_ns() // 1_000_000) << 80 | int.from_bytes(os.urandom(10))
    return prefix + "_" + "".join([_PAIRS[value >> shift & 1023] for shift in _PAIR_SHIFTS])


def first_id_at(prefix: str, at: float) -> str:
    """Return the smallest id that `new_id` can make at a time (unix seconds): ids of a kind sort by time."""
    value = max(0, int(at * 1000)) << 80
    return prefix + "_" + "".join([_PAIRS[value >> shift & 1023] for shift in _PAIR_SHIFTS])


def id_time_ms(own_id: str) -> int:
    """Return when `new_id` made an id (unix milliseconds); 0 if it did not make it."""
    made = own_id.rpartition("_")[2]
    if len(made) != _LENGTH or not _DIGITS.keys() >= set(made):
        return 0
    value = 0
    for digit in made[:10]:  # 50 bits, of which 48 are time
        value = value << 5 | _DIGITS[digit]
    return value


def check_external(value: str, what: str) -> str:
    """Return `value` if it is a legal external id, else raise `InvalidId` naming `what`."""
    if value in {".", ".."} or not _EXTERNAL.fullmatch(value):
        raise InvalidId(
            f"{what} {value[:160]!r} is not a valid id: use 1 to 128 of A-Z a-z 0-9 . _ : ~ - (and not '.' or '..')"
        )
    return value
