"""When a group is ready to be judged, as pure functions (contracts.md, 6).

Owns: the rule, and what happens to a group that is due. Refuses: storage. `recorder.queue.groups.closure` applies the
rule, `recorder.views.status.forecast` predicts by it, and the query of `recorder.maintenance.sweep` finds due groups by
it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from recorder.settings import RecorderSettings
from recorder.states import Purpose, TrajectoryState

MEASURED: Final = frozenset({Purpose.VAL, Purpose.EVAL})


class GroupVerdict(StrEnum):
    """What should become of an open group."""

    WAIT = "wait"
    READY = "ready"
    LEFT_OUT = "left_out"


class GroupCode(StrEnum):
    """Why a group is excluded, or what else the ledger says about it."""

    TOO_FEW = "too_few"  # fewer than two members that can be compared
    TOO_OLD = "too_old"  # complete for longer than `learn.max_age_s`
    NO_COMPLETE_CALL = "no_complete_call"  # of a trajectory: no model ever answered it
    PURPOSE_NONE = "purpose_none"  # recorded, but its caller wanted it neither measured nor trained
    MEASURED = "measured"  # of a gate or an evaluation: a function measures them, no judge is asked
    MIXED_PURPOSE = "mixed_purpose"  # judged, but never trained: not every member is there for training


@dataclass(frozen=True, slots=True)
class GroupFacts:
    """What the readiness rule needs to know of a group. Times are unix seconds.

    `measured`: a function alone measures its attempts.
    """

    declared_size: int | None
    joined_at: float
    last_call_at: float
    baseline: str | None = None  # its alias's
    campaign_id: str | None = None
    measured: bool = False


@dataclass(frozen=True, slots=True)
class ReadinessMember:
    """What readiness needs to know of a trajectory."""

    state: TrajectoryState
    purpose: Purpose = Purpose.TRAIN
    selection: str | None = None


@dataclass(frozen=True, slots=True)
class Readiness:
    """The verdict; `code` says why a group is excluded."""

    verdict: GroupVerdict
    code: GroupCode | None = None


WAIT: Final = Readiness(GroupVerdict.WAIT)


@dataclass(frozen=True, slots=True)
class MemberCounts:
    """How many members of a group still run, and how many count toward its size."""

    running: int
    counted: int


def is_usable(state: str, purpose: str, selection: str | None) -> bool:
    """Whether a member can be judged: it ended by itself, no other was selected instead, and it may be measured."""
    return state == TrajectoryState.COMPLETED and selection is None and purpose != Purpose.NONE


def counts_toward_size(member: ReadinessMember) -> bool:
    """A re-run replaces an abandoned attempt, and an unchosen sibling was never an attempt of its own."""
    return member.state != TrajectoryState.ABANDONED and member.selection is None


def is_one_enough(baseline: str | None, campaign_id: str | None) -> bool:
    """Whether a group's trajectories are compared with earlier ones of its alias and not with each other.

    Campaigns compare the attempts at one scenario, whatever the alias's baseline is.
    """
    return baseline == "running" and campaign_id is None


def closing_verdict(members: Sequence[ReadinessMember], *, one: bool = False) -> Readiness:
    """What happens to a complete group: two members can be compared, one that is only measured can be scored.

    `one`: one member is enough in any case.
    """
    able = [m for m in members if is_usable(m.state, m.purpose, m.selection)]
    needed = 1 if one or (able and all(m.purpose in MEASURED for m in able)) else 2
    if len(able) >= needed:
        return Readiness(GroupVerdict.READY)
    unmeasured = any(m.purpose == Purpose.NONE for m in members)
    return Readiness(GroupVerdict.LEFT_OUT, GroupCode.PURPOSE_NONE if unmeasured else GroupCode.TOO_FEW)


def closing_verdict_for(group: GroupFacts, members: Sequence[ReadinessMember]) -> Readiness:
    """What happens to a complete group, by its purpose: a group measured by a function alone is never judged."""
    if group.measured:
        return Readiness(GroupVerdict.LEFT_OUT, GroupCode.MEASURED)
    return closing_verdict(members, one=is_one_enough(group.baseline, group.campaign_id))


def count_members(members: Sequence[ReadinessMember]) -> MemberCounts:
    """The counts that `close_time` asks for."""
    running = sum(member.state == TrajectoryState.OPEN for member in members)
    return MemberCounts(running, sum(map(counts_toward_size, members)))


def is_full(counts: MemberCounts, size: int) -> bool:
    """Rule (a): the group has `size` members, and every one has ended."""
    return not counts.running and counts.counted >= size


def close_time(group: GroupFacts, counts: MemberCounts, settings: RecorderSettings) -> float | None:
    """The time (unix seconds) from which an open group no longer waits, by contracts.md, 6 (a), (c) and the timeout.

    None: it waits for a member to end. A group without a declared size is full at `settings.group_size`, since no
    trajectory joins it any more. A full group closes at once, so its time is in the past: when its newest member
    joined.
    """
    if is_full(counts, settings.group_size if group.declared_size is None else group.declared_size):
        return group.joined_at
    if group.declared_size is not None:
        return group.last_call_at + settings.group_timeout_s
    return None if counts.running else group.joined_at + settings.group_window_s


def readiness(
    group: GroupFacts, members: Sequence[ReadinessMember], at: float, settings: RecorderSettings
) -> Readiness:
    """What an open group becomes at time `at` (unix seconds)."""
    closes_at = close_time(group, count_members(members), settings)
    if closes_at is None or at < closes_at:
        return WAIT
    return closing_verdict_for(group, members)
