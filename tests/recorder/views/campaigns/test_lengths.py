"""Whether a campaign trained on long tasks as often as on short ones: split at the median of what ended."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from recorder.views.campaigns.lengths import split_lengths

durations = st.lists(st.tuples(st.floats(0, 1e4), st.booleans()), min_size=1, max_size=60)


def test_attempts_are_long_above_the_median_of_those_that_ended() -> None:
    found = split_lengths([(1.0, True), (2.0, True), (9.0, False), (20.0, True)], unfinished=3)
    assert found is not None
    assert (found.median_s, found.ended, found.ended_long) == (5.5, 4, 2)
    assert (found.trained, found.trained_long, found.unfinished) == (3, 1, 3)
    assert found.long_share == 0.5
    assert found.long_share_trained == pytest.approx(1 / 3)


def test_without_attempts_there_is_no_split_and_without_training_no_share() -> None:
    assert split_lengths([]) is None
    found = split_lengths([(1.0, False)])
    assert found is not None
    assert found.long_share_trained is None


@given(durations)
def test_training_on_everything_has_the_share_of_everything(some: list[tuple[float, bool]]) -> None:
    found = split_lengths([(seconds, True) for seconds, _ in some])
    assert found is not None
    assert found.long_share_trained == found.long_share <= 0.5


@given(durations)
def test_what_is_trained_on_is_part_of_what_ended(some: list[tuple[float, bool]]) -> None:
    found = split_lengths(some)
    assert found is not None
    assert found.trained_long <= min(found.trained, found.ended_long) <= found.ended == len(some)
