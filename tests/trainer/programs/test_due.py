"""When a step of live learning is due, and how what is missing is told: the rule alone."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from recorder.states import GroupState
from recorder.work.claims import Waiting
from trainer.programs.due import due_in_s, waits_for, with_times
from trainer.settings import TrainerSettings

SETTINGS = TrainerSettings(min_groups=4, max_wait_s=1800)
waiting_of = st.builds(Waiting, st.integers(0, 20), st.floats(0, 10_000))


def test_enough_groups_are_taken_at_once() -> None:
    assert due_in_s(Waiting(4, 0.0), SETTINGS) == 0
    assert due_in_s(Waiting(9, 0.0), SETTINGS) == 0


def test_two_are_taken_when_the_first_has_waited_long_and_one_never() -> None:
    assert due_in_s(Waiting(2, 0.0), SETTINGS) == 1800
    assert due_in_s(Waiting(3, 1700.0), SETTINGS) == 100
    assert due_in_s(Waiting(2, 1800.0), SETTINGS) == 0
    assert due_in_s(Waiting(1, 1e9), SETTINGS) is None
    assert due_in_s(Waiting(0, 0.0), SETTINGS) is None


def test_one_is_enough_where_that_is_set() -> None:
    assert due_in_s(Waiting(1, 0.0), TrainerSettings(min_groups=1)) == 0


@given(waiting_of, st.integers(1, 8), st.integers(0, 5), st.floats(0, 1000))
def test_what_is_due_stays_due_when_more_comes_or_time_passes(
    waiting: Waiting, least: int, more: int, later_s: float
) -> None:
    settings = TrainerSettings(min_groups=least)
    if due_in_s(waiting, settings) == 0:
        assert due_in_s(Waiting(waiting.groups + more, waiting.first_s + later_s), settings) == 0


@given(waiting_of)
def test_a_step_is_due_when_its_time_is_up(waiting: Waiting) -> None:
    due_s = due_in_s(waiting, SETTINGS)
    if due_s is not None:
        assert 0 <= due_s <= SETTINGS.max_wait_s
        assert due_in_s(Waiting(waiting.groups, waiting.first_s + due_s + 1), SETTINGS) == 0


@given(st.dictionaries(st.sampled_from(GroupState), st.integers(0, 99)), st.integers(1, 9))
def test_what_is_waited_for_names_every_group_on_its_way(counts: dict[GroupState, int], min_groups: int) -> None:
    text = waits_for(counts, TrainerSettings(min_groups=min_groups))
    assert text.startswith(f"for {min_groups} scored group")
    for state in set(GroupState) - {GroupState.TRAINING, GroupState.TRAINED, GroupState.LEFT_OUT}:
        if counts.get(state):
            assert f"{counts[state]} " in text


def test_times_are_told_where_they_are_known() -> None:
    assert with_times("for a", None, None) == "for a"
    assert with_times("for a", None, 458.2) == "for a; the next group closes in 07:38"
    assert with_times("for a", 5025.0, 0.0) == "for a; a group closes now; a step on those that are scored in 1:23:45"
