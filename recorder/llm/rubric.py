"""A rubric as a list of criteria: parse a scenario's `rubric` strictly.

Owns: the form of a criterion, its defaults, and refusing lists that cannot produce a reward. Refuses: files
(`trainer.tasks.scenarios`) and judging (`judge.rewards.rubrics`). Both parse rubrics here, so both accept the
same rubrics. A rubric that is not a list (a text, an object) is text for RULER and is ignored here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from recorder.base import rules
from recorder.base.function_paths import is_function_path
from recorder.base.rules import Rule
from recorder.errors import RubricInvalid

_ID: Final = re.compile(r"[A-Za-z0-9._:-]{1,64}")
_KEYS: Final = ("id", "text", "weight", "check")
_RULE_KEYS: Final = ("rule", "value")


@dataclass(frozen=True, slots=True)
class RuleCheck:
    """A rule that decides a criterion: the criterion is met if the trajectory keeps the rule."""

    rule: Rule
    value: Any


@dataclass(frozen=True, slots=True)
class Criterion:
    """One property that an answer has or lacks. A negative weight marks a pitfall: meeting it lowers the reward.

    `check`: a rule or function (`package.module:function`) that decides instead of the judge.
    """

    id: str
    text: str
    weight: float = 1.0
    check: RuleCheck | str | None = None


def parse_criteria(value: object) -> list[Criterion]:
    """Return the criteria of a list, in order: texts, or objects with `text` and other keys.

    Raises: RubricInvalid: names the criterion by its position, and the key.
    """
    if not isinstance(value, Sequence) or isinstance(value, str):
        raise RubricInvalid("a rubric with criteria is a list of texts or objects")
    if not value:
        raise RubricInvalid("it has no criterion")
    found: dict[str, Criterion] = {}
    for place, entry in enumerate(value, start=1):
        try:
            one = _criterion(place, entry)
            if one.id in found:
                raise RubricInvalid(f"two criteria have the id {one.id!r}")
        except RubricInvalid as e:
            raise RubricInvalid(str(e), place) from e
        found[one.id] = one
    if not any(one.weight > 0 for one in found.values()):
        raise RubricInvalid("no criterion has a weight above 0, so no reward is possible")
    return list(found.values())


def check_functions(rubrics: Iterable[Any]) -> frozenset[str]:
    """Return the functions that decide criteria of these rubrics; invalid rubrics are ignored."""
    found: set[str] = set()
    for rubric in rubrics:
        with suppress(RubricInvalid):
            found |= {one.check for one in parse_criteria(rubric) if isinstance(one.check, str)}
    return frozenset(found)


def rubric_text(rubric: Any) -> Any:
    """Return the text of a scenario's rubric for RULER: the texts of a list, else the rubric unchanged."""
    if not isinstance(rubric, list):
        return rubric
    return [entry["text"] if isinstance(entry, Mapping) and "text" in entry else entry for entry in rubric]


def _criterion(place: int, entry: object) -> Criterion:
    where = f"criterion {place}"
    if isinstance(entry, str):
        return Criterion(str(place), _text(where, entry))
    if not isinstance(entry, Mapping):
        raise RubricInvalid(f"{where} is {_kind(entry)}: it must be a text or an object with `text`")
    _only(where, entry, _KEYS)
    return Criterion(
        _id(where, entry.get("id", place)),
        _text(f"{where}: `text`", entry.get("text")),
        _weight(where, entry.get("weight", 1.0)),
        _check(where, entry.get("check")),
    )


def _text(where: str, value: object) -> str:
    if not isinstance(value, str):
        raise RubricInvalid(f"{where} is {_kind(value)}: it must be a text")
    if not value.strip():
        raise RubricInvalid(f"{where} is empty")
    return value.strip()


def _id(where: str, value: object) -> str:
    name = str(value) if isinstance(value, int) and not isinstance(value, bool) else value
    if not isinstance(name, str) or not _ID.fullmatch(name):
        raise RubricInvalid(f"{where}: `id` {value!r:.80} is not 1 to 64 of A-Z a-z 0-9 . _ : -")
    return name


def _weight(where: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise RubricInvalid(f"{where}: `weight` is {_kind(value)}: it must be a number")
    try:
        weight = float(value)
    except OverflowError:
        weight = math.inf
    if weight == 0 or not math.isfinite(weight):
        raise RubricInvalid(
            f"{where}: `weight` is {weight:g}: it must be finite and not 0 (below 0 it marks a pitfall)"
        )
    return weight


def _check(where: str, value: object) -> RuleCheck | str | None:
    if isinstance(value, Mapping):
        return _rule_check(f"{where}: `check`", value)
    if value is None:
        return None
    if not isinstance(value, str) or not is_function_path(value):
        forms = "`package.module:function`, or an object with `rule` and `value`"
        raise RubricInvalid(f"{where}: `check` {value!r:.80} is not of the form {forms}")
    return value


def _rule_check(where: str, value: Mapping[str, Any]) -> RuleCheck:
    _only(where, value, _RULE_KEYS)
    rule = next((name for name in rules.NAMES if name == value.get("rule")), None)
    if rule is None:
        raise RubricInvalid(f"{where}: `rule` {value.get('rule')!r:.80} is none of {', '.join(rules.NAMES)}")
    held_to = value.get("value")
    if wrong := rules.form_error(rule, held_to) or rules.value_error(rule, held_to):
        raise RubricInvalid(f"{where}: `value` of the rule {rule!r} {wrong}")
    return RuleCheck(rule, held_to)


def _only(where: str, entry: Mapping[str, Any], known: Sequence[str]) -> None:
    for key in entry:
        if key not in known:
            raise RubricInvalid(f"{where}: unknown key {key!r} (known: {', '.join(known)})")


def _kind(value: object) -> str:
    names = {
        list: "a list",
        dict: "an object",
        str: "a text",
        bool: "true or false",
        int: "a number",
        float: "a number",
    }
    return names.get(type(value), "null" if value is None else type(value).__name__)
