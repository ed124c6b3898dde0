"""Filters read from words: what each takes, and that everything else is an error that says so."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import FilterInvalid
from recorder.states import GroupState, Origin, Purpose, TrajectoryState
from recorder.views.lists.filters import (
    ALL_GROUPS,
    ALL_TRAJECTORIES,
    GROUP_FILTER_PARAMS,
    TRAJECTORY_FILTER_PARAMS,
    GroupFilter,
    TrajectoryFilter,
    parse_group_filter,
    parse_trajectory_filter,
    with_usual_groups,
    with_usual_trajectories,
)


@pytest.mark.parametrize(
    ("said", "wanted"),
    [
        ([], ALL_TRAJECTORIES),
        ([("alias", "helpdesk"), ("version", "helpdesk@3")], TrajectoryFilter(alias="helpdesk", version="helpdesk@3")),
        (
            [("state", "open"), ("state", "errored"), ("state", "open")],
            TrajectoryFilter(states=(TrajectoryState.OPEN, TrajectoryState.ERRORED)),
        ),
        ([("purpose", "val"), ("origin", "shadow")], TrajectoryFilter(purpose=Purpose.VAL, origins=(Origin.SHADOW,))),
        ([("origin", "import"), ("origin", "live")], TrajectoryFilter(origins=(Origin.LIVE, Origin.IMPORT))),
        ([("origin", "any")], TrajectoryFilter(origins=tuple(Origin))),
        ([("origin", "live"), ("origin", "any")], TrajectoryFilter(origins=tuple(Origin))),
        ([("tag", "team"), ("tag", "team = blue")], TrajectoryFilter(tags=(("team", None), ("team", "blue")))),
        ([("tag", "empty=")], TrajectoryFilter(tags=(("empty", ""),))),
        ([("reward_from", "0.25"), ("reward_to", "-1")], TrajectoryFilter(reward_from=0.25, reward_to=-1.0)),
        ([("since", "100"), ("until", "1970-01-01T00:10:00+00:00")], TrajectoryFilter(since=100.0, until=600.0)),
        ([("tool_error", "yes")], TrajectoryFilter(tool_error=True)),
        ([("tool_error", "no"), ("reason", "too_few")], TrajectoryFilter(tool_error=False, reason="too_few")),
        (
            [("client", "openai"), ("key", "backend"), ("tool", "find")],
            TrajectoryFilter(client="openai", key="backend", tool="find"),
        ),
        (
            [("error", "timeout"), ("finish_reason", "length")],
            TrajectoryFilter(error="timeout", finish_reason="length"),
        ),
        ([("error", "any"), ("trained", "no")], TrajectoryFilter(error="any", trained=False)),
        ([("tokens_from", "10"), ("duration_to", "2.5")], TrajectoryFilter(tokens_from=10.0, duration_to=2.5)),
        ([("trained_by", "helpdesk@3")], TrajectoryFilter(trained_by="helpdesk@3")),
        ([("active_since", "100")], TrajectoryFilter(active_since=100.0)),
        ([("search", ' "not found" '), ("group", " "), ("session", "")], TrajectoryFilter(search='"not found"')),
    ],
)
def test_words_are_read_as_a_filter_of_runs(said: list[tuple[str, str]], wanted: TrajectoryFilter) -> None:
    assert parse_trajectory_filter(said) == wanted


def test_a_list_shows_all_but_shadow_unless_an_origin_or_a_group_is_asked_for() -> None:
    usual = (Origin.LIVE, Origin.CAMPAIGN, Origin.REPLAY, Origin.IMPORT)
    assert with_usual_trajectories(TrajectoryFilter(alias="a")) == TrajectoryFilter(alias="a", origins=usual)
    assert with_usual_groups(GroupFilter(alias="a")) == GroupFilter(alias="a", origins=usual)
    for asked in (TrajectoryFilter(origins=(Origin.SHADOW,)), TrajectoryFilter(group="g")):
        assert with_usual_trajectories(asked) == asked
    assert with_usual_groups(GroupFilter(origins=tuple(Origin))).origins == tuple(Origin)


def test_words_are_read_as_a_filter_of_groups() -> None:
    assert parse_group_filter([]) == ALL_GROUPS
    assert parse_group_filter([("origin", "any")]) == GroupFilter(origins=tuple(Origin))
    said = [("state", "left_out"), ("reason", "too_few"), ("campaign", "first"), ("spread_from", "0.5")]
    wanted = GroupFilter(states=(GroupState.LEFT_OUT,), reason="too_few", campaign="first", spread_from=0.5)
    assert parse_group_filter(said) == wanted


@pytest.mark.parametrize(
    ("word", "value", "says"),
    [
        ("stat", "open", "there are search, alias,"),
        ("state", "trained", "not one of open, completed"),
        ("reward_from", "much", "is not a number"),
        ("reward_to", "nan", "is not a number"),
        ("since", "yesterday", "is not a time: use 24h"),
        ("until", "9" * 40, "is not a time"),
        ("tool_error", "true", "neither yes nor no"),
        ("origin", "gate", "not one of live, campaign, shadow, replay, import, any"),
        ("tag", "=blue", "is not a tag"),
        ("tag", 'a"b', "is not a tag"),
        ("alias", "a\x00b", "a character that the store cannot hold"),
        ("group", "x" * 501, "at most 500"),
    ],
)
def test_what_no_list_is_narrowed_by_is_an_error_that_names_the_word(word: str, value: str, says: str) -> None:
    with pytest.raises(FilterInvalid, match=says) as e:
        parse_trajectory_filter([(word, value)])
    assert e.value.word == word


def test_what_is_said_once_is_not_said_twice_and_nothing_is_said_too_often() -> None:
    with pytest.raises(FilterInvalid, match="alias: given 2 times"):
        parse_trajectory_filter([("alias", "a"), ("alias", "b")])
    with pytest.raises(FilterInvalid, match="tag: given 21 times"):
        parse_trajectory_filter([("tag", str(n)) for n in range(21)])


_PAIRS = st.lists(st.tuples(st.sampled_from([*TRAJECTORY_FILTER_PARAMS, *GROUP_FILTER_PARAMS, "other"]), st.text()))


@given(_PAIRS)
def test_any_text_is_a_filter_or_an_error_that_says_why(said: list[tuple[str, str]]) -> None:
    for read in (parse_trajectory_filter, parse_group_filter):
        blamed = None
        try:
            read(said)
        except FilterInvalid as e:
            blamed = e.word
        assert blamed is None or blamed in dict(said)
