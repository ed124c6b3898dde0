"""Attempts in their order, with their advantages, and rows in which every turn says how it stands to the others."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.judging.scores import NewPart
from recorder.queue.training.baselines import ComparedReward
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.views.comparison.alignment import MOST_TURNS, Argument, ConversationTurn, ToolExchange
from recorder.views.comparison.attempts import ONLY_HERE, Member, best_and_worst, rank_attempts, side_by_side
from tests.recorder.views.comparison.test_alignment import RUNS


def member(id_: str, **changes: Any) -> Member:
    row: dict[str, Any] = {
        "id": id_, "external_id": None, "state": TrajectoryState.COMPLETED, "end_reason": None, "selection": None,
        "purpose": Purpose.TRAIN, "origin": Origin.LIVE, "version": None, "mixed": False, "tags": {}, "call_count": 1,
        "started_at": 0.0, "last_call_at": 1.0, "ended_at": 1.0,
    }  # fmt: skip
    return Member(**{**row, **changes})


def rewards(**values: float | None) -> list[NewPart]:
    return [NewPart(id_, "reward", value, explanation=f"why {id_}") for id_, value in values.items()]


def test_attempts_come_best_first_and_those_without_a_reward_last() -> None:
    found, _ = rank_attempts([member(id_) for id_ in "abcd"], rewards(a=0.1, b=None, c=0.9), (), "group")
    assert [(one.number, one.trajectory.id, one.reward) for one in found] == [
        (1, "c", 0.9), (2, "a", 0.1), (3, "b", None), (4, "d", None),
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("values", "two"), [({"a": 0.1, "b": None, "c": 0.9, "d": 0.5}, "ca"), ({"a": None, "b": None}, "ab")]
)
def test_the_best_and_the_worst_are_those_with_rewards(values: dict[str, float | None], two: str) -> None:
    found, _ = rank_attempts([member(id_) for id_ in values], rewards(**values), (), "group")
    assert "".join(one.trajectory.id for one in best_and_worst(found)) == two


def test_a_reward_has_its_parts_and_the_judges_words() -> None:
    parts = [*rewards(a=0.5), NewPart("a", "ruler", 0.7, 0.5, "it asked twice")]
    [one], _ = rank_attempts([member("a")], parts, (), "group")
    assert (one.explanation, [(part.name, part.value, part.weight) for part in one.parts]) == (
        "why a", [("ruler", 0.7, 0.5)],
    )  # fmt: skip


def test_turns_with_a_value_have_their_difference_from_those_that_count() -> None:
    members = [member("a"), member("b"), member("c", state=TrajectoryState.ERRORED)]
    rated = {"a": {1: 1.0, 3: 0.5}, "b": {1: 0.5}, "c": {1: 0.0, 2: 0.25}}
    parts = [
        *rewards(a=1.0, b=0.0, c=0.2),
        *(NewPart(id_, "polite", 0.5, 1.0) for id_ in rated),
        *(NewPart(id_, f"polite.turn.{number}", value) for id_, own in rated.items() for number, value in own.items()),
    ]
    found, _ = rank_attempts(members, parts, (), "group")
    shown = {one.trajectory.id: [(turn.number, turn.value, turn.difference) for turn in one.turns] for one in found}
    assert shown == {
        "a": [(1, 1.0, 0.25), (3, 0.5, None)],
        "b": [(1, 0.5, -0.25)],
        "c": [(1, 0.0, None), (2, 0.25, None)],
    }
    assert found[0].turn(3) == found[0].turns[1]
    assert found[0].turn(2) is None


def test_advantages_are_over_the_mean_of_those_that_count() -> None:
    members = [member("a"), member("b"), member("c", state=TrajectoryState.ERRORED), member("d", purpose=Purpose.VAL)]
    found, rule = rank_attempts(members, rewards(a=1.0, b=0.0, c=0.2, d=0.3), (), "group")
    by_id = {one.trajectory.id: (one.advantage, one.no_advantage) for one in found}
    assert by_id == {"a": (0.5, None), "b": (-0.5, None), "c": (None, "errored"), "d": (None, "it is for val")}
    assert rule == "reward − mean of the 2 rewards that count (0.5)"


@pytest.mark.parametrize(
    ("values", "why"), [({"a": 0.5, "b": 0.5}, "zero_variance"), ({"a": 0.5, "b": None}, "too_few")]
)
def test_a_group_that_teaches_nothing_has_no_advantages(values: dict[str, float | None], why: str) -> None:
    found, _ = rank_attempts([member("a"), member("b")], rewards(**values), (), "group")
    assert found[0].advantage is None
    assert found[0].no_advantage == why


def test_what_a_step_compared_with_counts_before_the_group() -> None:
    compared = [ComparedReward("a", 0.8, 0.6, 0.1, 64, same_tools=True)]
    found, rule = rank_attempts([member("a"), member("b")], rewards(a=0.8, b=0.2), compared, "running")
    assert [(one.trajectory.id, one.advantage) for one in found] == [("a", pytest.approx(0.2)), ("b", None)]
    assert "earlier trajectories" in rule


def test_a_running_baseline_is_not_known_before_its_step() -> None:
    [one], rule = rank_attempts([member("a")], rewards(a=0.8), (), "running")
    assert (one.advantage, "when a step takes the group" in rule) == (None, True)


def test_a_group_without_rewards_says_so() -> None:
    [one], rule = rank_attempts([member("a")], [], (), None)
    assert (one.reward, one.advantage, rule) == (None, None, "there are no rewards yet")


ASK = ConversationTurn("user", "where?")


def find(query: str, result: str = "found") -> ConversationTurn:
    return ConversationTurn(
        "assistant", "", tool_calls=(ToolExchange("find", (Argument("q", query, is_json=False),), result),)
    )


def said(text: str) -> ConversationTurn:
    return ConversationTurn("assistant", text)


def test_what_all_begin_with_is_shown_once_and_rows_begin_where_they_part() -> None:
    beginning, rows, _ = side_by_side([(1, [ASK, find("a"), said("x")]), (2, [ASK, find("b"), said("x")])])
    assert [cell.role for cell in beginning] == ["user"]
    assert [[cell.state for cell in row] for row in rows] == [["differs", "differs"], ["shared", "shared"]]
    assert (rows[0][1].against, rows[0][1].differences) == (1, ("arguments of find",))
    assert (rows[1][0].text, rows[1][1].text) == ("x", "")  # carried once


def test_a_turn_is_held_against_the_most_alike_on_its_left() -> None:
    columns = [(1, [said("no")]), (2, [find("a")]), (3, [find("b")]), (4, [find("a")])]
    _, [row], _ = side_by_side(columns)
    assert [(cell.state, cell.against) for cell in row] == [
        ("differs", None), ("differs", 1), ("differs", 2), ("same", 2),
    ]  # fmt: skip


def test_a_turn_that_no_other_attempt_has_says_so() -> None:
    _, rows, _ = side_by_side([(1, [ASK, find("a"), said("x")]), (2, [ASK, said("x")])])
    assert [(cell.state, cell.differences) for cell in rows[0]] == [("differs", (ONLY_HERE,)), ("missing", ())]


def test_a_single_attempt_is_its_own_beginning() -> None:
    beginning, rows, _ = side_by_side([(1, [ASK, said("x")])])
    assert (len(beginning), rows) == (2, ())


def test_nothing_to_compare_is_nothing() -> None:
    assert side_by_side([]) == ((), (), ())


def test_what_is_too_long_to_compare_is_counted() -> None:
    long = [said(str(at)) for at in range(MOST_TURNS + 3)]
    _, rows, left = side_by_side([(1, long), (2, [said("other")])])
    assert (len(rows), left) == (MOST_TURNS, (3, 0))


@given(st.lists(RUNS, min_size=1, max_size=4))
def test_every_turn_is_in_the_beginning_or_in_a_cell(attempts: list[list[ConversationTurn]]) -> None:
    beginning, rows, _ = side_by_side(list(enumerate(attempts, 1)))
    for at, turns in enumerate(attempts):
        there = [row[at] for row in rows if row[at].state != "missing"]
        assert len(beginning) + len(there) == len(turns)
        for cell, turn in zip(there, turns[len(beginning) :], strict=True):
            assert cell.role in (turn.role, None)
            if cell.state == "differs":
                assert (cell.text, cell.thinking, len(cell.calls)) == (turn.text, turn.thinking, len(turn.tool_calls))
