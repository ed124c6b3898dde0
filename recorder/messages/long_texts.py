"""JSON with long texts, written so that other threads run meanwhile.

Owns: encoding a text of megabytes in pieces. Refuses: reading JSON, and other long values: these are many short ones.

orjson keeps the interpreter until a whole value is written: 95 ms for 15 million new lines. A piece takes 0.4 ms.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

LONG_CHARS: Final = 1 << 18  # of a text: 2 ms at most
_PIECE: Final = 1 << 16


def dump_long_texts(value: object, option: int = 0) -> bytes:
    """Return what `orjson.dumps` returns for a value of texts, numbers, lists and objects. Raises what it raises."""
    return orjson.dumps(_with_fragments(value), option=option)


def _with_fragments(value: Any) -> Any:
    """Return the value with each long text encoded. Raises TypeError for a text with half a character."""
    if isinstance(value, str):
        return _fragment(value) if len(value) > LONG_CHARS else value
    if isinstance(value, dict):
        return {name: _with_fragments(inner) for name, inner in value.items()}
    return [_with_fragments(inner) for inner in value] if isinstance(value, list) else value


def _fragment(text: str) -> orjson.Fragment:
    pieces = [orjson.dumps(text[at : at + _PIECE])[1:-1] for at in range(0, len(text), _PIECE)]
    return orjson.Fragment(b"".join([b'"', *pieces, b'"']))
