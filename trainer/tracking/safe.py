"""Which settings may leave this machine: numbers, switches and choices.

Owns: that rule. Refuses: every text, path, address and command that somebody wrote, for any of them may hold a key.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel

from trainer.tracking.base import Value


def safe(model: BaseModel, section: str) -> dict[str, Value]:
    """The settings of a section that may be sent, by dotted key."""
    return dict(_of(model, f"{section}."))


def _of(model: BaseModel, prefix: str) -> Iterator[tuple[str, Value]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        if isinstance(value, BaseModel):
            yield from _of(value, f"{prefix}{name}.")
        elif isinstance(value, bool | int | float):
            yield prefix + name, value
        elif isinstance(value, str) and value in _choices(field.annotation):
            yield prefix + name, str(value)


def _choices(annotation: Any) -> set[object]:
    """The words of which a setting must be one."""
    inner = get_args(annotation)
    if get_origin(annotation) is Literal:
        return set(inner)
    return set().union(*map(_choices, inner))
