"""When a group is ready to be judged, as pure functions.

A group closes when its declared number of members (else `recorder.group_size`) has ended. Without a declared size it
also closes when no member is open and none has joined for `recorder.group_window_s`. With a declared size it also
closes when it had no call for `recorder.group_timeout_s`.

Owns: this rule, and the verdict on a closed group. Refuses: storage. `recorder.queue.groups.closure` applies the rule,
`recorder.views.status.stage_facts` predicts with it, and `recorder.maintenance.sweep` finds due groups by a query of
the same meaning.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from recorder.settings import RecorderSettings
from recorder.states import Purpose, TrajectoryState

MEASURED: Final = frozenset({Purpose.VAL, Purpose.EVAL})


class GroupVerdict(StrEnum):
    """What to do with an open group."""

    WAIT = "wait"
    READY = "ready"
    LEFT_OUT = "left_out"
    MEASURED = "measured"  # ends without a judge: it is of a validation, a gate or an evaluation


class GroupCode(StrEnum):
    """The ledger's codes of excluded groups, and of other facts about groups.

    A measured group without a score has one too, in its row alone: the ledger has no entry about it.
    """

    TOO_FEW = "too_few"  # fewer than two members that can be compared
    TOO_OLD = "too_old"  # complete for longer than `learn.max_age_s`
    NO_COMPLETE_CALL = "no_complete_call"  # of a trajectory: no model answered it
    PURPOSE_NONE = "purpose_none"  # only recorded: the purpose is neither training nor measurement
    MEASURED = "measured"  # of a measured group: a function measures the attempts, and no judge
    CHECK_UNDECIDED = "check_undecided"  # too few have a reward: code could not decide the others' rules and checks
    NO_FOLLOW_UP = "no_follow_up"  # too few have a reward: nothing that came next says anything about the others
    MIXED_PURPOSE = "mixed_purpose"  # judged, but not trained: not every member has the purpose `train`


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """The facts of a group that the readiness rule needs. Times are unix seconds.

    `measured`: only a function measures its attempts.
    """

    declared_size: int | None
    joined_at: float
    last_call_at: float
    baseline: str | None = None  # of its alias
    campaign_id: str | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class ReadinessMember:
    """The facts of a trajectory that the readiness rule needs."""

    state: TrajectoryState
    purpose: Purpose = Purpose.TRAIN
    selection: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """The verdict on a group. `code`: why it is excluded, or measured without a judge."""

    verdict: GroupVerdict
    code: GroupCode | None = None


WAIT: Final = Readiness(GroupVerdict.WAIT)


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """The number of a group's open members, and the number of those that count toward its size."""

    running: int
    counted: int


def is_usable(state: str, purpose: str, selection: str | None) -> bool:
    """Return whether a member can be judged: it completed, no sibling was selected instead, and it has a purpose."""
    return state == TrajectoryState.COMPLETED and selection is None and purpose != Purpose.NONE


def counts_toward_size(member: ReadinessMember) -> bool:
    """Return whether a member counts: not if its attempt was abandoned (and is repeated) or its sibling selected."""
    return member.state != TrajectoryState.ABANDONED and member.selection is None


def is_one_enough(baseline: str | None, campaign_id: str | None) -> bool:
    """Return whether one trajectory is enough, because it is compared with earlier ones of the alias.

    Campaigns always compare the attempts at a scenario with each other.
    """
    return baseline == "running" and campaign_id is None


def closing_verdict(members: Sequence[ReadinessMember], *, one: bool = False) -> Readiness:
    """Return the verdict on a complete group: it needs two usable members, or one if all are only measured.

    `one`: one member is enough in any case.
    """
    able = [m for m in members if is_usable(m.state, m.purpose, m.selection)]
    needed = 1 if one or (able and all(m.purpose in MEASURED for m in able)) else 2
    if len(able) >= needed:
        return Readiness(GroupVerdict.READY)
    if is_for_measurement(m.purpose for m in members):
        return Readiness(GroupVerdict.MEASURED, GroupCode.TOO_FEW)
    unmeasured = any(m.purpose == Purpose.NONE for m in members)
    return Readiness(GroupVerdict.LEFT_OUT, GroupCode.PURPOSE_NONE if unmeasured else GroupCode.TOO_FEW)


def is_for_measurement(purposes: Iterable[str]) -> bool:
    """Return whether a group with members of these purposes ends as measured: some measure, and none is for training.

    `recorder.queue.groups.uses.is_for_measurement` is the same condition in a query.
    """
    there = set(purposes)
    return bool(there & MEASURED) and Purpose.TRAIN not in there


def closing_verdict_for(group: GroupFacts, members: Sequence[ReadinessMember]) -> Readiness:
    """Return the verdict on a complete group; a group that only a function measures is never judged."""
    if group.measured:
        return Readiness(GroupVerdict.MEASURED, GroupCode.MEASURED)
    return closing_verdict(members, one=is_one_enough(group.baseline, group.campaign_id))


def count_members(members: Sequence[ReadinessMember]) -> MemberCounts:
    """Return the counts for `close_time`."""
    running = sum(member.state == TrajectoryState.OPEN for member in members)
    return MemberCounts(running, sum(map(counts_toward_size, members)))


def is_full(counts: MemberCounts, size: int) -> bool:
    """Return whether the group has `size` members, and all have ended."""
    return not counts.running and counts.counted >= size


def close_time(group: GroupFacts, counts: MemberCounts, settings: RecorderSettings) -> float | None:
    """Return the time (unix seconds) at which an open group closes, or None if it waits for a member to end.

    A group without a declared size is full at `settings.group_size`, since no further trajectory joins it. A full group
    closes at once: its time is in the past, when its newest member joined.
    """
    if is_full(counts, settings.group_size if group.declared_size is None else group.declared_size):
        return group.joined_at
    if group.declared_size is not None:
        return group.last_call_at + settings.group_timeout_s
    return None if counts.running else group.joined_at + settings.group_window_s


def readiness(
    group: GroupFacts, members: Sequence[ReadinessMember], at: float, settings: RecorderSettings
) -> Readiness:
    """Return the verdict on an open group at time `at` (unix seconds)."""
    closes_at = close_time(group, count_members(members), settings)
    if closes_at is None or at < closes_at:
        return WAIT
    return closing_verdict_for(group, members)
