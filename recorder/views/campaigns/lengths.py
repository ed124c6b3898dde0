"""How long a campaign's training attempts took, and whether it trained on long and short ones alike.

Owns: reading durations, and the split at their median. Refuses: showing it (`recorder.report`).

A campaign that samples ahead takes what ends first. If it trained on short tasks more than on long ones, this shows it.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import and_, exists, select

from recorder.queue.entered_steps import CAMPAIGN_ENDED
from recorder.states import AttemptState, Purpose, StepState, VersionState
from recorder.store.database import Store
from recorder.store.schema import attempts, step_trajectories, steps, trajectories, versions


@dataclass(frozen=True, slots=True)
class AttemptLengths:
    """Training attempts by duration. Long: longer than the median of those that ended.

    `unfinished`: attempts that were stopped because the campaign ended before a step took them; they are in no other
    figure.
    """

    median_s: float
    ended: int
    ended_long: int
    trained: int
    trained_long: int
    unfinished: int = 0

    @property
    def long_share(self) -> float:
        """The share of long attempts among those that ended, 0 to 1."""
        return self.ended_long / self.ended

    @property
    def long_share_trained(self) -> float | None:
        """The share of long attempts among those trained on, 0 to 1; None: there are none."""
        return self.trained_long / self.trained if self.trained else None


def split_lengths(durations: Sequence[tuple[float, bool]], unfinished: int = 0) -> AttemptLengths | None:
    """Split attempts at the median of their durations (seconds); None: there are none.

    Of each attempt: its duration, and whether a version that served was trained on it.
    """
    if not durations:
        return None
    median = statistics.median(seconds for seconds, _ in durations)
    trained = [seconds for seconds, is_trained in durations if is_trained]
    return AttemptLengths(
        median,
        len(durations),
        sum(seconds > median for seconds, _ in durations),
        len(trained),
        sum(seconds > median for seconds in trained),
        unfinished,
    )


async def read_lengths(store: Store, campaign_id: str) -> AttemptLengths | None:
    """Return how long a campaign's training attempts took; None: none has ended."""
    a, t = attempts.c, trajectories.c
    served = (
        exists()
        .where(step_trajectories.c.trajectory_id == t.id)
        .where(steps.c.id == step_trajectories.c.step_id, steps.c.state == StepState.DONE)
        .where(versions.c.id == steps.c.version_id)
        .where(versions.c.state.in_((VersionState.LIVE, VersionState.RETIRED)))
    )
    its = and_(
        t.project_id == a.project_id,
        t.address_group == a.group_external_id,
        t.external_id == a.trajectory_external_id,
        t.sequence == 0,
    )
    mine = (a.campaign_id == campaign_id, a.purpose == Purpose.TRAIN, a.started_at.is_not(None))
    query = (
        select((a.ended_at - a.started_at).label("seconds"), served.label("trained"))
        .select_from(attempts.join(trajectories, its))
        .where(*mine, a.state.in_((AttemptState.DONE, AttemptState.ERRORED)), a.ended_at.is_not(None))
    )
    cut = select(a.id).where(*mine, a.state == AttemptState.ABANDONED, a.error == CAMPAIGN_ENDED)
    async with store.read() as conn:
        durations = [(float(row.seconds), bool(row.trained)) for row in await conn.execute(query)]
        unfinished = len((await conn.execute(cut)).all())
    return split_lengths(durations, unfinished)
