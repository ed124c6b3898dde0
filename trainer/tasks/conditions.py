"""Conditions on recorded trajectories: `reward<0.5`, `tag.team=billing`, `best_of_group=yes`.

Owns: their form, their fields, and whether they hold. Refuses: reading the store.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from recorder.queue.feedback import DEMONSTRATION
from recorder.views.lists.trajectories import TrajectoryLine
from recorder.views.trajectories.shapes import TrajectoryView
from trainer.errors import ConditionInvalid

_FORM: Final = re.compile(r"\s*(?P<field>[\w.-]+)\s*(?P<how><=|>=|!=|=|<|>)\s*(?P<value>.*?)\s*")
_HOW: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "=": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
NUMBERS: Final = ("reward", "calls", "started")  # `started`: unix seconds
BEST: Final = "best_of_group"  # yes: no other trajectory of its group has a higher reward, and one has a lower one
_YES_OR_NO: Final = (BEST, DEMONSTRATION)  # yes: somebody wrote what an answer of it should have been
TEXTS: Final = ("version", "model", DEMONSTRATION)
TAG: Final = "tag."


@dataclass(frozen=True, slots=True)
class Condition:
    """One condition on a trajectory."""

    field: str
    how: str
    value: float | str

    def holds(self, facts: Mapping[str, Any]) -> bool:
        """Whether a trajectory meets it. If the field is missing (no reward yet), only `!=` holds."""
        found = facts.get(self.field)
        if found is None:
            return self.how == "!="
        return _HOW[self.how](found, self.value)


def parse_condition(text: str, *, of_groups: bool = False) -> Condition:
    """Read a condition. `of_groups`: `BEST` is a field, too. Raises `ConditionInvalid`."""
    texts = (*TEXTS, BEST) if of_groups else TEXTS
    found = _FORM.fullmatch(text)
    if found is None:
        raise ConditionInvalid(f"{text!r} is not a condition: write FIELD=VALUE, with one of = != < <= > >=")
    name, how, value = found["field"], found["how"], found["value"]
    if name in NUMBERS:
        return Condition(name, how, _number(text, value))
    if name not in texts and not (name.startswith(TAG) and len(name) > len(TAG)):
        known = ", ".join((*NUMBERS, *texts, f"{TAG}NAME"))
        raise ConditionInvalid(f"condition {text!r}: there is no field {name!r} (known: {known})")
    if how not in ("=", "!="):
        raise ConditionInvalid(f"condition {text!r}: {name} is text, and takes only = and !=")
    if name in _YES_OR_NO and value not in ("yes", "no"):
        raise ConditionInvalid(f"condition {text!r}: {name} is yes or no")
    return Condition(name, how, value)


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise ConditionInvalid(f"condition {text!r}: {value!r} is not a number") from None


def line_facts(line: TrajectoryLine) -> dict[str, Any]:
    """The fields that a trajectory's line has."""
    return {"reward": line.reward, "calls": line.call_count, "started": line.started_at, "version": line.version}


def condition_facts(line: TrajectoryLine, view: TrajectoryView) -> dict[str, Any]:
    """The fields of a trajectory that a condition may use; without those about its group."""
    model = view.calls[0].model if view.calls else None
    corrected = "yes" if any(one.name == DEMONSTRATION for one in view.feedback) else "no"
    return (
        line_facts(line)
        | {"model": model, DEMONSTRATION: corrected}
        | {f"{TAG}{name}": value for name, value in view.tags.items()}
    )


def is_best(reward: float | None, rewards: Iterable[float]) -> bool:
    """Whether a reward is the highest of a group that has different ones (`BEST`)."""
    found = list(rewards)
    return reward is not None and bool(found) and min(found) < reward == max(found)
