"""Limits on JSON of models and clients: how large it may be to be parsed, how deep, and how many values it has.

Owns: counting the values of a body before it is parsed; parsing texts (tool calls' arguments, answers) within limits;
copies that are nested no deeper. Refuses: the limits of bodies (`proxy.dialects.engine_fields`), and whether a body is
JSON at all.

A parser holds the interpreter, and takes time by the values, not by the bytes: 30 MB of empty lists are ten million
objects and take seconds; a number of 4,000 digits takes 100 µs. Counting takes 5 ms a MB. A text above the limits is no
JSON for Hone, and is treated like any other text.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from typing import Any, Final, NoReturn

MAX_CHARS: Final = 1 << 21  # of long texts: 15 ms
MAX_VALUES: Final = 50_000  # and brackets: 40 ms
MAX_DIGITS: Final = 400  # of a whole number
OMITTED: Final = "[… nested too deeply: left out …]"
MAX_DEPTH: Final = 200  # so that what reads or writes the value may recurse
NUMBERS_A_VALUE: Final = 10  # numbers in lists cost a tenth of other values: prompts may be lists of token ids
_PIECE: Final = 1 << 20
_QUOTE, _COMMA = 34, 44


def parse_json_text(text: str) -> Any:
    """Return the JSON value of a text. Raises ValueError if it is none or above the limits, and RecursionError."""
    return _decode(text, _DECODER)


def parse_strict_json_text(text: str) -> Any:
    """As `parse_json_text`; NaN and Infinity, which are not JSON, raise ValueError too."""
    return _decode(text, _STRICT_DECODER)


def _decode(text: str, decoder: json.JSONDecoder) -> Any:
    if not isinstance(text, str):
        raise TypeError(f"{type(text).__name__} is not a text")
    if len(text) > MAX_CHARS or text.count(",") + text.count("[") + text.count("{") > MAX_VALUES:
        raise ValueError("the text is too large to be parsed")
    value = decoder.decode(text)
    if text.count("[") + text.count("{") > MAX_DEPTH and is_deeper(value, MAX_DEPTH):
        raise ValueError("the text is nested too deeply")
    return value


def _integer(digits: str) -> int:
    if len(digits) > MAX_DIGITS:
        raise ValueError(f"the text has a number of {len(digits)} digits")
    return int(digits)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")


_DECODER: Final = json.JSONDecoder(parse_int=_integer)
_STRICT_DECODER: Final = json.JSONDecoder(parse_int=_integer, parse_constant=_no_constant)


def is_deeper(value: Any, most: int) -> bool:
    """Whether more than `most` lists and objects lie inside each other in a value."""
    level = [value] if _is_nest(value) else []
    for _ in range(most):
        if not level:
            return False
        level = [inner for one in level for inner in _inside(one) if _is_nest(inner)]
    return bool(level)


def limit_nesting(value: Any, most: int) -> Any:
    """Return the value, or a copy in which the lists and objects inside `most` others are replaced by `OMITTED`.

    `most` is small enough for recursion.
    """
    return _limited(value, most) if is_deeper(value, most) else value


def _limited(value: Any, most: int) -> Any:
    if not _is_nest(value):
        return value
    if not most:
        return OMITTED
    if isinstance(value, Mapping):
        return {name: _limited(inner, most - 1) for name, inner in value.items()}
    return [_limited(inner, most - 1) for inner in value]


def _is_nest(value: Any) -> bool:
    return isinstance(value, Mapping | list | tuple)


def _inside(value: Any) -> Collection[Any]:
    return value.values() if isinstance(value, Mapping) else value


def count_values(body: bytes, most: int) -> int:
    """Return about how many texts, lists, objects and other values a body has; ten numbers count as one.

    If a quick upper bound is at most `most`, it is returned instead.
    """
    bound = body.count(b",") + body.count(b"[") + body.count(b"{")
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
