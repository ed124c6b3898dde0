"""JSON of which a part or two is replaced by anything that JSON can say: most of it is read before that is met."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from hypothesis import strategies as st

Place = tuple[str | int, ...]


def nested(levels: int) -> Any:
    """A list in a list in a list …"""
    value: Any = []
    for _ in range(levels):
        value = [value]
    return value


_TEXTS = st.sampled_from(
    ["", "x", "\x00", "\ud800", "über 🚚", "[DONE]", "null", "7", "stop", "length", "a" * 300, "\n\n"]
)
_NUMBERS = st.sampled_from(
    [0, 1, 2, -1, 7, 128, 2**31, 2**53, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e308, -9999.0]
)
_ODD = st.sampled_from(
    [float("nan"), float("inf"), nested(300), {"a": nested(100)}, [[]], [None], ["a"], [{}], {"": {}}]
)
_NAMES = st.sampled_from(
    ["", "index", "id", "type", "text", "content", "role", "name", "function", "arguments", "usage"]
)
JUNK: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | _NUMBERS | _TEXTS | st.integers() | st.text(max_size=5) | _ODD,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_NAMES, inner, max_size=3),
    max_leaves=8,
)


def _places(value: Any, at: Place = ()) -> Iterator[Place]:
    yield at
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for name, part in inner:
        yield from _places(part, (*at, name))


def _changed(value: Any, at: Place, kind: str, junk: Any) -> Any:
    """`value` with the part at a place changed."""
    if not at:
        return [value] if kind == "wrap" else junk
    name, *rest = at
    if rest or kind in ("replace", "wrap"):
        inner = _changed(value[name], tuple(rest), kind, junk)
        if isinstance(value, dict):
            return {**value, name: inner}
        return [inner if place == name else part for place, part in enumerate(value)]
    if isinstance(value, dict):  # drop it, or have another beside it
        rest_of = {key: part for key, part in value.items() if key != name}
        return rest_of if kind == "drop" else {**value, f"{name}_": junk}
    kept = [part for place, part in enumerate(value) if place != name or kind == "double"]
    return [*kept, value[name]] if kind == "double" else kept


@st.composite
def spoilt(draw: st.DrawFn, sound: Any, least: int = 1, most: int = 2) -> Any:
    """`sound` with so many parts replaced, dropped, doubled or wrapped."""
    for _ in range(draw(st.integers(least, most))):
        place = draw(st.sampled_from(list(_places(sound))))
        kind = draw(st.sampled_from(["replace", "replace", "replace", "drop", "double", "wrap"]))
        sound = _changed(sound, place, kind, draw(JUNK))
    return sound


def dumped(value: Any) -> bytes:
    """As JSON, whatever it is."""
    return json.dumps(value).encode()
