"""Rows from recorded ids: each sampled token that may be trained is trained once, everything else is context."""

from __future__ import annotations

from array import array
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.messages.calls import SamplingParameters
from recorder.messages.trainability import Exclusion
from recorder.queue.training.drift_set import DRIFT_SET
from recorder.states import CallKind, CallState, Confidence, Purpose
from recorder.views.trajectories.shapes import TrajectoryView
from tests.trainer.building import call, choice, trajectory
from trainer.batch.row_builder import Row
from trainer.batch.rows import ROW_TOO_LONG, RowBasis, trajectory_rows

BASIS = RowBasis("base", ["v3", "v2", "v1", "v0"], max_age=2, max_tokens=1000)


def trained(row: Row) -> list[int]:
    return [int(id_) for id_ in row.token_ids[row.trained]]


def codes(view: TrajectoryView, basis: RowBasis = BASIS) -> list[str]:
    rows, skipped = trajectory_rows(view, basis)
    assert rows == []
    return [one.code for one in skipped]


def test_a_turn_that_extends_the_rows_ids_exactly_goes_on_with_the_row() -> None:
    rows, skipped = trajectory_rows(
        trajectory(
            call(1, [1, 2, 3], choice([10, 11])),
            call(
                2, [1, 2, 3, 10, 11, 4, 5], choice([12]), version_id="v2", sampling=SamplingParameters(temperature=1.0)
            ),
        ),
        BASIS,
    )
    (row,) = rows
    assert skipped == []
    assert row.token_ids.tolist() == [1, 2, 3, 10, 11, 4, 5, 12]
    assert row.trained.tolist() == [False, False, False, True, True, False, False, True]
    np.testing.assert_array_equal(row.behaviour, np.array([np.nan] * 3 + [-0.25, -1.25] + [np.nan] * 2 + [-0.25], "f"))
    np.testing.assert_array_equal(row.temperature, np.array([np.nan] * 3 + [0.7, 0.7] + [np.nan] * 2 + [1.0], "f"))
    assert row.age.tolist() == [-1, -1, -1, 0, 0, -1, -1, 1]
    assert row.calls == (("call_1", 0), ("call_2", 0))
    assert row.trained_tokens == 3


def test_a_turn_whose_ids_differ_anywhere_begins_a_new_row() -> None:
    rows, _ = trajectory_rows(
        trajectory(call(1, [1, 2, 3], choice([10, 11])), call(2, [1, 2, 3, 10, 99, 4], choice([12, 13]))), BASIS
    )
    assert [row.token_ids.tolist() for row in rows] == [[1, 2, 3, 10, 11], [1, 2, 3, 10, 99, 4, 12, 13]]
    assert [trained(row) for row in rows] == [[10, 11], [12, 13]]


def test_a_prompt_shorter_than_the_row_begins_a_new_row() -> None:
    rows, _ = trajectory_rows(trajectory(call(1, [1, 2], choice([3, 4])), call(2, [1, 2, 3], choice([5]))), BASIS)
    assert [trained(row) for row in rows] == [[3, 4], [5]]


def test_of_two_rows_that_a_prompt_begins_with_the_longer_one_goes_on() -> None:
    turns = (call(1, [1, 2], choice([3])), call(2, [1, 2], choice([3, 4])), call(3, [1, 2, 3, 4, 5], choice([6])))
    rows, _ = trajectory_rows(trajectory(*turns), BASIS)
    assert [row.calls for row in rows] == [(("call_1", 0),), (("call_2", 0), ("call_3", 0))]


def test_a_branch_is_trained_in_a_row_of_its_own_and_the_shared_turn_once() -> None:
    rows, _ = trajectory_rows(
        trajectory(
            call(1, [1, 2], choice([3])), call(2, [1, 2, 3, 7], choice([8])), call(3, [1, 2, 3, 9], choice([6]))
        ),
        BASIS,
    )
    assert [row.token_ids.tolist() for row in rows] == [[1, 2, 3, 7, 8], [1, 2, 3, 9, 6]]
    assert [trained(row) for row in rows] == [[3, 8], [6]]


def test_a_sub_agents_conversation_is_a_row_beside_the_main_one() -> None:
    rows, _ = trajectory_rows(
        trajectory(
            call(1, [1, 2], choice([3])),
            call(2, [50, 51], choice([52])),
            call(3, [50, 51, 52, 53], choice([54])),
            call(4, [1, 2, 3, 60], choice([61])),
        ),
        BASIS,
    )
    assert [trained(row) for row in rows] == [[3, 61], [52, 54]]


def test_what_is_not_trained_is_context_and_told() -> None:
    rows, skipped = trajectory_rows(
        trajectory(
            call(1, [1], choice([2])),
            call(2, [1, 2, 3], choice([4, 5], reason=Exclusion.TRUNCATED)),
            call(3, [1, 2, 3, 4, 5, 6], choice([7])),
        ),
        BASIS,
    )
    (row,) = rows
    assert row.token_ids.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert trained(row) == [2, 7]
    assert [(one.call_id, one.choice, one.code) for one in skipped] == [("call_2", 0, Exclusion.TRUNCATED)]


def test_of_several_choices_those_the_recorder_lets_through_are_trained() -> None:
    rows, skipped = trajectory_rows(
        trajectory(call(1, [1, 2], choice([3], 0), choice([4], 1, Exclusion.NOT_SELECTED), choice([5], 2))), BASIS
    )
    assert [trained(row) for row in rows] == [[3], [5]]
    assert [(one.choice, one.code) for one in skipped] == [(1, Exclusion.NOT_SELECTED)]


@pytest.mark.parametrize("reason", list(Exclusion))
def test_every_reason_of_the_recorder_holds(reason: Exclusion) -> None:
    assert codes(trajectory(call(1, [1], choice([2], reason=reason)))) == [reason]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"state": CallState.ABORTED}, Exclusion.NOT_COMPLETE),
        ({"state": CallState.ERRORED}, Exclusion.NOT_COMPLETE),
        ({"state": CallState.OPEN}, Exclusion.NOT_COMPLETE),
        ({"superseded_by": "call_9"}, Exclusion.SUPERSEDED),
        ({"call_kind": CallKind.AUX}, Exclusion.AUXILIARY),
        (
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "u"}}]}]},
            Exclusion.MEDIA,
        ),
        ({"attribution_confidence": Confidence.HINT}, Exclusion.AMBIGUOUS),
        ({"attribution_confidence": Confidence.AMBIGUOUS}, Exclusion.AMBIGUOUS),
        ({"sampling": SamplingParameters(temperature=0.0)}, Exclusion.TEMPERATURE),
        ({"base_fingerprint": "another"}, Exclusion.BASE_FINGERPRINT),
        ({"base_fingerprint": None}, Exclusion.BASE_FINGERPRINT),
        ({"version_id": "elsewhere"}, Exclusion.FOREIGN_VERSION),
        ({"version_id": None}, Exclusion.FOREIGN_VERSION),
        ({"version_id": "v0"}, Exclusion.OVER_AGE),
        ({"prompt_token_ids": None}, Exclusion.IDS_MISSING),
        ({"prompt_token_ids": array("i")}, Exclusion.IDS_MISSING),
    ],
)
def test_a_call_is_checked_again_even_if_its_choice_says_trainable(overrides: dict[str, Any], expected: str) -> None:
    assert codes(trajectory(call(1, [1], choice([2]), **overrides))) == [expected]


@pytest.mark.parametrize(
    ("overrides", "expected"),
    [
        ({"token_ids": None}, Exclusion.IDS_MISSING),
        ({"token_ids": array("i")}, Exclusion.IDS_MISSING),
        ({"logprobs": None}, Exclusion.LOGPROBS_MISSING),
        ({"logprobs": array("f", [-1.0])}, Exclusion.LOGPROBS_MISCOUNTED),
        ({"logprobs": array("f", [-1.0, float("nan")])}, Exclusion.LOGPROBS_NOT_FINITE),
        ({"logprobs": array("f", [-1.0, float("-inf")])}, Exclusion.LOGPROBS_NOT_FINITE),
    ],
)
def test_a_choice_is_checked_again_even_if_it_says_trainable(overrides: dict[str, Any], expected: str) -> None:
    assert codes(trajectory(call(1, [1], choice([2, 3], **overrides)))) == [expected]


@pytest.mark.parametrize("purpose", [Purpose.VAL, Purpose.EVAL, Purpose.NONE])
def test_other_purposes_are_never_trained(purpose: Purpose) -> None:
    assert codes(trajectory(call(1, [1], choice([2])), purpose=purpose)) == [Exclusion.PURPOSE]


def test_a_trajectory_of_the_drift_set_is_never_trained() -> None:
    assert codes(trajectory(call(1, [1], choice([2])), drift_set_at=1.0)) == [DRIFT_SET]


def test_a_trajectory_that_was_not_selected_is_not_trained() -> None:
    assert codes(trajectory(call(1, [1], choice([2])), selection="not_selected")) == [Exclusion.NOT_SELECTED]


def test_a_sample_is_trained_up_to_the_age_that_is_allowed() -> None:
    turns = [call(age, [age + 1], choice([9]), version_id=f"v{3 - age}") for age in range(4)]
    rows, skipped = trajectory_rows(trajectory(*turns), BASIS)
    assert [int(row.age[row.trained][0]) for row in rows] == [0, 1, 2]
    assert [(one.call_id, one.code) for one in skipped] == [("call_3", Exclusion.OVER_AGE)]


def test_a_mixed_trajectory_trains_only_the_version_it_ended_on() -> None:
    calls = (call(1, [1], choice([2]), version_id="v2"), call(2, [1, 2, 3], choice([4]), version_id="v3"))
    (row,), skipped = trajectory_rows(trajectory(*calls, mixed=True, version_id="v3"), BASIS)
    assert trained(row) == [4]
    assert [one.code for one in skipped] == [Exclusion.OTHER_VERSION]
    (row,), _ = trajectory_rows(trajectory(*calls, mixed=False), BASIS)
    assert trained(row) == [2, 4]


def test_a_turn_too_long_for_the_trainers_memory_is_left_out_and_the_shorter_ones_are_not() -> None:
    view = trajectory(call(1, [1] * 5, choice([2] * 5)), call(2, [1] * 5 + [2] * 5 + [3], choice([4])))
    rows, skipped = trajectory_rows(view, replace(BASIS, max_tokens=10))
    assert [len(row) for row in rows] == [10]
    assert [one.code for one in skipped] == [ROW_TOO_LONG]


def test_the_late_turns_of_a_long_trajectory_are_trained_where_the_row_fits_alone() -> None:
    view = trajectory(call(1, [1] * 5, choice([2] * 5)), call(2, [1] * 5 + [2] * 5 + [3], choice([4])))
    asked: list[int] = []

    def fits_alone(row_tokens: int) -> bool:
        asked.append(row_tokens)
        return row_tokens <= 12

    (row,), skipped = trajectory_rows(view, replace(BASIS, max_tokens=10, fits_alone=fits_alone))
    assert trained(row) == [2, 2, 2, 2, 2, 4]
    assert skipped == []
    assert asked == [12]  # what shares a pass with others is not asked for


def test_a_row_that_does_not_fit_alone_keeps_its_reason() -> None:
    view = trajectory(call(1, [1] * 5, choice([2] * 5)), call(2, [1] * 5 + [2] * 5 + [3], choice([4])))
    basis = replace(BASIS, max_tokens=10, fits_alone=lambda row_tokens: row_tokens <= 11)
    (row,), (one,) = trajectory_rows(view, basis)
    assert len(row) == 10
    assert (one.call_id, one.code) == ("call_2", ROW_TOO_LONG)


# --- any tree of conversations ---------------------------------------------------------------------------------------


@dataclass
class Turn:
    parent: int | None
    added: list[int]
    sampled: list[int]
    broken: bool
    allowed: bool
    prompt: list[int] = field(default_factory=list)


@st.composite
def conversations(draw: st.DrawFn) -> list[Turn]:
    """Trees of turns, in which a prompt goes on from an earlier turn, exactly or with its history rewritten."""
    ids = st.lists(st.integers(1, 3), min_size=1, max_size=4)
    turns: list[Turn] = []
    for number in range(draw(st.integers(1, 8))):
        parent = draw(st.one_of(st.none(), st.integers(0, number - 1))) if number else None
        turn = Turn(parent, draw(ids), draw(ids), draw(st.booleans()), draw(st.integers(0, 3)) > 0)
        before = turns[parent].prompt + turns[parent].sampled if parent is not None else []
        if turn.broken and before:
            before = [*before[:-1], 9]
        turn.prompt = before + turn.added
        turns.append(turn)
    return turns


@given(conversations())
def test_every_allowed_token_is_trained_exactly_once_after_the_context_it_was_sampled_in(turns: list[Turn]) -> None:
    calls = [
        call(number, turn.prompt, choice(turn.sampled, reason=None if turn.allowed else Exclusion.TOP_P))
        for number, turn in enumerate(turns)
    ]
    rows, skipped = trajectory_rows(trajectory(*calls), BASIS)
    assert len(skipped) == sum(not turn.allowed for turn in turns)
    found = []
    for row in rows:
        at = np.flatnonzero(row.trained)
        assert at.min() > 0
        assert np.isfinite(row.behaviour[at]).all()
        assert np.isnan(row.behaviour[~row.trained]).all()
        for position in at:
            found.append((tuple(row.token_ids[:position].tolist()), int(row.token_ids[position])))
        assert sum(len(turns[int(name.split("_")[1])].sampled) for name, _ in row.calls) == len(at)
    expected = [
        (tuple(turn.prompt + turn.sampled[:index]), token)
        for turn in turns
        if turn.allowed
        for index, token in enumerate(turn.sampled)
    ]
    assert sorted(found) == sorted(expected)
    assert len(rows) <= sum(turn.allowed for turn in turns)


@given(conversations())
def test_a_conversation_that_is_only_extended_is_one_row(turns: list[Turn]) -> None:
    ids: list[int] = []
    calls = []
    for number, turn in enumerate(turns):
        prompt = ids + turn.added
        calls.append(call(number, prompt, choice(turn.sampled)))
        ids = prompt + turn.sampled
    rows, _ = trajectory_rows(trajectory(*calls), BASIS)
    assert [row.token_ids.tolist() for row in rows] == [ids]
