"""Filters of lists and of traffic: the filter classes, and their parameters (`alias=helpdesk`, `state=open`).

Owns: the parameters that page URLs, `/hone/v1` and the command line share, their values, and parsing them. Refuses:
SQL (`recorder.views.lists.scans`).
"""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from recorder.base.hours import parse_time
from recorder.errors import FilterInvalid
from recorder.states import ErrorKind, GroupState, Origin, Purpose, TrajectoryState


@dataclass(frozen=True, slots=True)
class TrajectoryFilter:
    """Filters of trajectories; None or empty: no filter. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None  # the name of its pinned version, `helpdesk@3`
    states: tuple[TrajectoryState, ...] = ()  # any of them
    purpose: Purpose | None = None
    origins: tuple[Origin, ...] = ()  # any of them
    source: str | None = None  # of the attribution of one of its calls
    session: str | None = None
    tags: tuple[tuple[str, str | None], ...] = ()  # name and value, all of them; None: any value
    reward_from: float | None = None
    reward_to: float | None = None
    since: float | None = None  # it began at this time or later
    until: float | None = None  # it began before this time
    tool_error: bool | None = None  # whether one of its tool calls failed
    reason: str | None = None  # a ledger code, its own or its group's
    group: str | None = None  # an internal or external id
    dataset: str | None = None  # the name of a dataset that it is in
    search: str | None = None  # words in its messages
    client: str | None = None  # of one of its calls: the product that its User-Agent named
    key: str | None = None  # a name or an id of a key of the family that it belongs to
    tool: str | None = None  # that one of its answers requested
    finish_reason: str | None = None  # of one of its answers
    error: str | None = None  # of one of its calls: an `ErrorKind`, or `ANY`
    trained: bool | None = None  # whether the live version or one of its ancestors was trained on it
    trained_by: str | None = None  # the name of the version that was trained on it, whatever became of that
    tokens_from: float | None = None  # prompt and sampled tokens of its calls together
    tokens_to: float | None = None
    duration_from: float | None = None  # seconds from its first call to the end of its last one
    duration_to: float | None = None
    active_since: float | None = None  # its last call ended at this time or later
    agents: bool = False  # only of agents: none that Hone makes to answer again, to compare or to measure versions


@dataclass(frozen=True, slots=True)
class GroupFilter:
    """Filters of groups; None or empty: no filter. Times are unix seconds."""

    alias: str | None = None
    version: str | None = None
    states: tuple[GroupState, ...] = ()
    reason: str | None = None  # why it is excluded or unscored
    campaign: str | None = None  # its id, or its name
    origins: tuple[Origin, ...] = ()  # a trajectory of it has one of them
    spread_from: float | None = None  # between the best and the worst reward of its current score
    spread_to: float | None = None
    since: float | None = None  # it was opened at this time or later
    until: float | None = None  # it was opened before this time


class Split(StrEnum):
    """What traffic is split by."""

    ALIAS = "alias"
    VERSION = "version"
    CLIENT = "client"
    KEY = "key"
    TAG = "tag"


@dataclass(frozen=True, slots=True)
class TrafficFilter:
    """A range of traffic, and what it is split by. Times are unix seconds; None: `range` before the end, and now."""

    range: str = "24h"
    since: float | None = None
    until: float | None = None
    split: Split | None = None
    tag: str | None = None  # the name of the tag, where it is split by tags
    origins: tuple[Origin, ...] = ()  # any of them


# A list shows these unless an origin is asked for, without a gate's attempts at scenarios: a gate makes more
# trajectories at once than a page has lines.
USUAL_ORIGINS: Final = tuple(origin for origin in Origin if origin is not Origin.SHADOW)
ANY: Final = "any"  # the value of `origin` and of `error` that means all
ALL_TRAJECTORIES: Final = TrajectoryFilter()
ALL_GROUPS: Final = GroupFilter()
RANGES_S: Final[Mapping[str, float]] = {"1h": 3600.0, "24h": 86400.0, "7d": 604800.0, "30d": 2592000.0}


Read = Callable[[str], Any]
MOST_CHARS: Final = 500  # of one value
MOST_VALUES: Final = 20  # of one filter
_UNSTORED: Final = re.compile("[\x00\ud800-\udfff]")


@dataclass(frozen=True, slots=True)
class FilterParam:
    """A parameter of a list: its name, its help, its field of the filter, and the values that it takes."""

    name: str
    about: str
    field: str
    read: Read  # raises ValueError
    takes: tuple[str, ...] = ()  # all valid values; empty: any that `read` accepts
    many: bool = False  # whether it may be repeated


def _text(value: str) -> str:
    return value


def _number(value: str) -> float:
    try:
        read = float(value)
    except ValueError:
        read = math.nan
    if not math.isfinite(read):
        raise ValueError(f"{value!r} is not a number")
    return read


def _moment(value: str) -> float:
    return parse_time(value, time.time())


def _whether(value: str) -> bool:
    if value not in _WHETHER:
        raise ValueError(f"{value!r} is neither yes nor no")
    return value == "yes"


def _tag(value: str) -> tuple[str, str | None]:
    name, equals, wanted = (part.strip() for part in value.partition("="))
    if not name or '"' in name:  # SQLite quotes names in JSON paths
        raise ValueError(f"{value!r} is not a tag: write name, or name=value")
    return name, wanted if equals else None


_WHETHER: Final = ("yes", "no")


def _one_of(name: str, about: str, kind: type[StrEnum], *, field: str | None = None) -> FilterParam:
    takes = tuple(member.value for member in kind)

    def read(value: str) -> StrEnum:
        if value not in takes:
            raise ValueError(f"{value!r} is not one of {', '.join(takes)}")
        return kind(value)

    return FilterParam(name, about, field or name, read, takes, many=field is not None)


def _origin(about: str, hidden: str = "shadow and a gate's scenarios") -> FilterParam:
    takes = (*(origin.value for origin in Origin), ANY)

    def read(value: str) -> tuple[Origin, ...]:
        if value not in takes:
            raise ValueError(f"{value!r} is not one of {', '.join(takes)}")
        return tuple(Origin) if value == ANY else (Origin(value),)

    return FilterParam("origin", f"{about} Default: all but {hidden}.", "origins", read, takes, many=True)


def _range(value: str) -> str:
    if value not in RANGES_S:
        raise ValueError(f"{value!r} is not one of {', '.join(RANGES_S)}")
    return value


def _error(about: str) -> FilterParam:
    takes = (*(kind.value for kind in ErrorKind), ANY)

    def read(value: str) -> str:
        if value not in takes:
            raise ValueError(f"{value!r} is not one of {', '.join(takes)}")
        return value

    return FilterParam("error", about, "error", read, takes)


def _word(name: str, about: str, read: Read = _text, **others: Any) -> FilterParam:
    return FilterParam(name, about, others.pop("field", name), read, **others)


_TIMES: Final = "24h, 7d, 2026-11-20, 2026-11-20T09:00 or unix seconds"
TRAJECTORY_FILTER_PARAMS: Final[Mapping[str, FilterParam]] = {
    word.name: word
    for word in (
        _word("search", 'Search for words; "a phrase", begin*, -without.'),
        _word("alias", "Of this alias."),
        _word("version", "Of this version (helpdesk@3)."),
        _one_of("state", "In this state.", TrajectoryState, field="states"),
        _one_of("purpose", "Of this purpose.", Purpose),
        _origin("Of this origin, or of any."),
        _word("source", "One of its calls was attributed by this source (path, key, header, lineage …)."),
        _word("session", "Of this client session."),
        _word("tag", "With this tag: name, or name=value.", _tag, field="tags", many=True),
        _word("reward_from", "With at least this reward.", _number),
        _word("reward_to", "With at most this reward.", _number),
        _word("since", f"Began at this time or later: {_TIMES}.", _moment),
        _word("until", f"Began before this time: {_TIMES}.", _moment),
        _word("tool_error", "Whether one of its tool calls failed.", _whether, takes=_WHETHER),
        _word("reason", "With this ledger code, its own or its group's."),
        _word("group", "Of this group: Hone's id, or the caller's."),
        _word("dataset", "In this dataset."),
        _word("client", "One of its calls came from this client: the product of its User-Agent."),
        _word("key", "Of this key: its name, or its id."),
        _word("tool", "One of its answers requested this tool."),
        _word("finish_reason", "One of its answers ended for this reason (stop, length, tool_calls …)."),
        _error("One of its calls failed in this way, or in any."),
        _word("trained", "Whether it was trained on.", _whether, takes=_WHETHER),
        _word("trained_by", "The step that made this version (helpdesk@3) trained on it."),
        _word("tokens_from", "With at least so many prompt and sampled tokens.", _number),
        _word("tokens_to", "With at most so many prompt and sampled tokens.", _number),
        _word("duration_from", "That took at least so many seconds.", _number),
        _word("duration_to", "That took at most so many seconds.", _number),
        _word("active_since", f"Its last call ended at this time or later: {_TIMES}.", _moment),
    )
}
GROUP_FILTER_PARAMS: Final[Mapping[str, FilterParam]] = {
    word.name: word
    for word in (
        _word("alias", "Of this alias."),
        _word("version", "Of this version (helpdesk@3)."),
        _one_of("state", "In this state.", GroupState, field="states"),
        _word("reason", "Excluded or unscored for this reason."),
        _word("campaign", "Of this campaign: its id or its name."),
        _origin("With a trajectory of this origin, or of any."),
        _word("spread_from", "With at least this difference between the best and the worst reward.", _number),
        _word("spread_to", "With at most this difference between the best and the worst reward.", _number),
        _word("since", f"Opened at this time or later: {_TIMES}.", _moment),
        _word("until", f"Opened before this time: {_TIMES}.", _moment),
    )
}


TRAFFIC_PARAMS: Final[Mapping[str, FilterParam]] = {
    word.name: word
    for word in (
        _word("range", "How much, up to `until`. Default: 24h.", _range, takes=tuple(RANGES_S)),
        _word("since", f"From this time on, in place of `range`: {_TIMES}.", _moment),
        _word("until", f"Up to this time: {_TIMES}. Default: now.", _moment),
        _one_of("split", "What it is split by.", Split),
        _word("tag", "With `split=tag`: only the values of the tag with this name."),
        _origin("Of trajectories of this origin, or of any.", "shadow"),
    )
}


def parse_traffic_filter(query: Iterable[tuple[str, str]]) -> TrafficFilter:
    """Parse a range of traffic, as names and values. An empty value is ignored. Raises FilterInvalid."""
    wanted = TrafficFilter(**_with_all_origins(_read(TRAFFIC_PARAMS, query)))
    if wanted.since is not None and wanted.until is not None and wanted.until <= wanted.since:
        raise FilterInvalid("until: the end of the range must be after `since`", "until")
    return wanted if wanted.origins else replace(wanted, origins=USUAL_ORIGINS)


def parse_trajectory_filter(query: Iterable[tuple[str, str]]) -> TrajectoryFilter:
    """Parse the filters of trajectories, as names and values. An empty value is ignored. Raises FilterInvalid."""
    return TrajectoryFilter(**_with_all_origins(_read(TRAJECTORY_FILTER_PARAMS, query)))


def parse_group_filter(query: Iterable[tuple[str, str]]) -> GroupFilter:
    """Parse the filters of groups, as names and values. An empty value is ignored. Raises FilterInvalid."""
    return GroupFilter(**_with_all_origins(_read(GROUP_FILTER_PARAMS, query)))


def with_usual_trajectories(wanted: TrajectoryFilter) -> TrajectoryFilter:
    """Return the filter of a list where nobody asks for an origin: of `USUAL_ORIGINS`.

    Whoever names a group or a dataset asks for all in it.
    """
    asked = wanted.origins or wanted.group is not None or wanted.dataset is not None
    return wanted if asked else replace(wanted, origins=USUAL_ORIGINS)


def with_usual_groups(wanted: GroupFilter) -> GroupFilter:
    """Return the filter of a list where nobody asks for an origin: groups of `USUAL_ORIGINS`."""
    return wanted if wanted.origins else replace(wanted, origins=USUAL_ORIGINS)


def _with_all_origins(values: dict[str, Any]) -> dict[str, Any]:
    """Join the origins of each value of the parameter: one of them may mean all."""
    named = {one for several in values.get("origins", ()) for one in several}
    return values | ({"origins": tuple(origin for origin in Origin if origin in named)} if named else {})


def _read(params: Mapping[str, FilterParam], query: Iterable[tuple[str, str]]) -> dict[str, Any]:
    found: dict[str, list[Any]] = {}
    for name, value in query:
        param = params.get(name)
        if param is None:
            raise FilterInvalid(f"{name[:80]!r} is not a filter of this list: there are {', '.join(params)}", name)
        if value.strip():
            found.setdefault(name, []).append(_value(param, value.strip()))
    return {params[name].field: _only(params[name], values) for name, values in found.items()}


def _value(word: FilterParam, value: str) -> Any:
    if len(value) > MOST_CHARS:
        raise FilterInvalid(f"{word.name}: a value has at most {MOST_CHARS} characters", word.name)
    if _UNSTORED.search(value):
        raise FilterInvalid(f"{word.name}: the value has a character that the store cannot hold", word.name)
    try:
        return word.read(value)
    except ValueError as e:
        raise FilterInvalid(f"{word.name}: {e}", word.name) from e


def _only(word: FilterParam, values: Sequence[Any]) -> Any:
    if word.many:
        if len(values) > MOST_VALUES:
            raise FilterInvalid(f"{word.name}: given {len(values)} times, at most {MOST_VALUES} are allowed", word.name)
        return tuple(dict.fromkeys(values))
    if len(values) > 1:
        raise FilterInvalid(f"{word.name}: given {len(values)} times, once is allowed", word.name)
    return values[0]
