"""Which recorded runs are wanted: `--where reward<0.5`, `--where tag.team=billing`.

Owns: the form of a condition, and whether it holds. Pure. Refuses: reading runs (`trainer.tasks.traffic`).
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from trainer.errors import ConditionInvalid

_FORM: Final = re.compile(r"\s*(?P<field>[\w.-]+)\s*(?P<how><=|>=|!=|=|<|>)\s*(?P<value>.*?)\s*")
_HOW: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NUMBERS: Final = ("reward", "calls", "started")  # `started`: unix seconds
TEXTS: Final = ("version",)
TAG: Final = "tag."


@dataclass(frozen=True, slots=True)
class Condition:
    """One thing that a wanted run has."""

    field: str
    how: str
    value: float | str

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether it holds of a run. A run that has no such thing (no reward yet) is not wanted, but by `!=`."""
        found = facts.get(self.field)
        if found is None:
            return self.how == "!="
        return _HOW[self.how](found, self.value)


def parse(text: str) -> Condition:
    """Read a condition. Raises `ConditionInvalid`."""
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConditionInvalid(f"--where {text!r} is no condition: write FIELD=VALUE, with one of = != < <= > >=")
    name, how, value = found["field"], found["how"], found["value"]
    if name in NUMBERS:
        return Condition(name, how, _number(text, value))
    if name not in TEXTS and not (name.startswith(TAG) and len(name) > len(TAG)):
        known = ", ".join((*NUMBERS, *TEXTS, f"{TAG}NAME"))
        raise ConditionInvalid(f"--where {text!r}: there is no field {name!r} (known: {known})")
    if how not in ("=", "!="):
        raise ConditionInvalid(f"--where {text!r}: {name} is text, and can be = or != only")
    return Condition(name, how, value)


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConditionInvalid(f"--where {text!r}: {value!r} is no number") from None
