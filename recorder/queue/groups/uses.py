"""What a group is for: learning from traffic, shadow answers, a version's gate, or measuring. As conditions of queries.

Owns: the one condition by which the learner takes groups, and by which every face counts what it could take; and the
use by which the judge's work and cost are shown. Refuses: claims (`recorder.queue.claims`), counting
(`recorder.queue.groups.lookup`, `recorder.views.status`).

Shadow answers and pairs of a gate both have origin shadow, and their purpose tells them apart: groups of shadow answers
(train) are learned from, pairs (eval) are not.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Final

from sqlalchemy import ColumnElement, and_, case, exists, or_

from recorder.queue.groups.readiness import MEASURED
from recorder.states import Origin, Purpose, TrajectoryState
from recorder.store.schema import campaigns, groups, trajectories

_JUDGED: Final = (TrajectoryState.COMPLETED, TrajectoryState.OPEN)  # the latter may still complete
_FOREIGN: Final = trajectories.c.purpose.not_in((Purpose.TRAIN, Purpose.NONE))


class GroupUse(StrEnum):
    """What a group is for. `learning`: traffic, and attempts of a campaign, for training."""

    LEARNING = "learning"
    SHADOW = "shadow"  # shadow answers for training
    GATE = "gate"  # a pair of a version's gate, or an attempt at its held-out scenarios
    EVALUATION = "evaluation"  # validations, evaluations, and traffic that is only measured


def is_learnable() -> ColumnElement[bool]:
    """Whether the learner takes a group, once it is scored: of an alias and no campaign, with members for training."""
    return and_(groups.c.alias_id.is_not(None), groups.c.campaign_id.is_(None), is_trainable())


def may_become_learnable() -> ColumnElement[bool]:
    """Whether an open group is on its way to the learner: like `is_learnable`, but it may have no members yet."""
    return and_(groups.c.alias_id.is_not(None), groups.c.campaign_id.is_(None), or_(is_trainable(), ~_has()))


def is_trainable() -> ColumnElement[bool]:
    """Whether a group has members that are judged, or will be, and every one of them has purpose train.

    Members of purpose none are never judged.
    """
    return and_(_judged(trajectories.c.purpose == Purpose.TRAIN), ~_judged(_FOREIGN))


def _judged(*also: ColumnElement[bool]) -> ColumnElement[bool]:
    return _has(trajectories.c.state.in_(_JUDGED), trajectories.c.selection.is_(None), *also)


def is_shadow() -> ColumnElement[bool]:
    """Whether a group's members have origin shadow: they are shadow answers, or a pair of a gate."""
    return _has(trajectories.c.origin == Origin.SHADOW)


def is_gate_work() -> ColumnElement[bool]:
    """Whether a group is work of a version's gate: a pair of first turns, or an attempt at a held-out scenario."""
    pair = _has(trajectories.c.origin == Origin.SHADOW, trajectories.c.purpose == Purpose.EVAL)
    of_gate = exists().where(campaigns.c.id == groups.c.campaign_id, campaigns.c.version_id.is_not(None))
    return or_(of_gate, pair)


def is_measured() -> ColumnElement[bool]:
    """Whether a group has a member that is only measured."""
    return _has(trajectories.c.purpose.in_(sorted(MEASURED)))


def is_for_measurement() -> ColumnElement[bool]:
    """Whether a group ends as `measured`: a member is only measured, and none is for training."""
    return and_(is_measured(), ~_has(trajectories.c.purpose == Purpose.TRAIN))


def group_use() -> ColumnElement[str]:
    """A group's `GroupUse`, as a column."""
    return case(
        (is_gate_work(), GroupUse.GATE.value),
        (is_measured(), GroupUse.EVALUATION.value),
        (is_shadow(), GroupUse.SHADOW.value),
        else_=GroupUse.LEARNING.value,
    )


def _has(*conditions: ColumnElement[bool]) -> ColumnElement[bool]:
    """Whether a group has a member that fulfils these conditions."""
    return exists().where(trajectories.c.group_id == groups.c.id, *conditions)
