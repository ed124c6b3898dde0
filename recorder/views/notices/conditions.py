"""Conditions of the status as notices: an alarm, a pause of learning and a review are told when they begin.

Owns: which conditions are told, their keys, and which have begun since the last look. Refuses: the status itself
(`recorder.views.status.project`), and what the ledger tells as events (`recorder.views.notices.decisions`).

A pause by a person (`learn.paused`), `learn.hours`, `learn.steps_per_hour` or `engine.max_pause_share` is what the
operator set, and is not told.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final

from recorder.queue.groups.disputes import DisputedGroup
from recorder.queue.notifications import Notice, NoticeKind
from recorder.queue.training.budgets import Limit
from recorder.views.status.project import Status, find_alarms
from recorder.views.status.stages import Stage, StageCode

_PAUSES: Final = frozenset({Limit.JUDGE_TOKENS.value, Limit.JUDGE_USD.value, StageCode.SCHEDULE_ENDED.value})
_MOST: Final = 500  # conditions that are remembered


@dataclass(frozen=True, slots=True)
class Condition:
    """What holds now. `key` names it while it lasts."""

    kind: NoticeKind
    key: str
    what: str
    link: str


def list_conditions(status: Status, disputed: Iterable[DisputedGroup]) -> Iterator[Condition]:
    """Return the conditions that hold: alarms, pauses of learning by a budget, and groups that wait for a person."""
    for alarm in find_alarms(status):
        if not alarm.is_event:
            what = f"{alarm.brief[:1].upper()}{alarm.brief[1:]}."
            yield Condition(NoticeKind.ALARM, f"alarm {alarm.code} {alarm.about}", what, "/hone/")
    for stage in status.stages:
        if stage.stage is Stage.LEARNING and stage.code in _PAUSES:
            what = f"{stage.alias}: {stage.text}"
            yield Condition(NoticeKind.LEARNER_PAUSED, f"pause {stage.alias} {stage.code}", what, "/hone/training")
    for group in disputed:
        what = f"The judges disagree about the group {group.external_id or group.group_id}: it waits for a person."
        yield Condition(NoticeKind.REVIEW_WAITING, f"review {group.group_id}", what, "/hone/review")


def begun_notices(
    conditions: Iterable[Condition], before: Collection[str], at: float
) -> tuple[list[Notice], tuple[str, ...]]:
    """Return the notices of conditions that did not hold `before` (keys), and the keys that hold at `at` (unix s)."""
    held = {_short(one.key): one for one in list(conditions)[:_MOST]}
    begun = [
        Notice(one.kind, _short(f"{key} {at!r}"), one.what, one.link, at)
        for key, one in held.items()
        if key not in before
    ]
    return begun, tuple(sorted(held))


def _short(key: str) -> str:
    return hashlib.sha256(key.encode()).hexdigest()[:32]
