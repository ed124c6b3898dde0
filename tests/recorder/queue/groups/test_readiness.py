"""When a group is ready (contracts, 6): the rule alone."""

from __future__ import annotations

from dataclasses import replace
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from recorder.queue.groups.readiness import (
    WAIT,
    GroupCode,
    GroupFacts,
    GroupVerdict,
    Readiness,
    ReadinessMember,
    closing_verdict,
    is_usable,
    readiness,
)
from recorder.settings import RecorderSettings
from recorder.states import Purpose, TrajectoryState

SETTINGS = RecorderSettings(group_window_s=300, group_timeout_s=3600, group_size=4)
OPEN, COMPLETED, ERRORED = TrajectoryState.OPEN, TrajectoryState.COMPLETED, TrajectoryState.ERRORED
ABANDONED = TrajectoryState.ABANDONED
READY, TOO_FEW = Readiness(GroupVerdict.READY), Readiness(GroupVerdict.LEFT_OUT, GroupCode.TOO_FEW)

members_of = st.lists(
    st.builds(
        ReadinessMember,
        state=st.sampled_from(TrajectoryState),
        purpose=st.sampled_from(Purpose),
        selection=st.sampled_from([None, None, "not_selected"]),
    ),
    max_size=6,
)
facts_of = st.builds(
    GroupFacts,
    declared_size=st.none() | st.integers(1, 5),
    joined_at=st.floats(0, 1000),
    last_call_at=st.floats(0, 1000),
)
times = st.floats(0, 10_000)


def ask(states: list[TrajectoryState], size: int | None = None, *, since_s: float = 0.0, **kw: Purpose) -> Readiness:
    members = [ReadinessMember(state, **kw) for state in states]
    return readiness(GroupFacts(size, joined_at=0.0, last_call_at=0.0), members, since_s, SETTINGS)


@given(facts_of, st.lists(st.builds(ReadinessMember, state=st.sampled_from(TrajectoryState)), max_size=6))
def test_what_a_function_alone_measures_is_never_judged(group: GroupFacts, members: list[ReadinessMember]) -> None:
    decided = readiness(replace(group, measured=True), members, 1e9, SETTINGS)
    assert decided in (WAIT, Readiness(GroupVerdict.MEASURED, GroupCode.MEASURED))


@given(members_of)
def test_what_is_only_measured_is_never_excluded(members: list[ReadinessMember]) -> None:
    verdict = closing_verdict(members).verdict
    purposes = {member.purpose for member in members}
    measures = bool(purposes & {Purpose.VAL, Purpose.EVAL}) and Purpose.TRAIN not in purposes
    assert (verdict is GroupVerdict.LEFT_OUT) <= (not measures)
    assert (verdict is GroupVerdict.MEASURED) <= measures


# (a) a declared size


def test_a_declared_group_is_ready_when_its_last_member_ends() -> None:
    assert ask([COMPLETED, OPEN], 2) == WAIT
    assert ask([COMPLETED, COMPLETED], 2) == READY


def test_a_declared_group_waits_for_members_that_have_not_come() -> None:
    assert ask([COMPLETED, COMPLETED], 3, since_s=3599) == WAIT


def test_errored_members_count_toward_the_size_but_are_not_compared() -> None:
    assert ask([COMPLETED, COMPLETED, ERRORED], 3) == READY
    assert ask([COMPLETED, ERRORED], 2) == TOO_FEW


def test_an_abandoned_attempt_leaves_its_place_to_the_next() -> None:
    assert ask([COMPLETED, ABANDONED], 2) == WAIT
    assert ask([COMPLETED, ABANDONED, COMPLETED], 2) == READY


def test_a_declared_group_without_calls_closes_as_it_is_after_the_timeout() -> None:
    assert ask([COMPLETED, COMPLETED, OPEN], 4, since_s=3600) == READY
    assert ask([COMPLETED, OPEN], 2, since_s=3600) == TOO_FEW
    assert ask([], 2, since_s=3600) == TOO_FEW


# a running baseline


def test_one_run_is_enough_where_runs_are_compared_with_earlier_ones() -> None:
    facts = GroupFacts(2, joined_at=0.0, last_call_at=0.0, baseline="running")
    alone = [ReadinessMember(COMPLETED), ReadinessMember(ERRORED)]
    assert readiness(facts, alone, 0.0, SETTINGS) == READY
    assert readiness(facts, [ReadinessMember(ERRORED), ReadinessMember(ERRORED)], 0.0, SETTINGS) == TOO_FEW
    assert readiness(replace(facts, campaign_id="campaign"), alone, 0.0, SETTINGS) == TOO_FEW
    assert readiness(replace(facts, baseline="group"), alone, 0.0, SETTINGS) == TOO_FEW


# (c) no size declared


def test_an_undeclared_group_is_ready_when_nobody_joined_for_the_window() -> None:
    assert ask([COMPLETED, COMPLETED], since_s=299) == WAIT
    assert ask([COMPLETED, COMPLETED], since_s=300) == READY


def test_an_undeclared_group_that_is_full_is_ready_when_its_last_member_ends() -> None:
    assert ask([COMPLETED] * 4) == READY
    assert ask([COMPLETED] * 3 + [OPEN]) == WAIT
    assert ask([COMPLETED] * 3 + [ABANDONED]) == WAIT
    assert ask([COMPLETED] + [ERRORED] * 3) == TOO_FEW


def test_an_undeclared_group_waits_for_running_members_however_long() -> None:
    assert ask([COMPLETED, COMPLETED, OPEN], since_s=1e9) == WAIT


def test_a_single_run_is_too_few_to_compare() -> None:
    assert ask([COMPLETED], since_s=300) == TOO_FEW


def test_a_single_measured_run_can_be_scored() -> None:
    assert ask([COMPLETED], since_s=300, purpose=Purpose.VAL) == READY
    assert ask([COMPLETED, ERRORED], 2, purpose=Purpose.EVAL) == READY
    assert ask([ERRORED], 1, purpose=Purpose.VAL) == Readiness(GroupVerdict.MEASURED, GroupCode.TOO_FEW)


def test_runs_that_are_only_recorded_are_left_out_with_a_code_of_their_own() -> None:
    code = GroupCode.PURPOSE_NONE
    assert ask([COMPLETED, COMPLETED], since_s=300, purpose=Purpose.NONE) == Readiness(GroupVerdict.LEFT_OUT, code)


# properties


@given(facts_of, members_of, times)
def test_a_ready_group_always_has_enough_usable_members(
    group: GroupFacts, members: list[ReadinessMember], at: float
) -> None:
    able = [m for m in members if m.state == COMPLETED and m.selection is None and m.purpose != Purpose.NONE]
    if readiness(group, members, at, SETTINGS) == READY:
        assert len(able) >= 2 or {m.purpose for m in able} <= {Purpose.VAL, Purpose.EVAL} != set()
        assert able


@given(facts_of, members_of, times, times)
def test_a_group_that_is_due_stays_due(
    group: GroupFacts, members: list[ReadinessMember], at: float, later_s: float
) -> None:
    verdict = readiness(group, members, at, SETTINGS)
    if verdict != WAIT:
        assert readiness(group, members, at + later_s, SETTINGS) == verdict


@given(facts_of, members_of, times)
def test_no_group_waits_for_ever_unless_a_member_runs(
    group: GroupFacts, members: list[ReadinessMember], at: float
) -> None:
    quiet = all(m.state != OPEN for m in members)
    if quiet or group.declared_size is not None:
        assert readiness(group, members, at + 1000 + 3600, SETTINGS) != WAIT


@given(facts_of, members_of, times, st.randoms(use_true_random=False))
def test_the_order_of_members_does_not_matter(
    group: GroupFacts, members: list[ReadinessMember], at: float, random: Random
) -> None:
    shuffled = random.sample(members, len(members))
    assert readiness(group, members, at, SETTINGS) == readiness(group, shuffled, at, SETTINGS)


@given(facts_of, members_of, times)
def test_unusable_members_never_make_a_group_ready(
    group: GroupFacts, members: list[ReadinessMember], at: float
) -> None:
    unusable = [m for m in members if not is_usable(m.state, m.purpose, m.selection)]
    assert readiness(group, unusable, at, SETTINGS).verdict != GroupVerdict.READY
