"""Parse JSON in texts that a model or a client wrote: tool calls' arguments, answers.

Owns: the limits under which a text is parsed. Refuses: the bodies of requests (`proxy.dialects.engine_fields`).

The parser holds the interpreter, and takes time by the values: a megabyte of empty lists takes 70 ms, and a number of
4,000 digits 100 µs. A text above the limits is no JSON for Hone, and is treated like any other text.
"""

from __future__ import annotations

import json
from typing import Any, Final, NoReturn

from recorder.base.json_depth import is_deeper

MAX_CHARS: Final = 1 << 21  # of long texts: 15 ms
MAX_VALUES: Final = 50_000  # and brackets: 40 ms
MAX_DIGITS: Final = 400  # of a whole number
MAX_DEPTH: Final = 200  # so that what reads or writes the value may recurse


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
