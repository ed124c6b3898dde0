"""How deeply a JSON value is nested, and a copy that is nested no deeper. Without recursion.

Owns: the walk, and what stands in place of what is omitted. Refuses: parsing (`recorder.base.json_text`).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

OMITTED: Final = "[… nested too deeply: left out …]"


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
