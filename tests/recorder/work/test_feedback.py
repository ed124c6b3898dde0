"""Feedback is about a trajectory of the project, and carries a number, a truth or a text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.errors import InvalidId, NotFound
from recorder.work import feedback
from recorder.work.feedback import check_value
from tests.recorder.rows import PROJECT, Rows


async def test_feedback_is_read_back_in_order(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group(), answered=False)
    call = await rows.call(trajectory)
    first = await feedback.add(rows.store, PROJECT, trajectory, "resolved", True, comment="fine", tags={"by": "qa"})
    second = await feedback.add(rows.store, PROJECT, trajectory, "score", 0.5, call_id=call)
    assert await feedback.of(rows.store, trajectory) == [first, second]
    assert (first.value, first.comment, first.tags, first.call_id) == (True, "fine", {"by": "qa"}, None)
    assert (second.value, second.call_id) == (0.5, call)


async def test_what_is_not_there_gets_no_feedback(rows: Rows) -> None:
    trajectory = await rows.trajectory(await rows.group())
    stranger = await rows.call(await rows.trajectory(await rows.group()))
    with pytest.raises(NotFound, match="no trajectory 'nothing'"):
        await feedback.add(rows.store, PROJECT, "nothing", "score", 1)
    with pytest.raises(NotFound, match="in project 'other'"):
        await feedback.add(rows.store, "other", trajectory, "score", 1)
    with pytest.raises(NotFound, match="has no call"):
        await feedback.add(rows.store, PROJECT, trajectory, "score", 1, call_id=stranger)
    with pytest.raises(InvalidId):
        await feedback.add(rows.store, PROJECT, trajectory, "a name with spaces", 1)
    assert await feedback.of(rows.store, trajectory) == []


@given(st.floats(allow_nan=False, allow_infinity=False) | st.booleans() | st.text(max_size=50) | st.integers())
def test_numbers_truths_and_texts_pass_unchanged(value: object) -> None:
    assert check_value("resolved", value) == value
    assert type(check_value("resolved", value)) is type(value)


@pytest.mark.parametrize("value", [None, [], {"a": 1}, float("nan"), float("inf"), "x" * 100_001])
def test_anything_else_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match="feedback 'score'"):
        check_value("score", value)


@pytest.mark.parametrize("name", ["comment", "demonstration"])
def test_reserved_names_take_text(name: str) -> None:
    assert check_value(name, "like this") == "like this"
    with pytest.raises(ValueError, match="takes text"):
        check_value(name, 1.0)
