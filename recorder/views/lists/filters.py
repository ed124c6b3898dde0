"""By what lists are narrowed, as data.

Owns: the two filters. Refuses: reading them from words (`recorder.views.lists.filters`), and SQL.

Filters as words: `alias=helpdesk`, `state=open`. One vocabulary for addresses of pages, `/hone/v1` and the terminal.

Owns: the words, what each takes, and reading them. Refuses: what a filter does.
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from recorder.base.hours import parse_time
from recorder.errors import FilterInvalid
from recorder.states import GroupState, Origin, Purpose, TrajectoryState


@dataclass(frozen=True, slots=True)
class TrajectoryFilter:
    """What a run must be to be listed; what is None or empty narrows nothing. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None  # its name, `helpdesk@3`: the run's pin
    states: tuple[TrajectoryState, ...] = ()  # one of them
    purpose: Purpose | None = None
    origins: tuple[Origin, ...] = ()  # one of them
    source: str | None = None  # by what one of its calls was attributed
    session: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()  # name and value, all of them; None: any value
    reward_from: float | None = None
    reward_to: float | None = None
    since: float | None = None  # it began then or later
    until: float | None = None  # it began before
    tool_error: bool | None = None  # whether one of its tool calls failed
    reason: str | None = None  # a ledger code: of the run, or of its group
    group: str | None = None  # an internal or external id
    said: str | None = None  # words that were said in it


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """What a group must be to be listed; what is None or empty narrows nothing. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None
    states: tuple[GroupState, ...] = ()
    reason: str | None = None  # why it is left out or unscored
    campaign: str | None = None  # its id, or its name
    spread_from: float | None = None  # between the best and the worst reward of its current score
    spread_to: float | None = None
    since: float | None = None  # it was opened then or later
    until: float | None = None  # it was opened before


ALL_TRAJECTORIES: Final = TrajectoryFilter()
ALL_GROUPS: Final = GroupFilter()


Read = Callable[[str], Any]
MOST_CHARS: Final = 500  # of one value
MOST_VALUES: Final = 20  # of one word
_UNSTORED: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FilterParam:
    """A word by which a list is narrowed: its field of the filter, what it takes, and what it means."""

    name: str
    about: str
    field: str
    read: Read  # raises ValueError with what is expected
    takes: tuple[str, ...] = ()  # all values there are; none: any that can be read
    many: bool = False  # whether it may be said more than once


def _text(value: str) -> str:
    return value


def _number(value: str) -> float:
    try:
        read = float(value)
    except ValueError:
        read = math.nan
    if not math.isfinite(read):
        raise ValueError(f"{value!r} is no number")
    return read


def _moment(value: str) -> float:
    return parse_time(value, time.time())


def _whether(value: str) -> bool:
    if value not in _WHETHER:
        raise ValueError(f"{value!r} is neither yes nor no")
    return value == "yes"


def _tag(value: str) -> tuple[str, str | None]:
    name, equals, wanted = (part.strip() for part in value.partition("="))
    if not name or '"' in name:  # a name in quotes is what SQLite's paths of JSON know
        raise ValueError(f"{value!r} names no tag: write name, or name=value")
    return name, wanted if equals else None


_WHETHER: Final = ("yes", "no")


def _one_of(name: str, about: str, kind: type[StrEnum], *, field: str | None = None) -> FilterParam:
    takes = tuple(member.value for member in kind)

    def read(value: str) -> StrEnum:
        if value not in takes:
            raise ValueError(f"{value!r} is none of {', '.join(takes)}")
        return kind(value)

    return FilterParam(name, about, field or name, read, takes, many=field is not None)


def _word(name: str, about: str, read: Read = _text, **others: Any) -> FilterParam:
    return FilterParam(name, about, others.pop("field", name), read, **others)


_TIMES: Final = "24h, 7d, 2026-11-20, 2026-11-20T09:00 or unix seconds"
TRAJECTORY_FILTER_PARAMS: Final[Mapping[str, FilterParam]] = {
    word.name: word
    for word in (
        _word("said", 'Words that were said in it; "a phrase", begin*, -without.'),
        _word("alias", "Of this alias."),
        _word("version", "Of this version (helpdesk@3)."),
        _one_of("state", "In this state.", TrajectoryState, field="states"),
        _one_of("purpose", "Of this purpose.", Purpose),
        _one_of("origin", "From there.", Origin, field="origins"),
        _word("source", "A call of it was attributed by this (path, key, header, lineage …)."),
        _word("session", "Of this session of its client."),
        _word("tag", "With this tag: name, or name=value.", _tag, field="tags", many=True),
        _word("reward_from", "With at least this reward.", _number),
        _word("reward_to", "With at most this reward.", _number),
        _word("since", f"Begun since: {_TIMES}.", _moment),
        _word("until", f"Begun before: {_TIMES}.", _moment),
        _word("tool_error", "Whether a tool call of it failed.", _whether, takes=_WHETHER),
        _word("reason", "Of which, or of whose group, the ledger says this."),
        _word("group", "Of this group: its id, or the one its caller gave."),
    )
}
GROUP_FILTER_PARAMS: Final[Mapping[str, FilterParam]] = {
    word.name: word
    for word in (
        _word("alias", "Of this alias."),
        _word("version", "Of this version (helpdesk@3)."),
        _one_of("state", "In this state.", GroupState, field="states"),
        _word("reason", "Left out or unscored for this reason."),
        _word("campaign", "Of this campaign: its id, or its name."),
        _word("spread_from", "With at least this between the best and the worst reward.", _number),
        _word("spread_to", "With at most this between the best and the worst reward.", _number),
        _word("since", f"Opened since: {_TIMES}.", _moment),
        _word("until", f"Opened before: {_TIMES}.", _moment),
    )
}


def parse_trajectory_filter(said: Iterable[tuple[str, str]]) -> TrajectoryFilter:
    """The filter of runs that words and their values say. An empty value says nothing. Raises FilterInvalid."""
    return TrajectoryFilter(**_read(TRAJECTORY_FILTER_PARAMS, said))


def parse_group_filter(said: Iterable[tuple[str, str]]) -> GroupFilter:
    """The filter of groups that words and their values say. An empty value says nothing. Raises FilterInvalid."""
    return GroupFilter(**_read(GROUP_FILTER_PARAMS, said))


def _read(words: Mapping[str, FilterParam], said: Iterable[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for name, value in said:
        word = words.get(name)
        if word is None:
            raise FilterInvalid(f"no list is narrowed by {name[:80]!r}: there are {', '.join(words)}", name)
        if value.strip():
            found.setdefault(name, []).append(_value(word, value.strip()))
    return {words[name].field: _only(words[name], values) for name, values in found.items()}


def _value(word: FilterParam, value: str) -> Any:
    if len(value) > MOST_CHARS:
        raise FilterInvalid(f"{word.name}: a value has at most {MOST_CHARS} characters", word.name)
    if _UNSTORED.search(value):
        raise FilterInvalid(f"{word.name}: the value has a character that nothing recorded has", word.name)
    try:
        return word.read(value)
    except ValueError as e:
        raise FilterInvalid(f"{word.name}: {e}", word.name) from e


def _only(word: FilterParam, values: Sequence[Any]) -> Any:
    if word.many:
        if len(values) > MOST_VALUES:
            raise FilterInvalid(f"{word.name}: said {len(values)} times, at most {MOST_VALUES} are read", word.name)
        return tuple(dict.fromkeys(values))
    if len(values) > 1:
        raise FilterInvalid(f"{word.name}: said {len(values)} times, once is all that it takes", word.name)
    return values[0]
