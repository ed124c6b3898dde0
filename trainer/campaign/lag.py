"""How far a campaign samples ahead of its training, and which groups a step takes. Pure.

Owns: the last step whose attempts may begin, before which steps nothing is sampled ahead, and the order in which groups
enter steps. Refuses: sampling (`trainer.campaign.pipeline`), and the age that a token may have (`trainer.batch.rows`).

A group enters, whole, the step that is open when its last attempt ends: a step is open until it has as many groups as
were planned for it. So a slow group delays no step; it enters a later one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from recorder.queue.entered_steps import PlannedGroup


@dataclass(frozen=True, slots=True)
class LagRule:
    """How far a campaign may sample ahead.

    `max_lag`: steps; `last_step`: the last step that it can come to; `val_every`: steps between its validations, or
    None.
    """

    max_lag: int
    last_step: int
    val_every: int | None

    def next_halt(self, step: int) -> int:
        """The first step from `step` on after which a validation comes or the campaign ends."""
        if self.val_every is None:
            return max(step, self.last_step)
        return max(step, min(-(-step // self.val_every) * self.val_every, self.last_step))

    def last_sampled(self, step: int, *, held: bool) -> int:
        """The last step whose attempts may begin while `step` is the one in progress.

        `held`: the step before it failed. Nothing new is sampled ahead then: the next version decides.
        """
        return step if held else min(step + self.max_lag, self.next_halt(step))

    def takes_all(self, step: int) -> bool:
        """Whether a step takes every group that was planned until then, so that none is left for a later one."""
        return self.max_lag == 0 or self.next_halt(step) == step


def choose_groups(waiting: Sequence[PlannedGroup], step: int, count: int, *, takes_all: bool) -> list[str] | None:
    """The names of the groups that a step takes; None: it waits for more to end.

    `waiting`: the groups that no step has taken. It takes the first `count` to end, or, if it takes all, each that was
    planned for it or an earlier step.
    """
    if takes_all:
        due = [group for group in waiting if group.planned_step <= step]
        return None if any(group.ended_at is None for group in due) else [group.name for group in due]
    ended = sorted((group.ended_at, group.name) for group in waiting if group.ended_at is not None)
    return None if len(ended) < count else [name for _, name in ended[:count]]


def main_version(version_ids: Iterable[str | None]) -> str | None:
    """The version that sampled most of some groups, of several the first; None: no group has one."""
    counts = Counter(id_ for id_ in version_ids if id_ is not None)
    return counts.most_common(1)[0][0] if counts else None


def stale_share(version_ids: Iterable[str | None], parent_id: str) -> float:
    """The share of groups that another version than a step's parent sampled; groups without a version do not count."""
    known = [id_ for id_ in version_ids if id_ is not None]
    return sum(id_ != parent_id for id_ in known) / max(1, len(known))
