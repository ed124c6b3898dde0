"""How many values the JSON of a request's body has, counted before it is parsed.

Owns: the count. Refuses: the limit (`proxy.max_body_values`), and whether the body is JSON at all.

Parsing and checking a body takes time by its values, not by its bytes: 30 MB of empty lists are ten million objects,
and parsing them holds the interpreter for seconds. Counting takes 5 ms a MB, and holds it for no longer than that.
"""

from __future__ import annotations

from typing import Any, Final

NUMBERS_A_VALUE: Final = 10  # numbers in lists cost a tenth of other values: prompts may be lists of token ids
_PIECE: Final = 1 << 20
_QUOTE, _COMMA = 34, 44


def count_values(body: bytes, most: int) -> int:
    """Return about how many texts, lists, objects and other values a body has; ten numbers count as one.

    If a quick upper bound is at most `most`, it is returned instead.
    """
    bound = sum(body.count(mark) for mark in (b",", b"[", b"{"))
    return bound if bound <= most else _count_outside_texts(body)


def _count_outside_texts(body: bytes) -> int:
    import numpy as np  # here: few bodies are as large

    opens, digits = np.zeros(256, dtype=bool), np.zeros(256, dtype=bool)
    opens[[ord("["), ord("{")]] = True
    digits[[*b"0123456789-"]] = True
    total = numbers = at = 0
    is_inside: Any = np.uint8(0)  # a text, as the piece begins
    while at < len(body):
        end = _piece_end(body, at)
        # an escaped backslash first: of several in a row, each two are one
        codes = np.frombuffer(body[at:end].replace(rb"\\", b"").replace(rb"\"", b""), dtype=np.uint8)
        at = end
        if not len(codes):
            continue
        inside = (np.cumsum(codes == _QUOTE, dtype=np.uint8) + is_inside) & 1
        is_inside = inside[-1]
        commas = (codes == _COMMA) & (inside == 0)
        total += int(np.count_nonzero(commas)) + int(np.count_nonzero(opens[codes] & (inside == 0)))
        numbers += int(np.count_nonzero(commas[:-1] & digits[codes[1:]]))
    return total - numbers + numbers // NUMBERS_A_VALUE


def _piece_end(body: bytes, at: int) -> int:
    """Where a piece ends: not within an escape."""
    end = min(at + _PIECE, len(body))
    backslashes = 0
    while end < len(body) and backslashes < end - at and body[end - 1 - backslashes] == ord("\\"):
        backslashes += 1
    return end - backslashes % 2
