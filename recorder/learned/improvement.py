"""One scenario of a campaign by two versions: which runs show best what changed.

Owns: finding a campaign's runs by two versions, comparing what may be compared, and which run stands for its side.
Refuses: conversations (`recorder.reading`), and tasks of live traffic (`recorder.learned.before_after`).

Rewards are compared within one group, or where they say something outside it (`scores.absolute`): a ranking judge's
numbers say nothing beside those of another group.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Select, and_, select

from recorder.states import TrajectoryState
from recorder.store.database import Store
from recorder.store.schema import calls, groups, scenarios, score_parts, scores, trajectories
from recorder.work.campaigns import CampaignView, groups_of
from recorder.work.scores import REWARD

LOOKED_AT: Final = 3000  # runs of each version, the newest
_TRAINED_ON: Final = "train"


@dataclass(frozen=True, slots=True)
class Attempted:
    """One run at a scenario. `absolute`: its reward says something beside runs of other groups."""

    scenario: str
    split: str
    version_id: str
    group: str
    run: str
    reward: float | None
    absolute: bool


@dataclass(frozen=True, slots=True)
class Improved:
    """One scenario by both versions: the run nearest to its side's mean of each.

    `rise`: by how much the mean reward rose; None: the rewards cannot be compared, or there are none.
    """

    scenario: str
    split: str
    before: Attempted
    after: Attempted
    rise: float | None


async def attempted_by(store: Store, campaign: CampaignView, version_id: str) -> list[Attempted]:
    """The completed runs of a campaign that a version answered, newest first.

    Which it was says the run's last answer: a campaign asks versions by name, and what a run is pinned to is another.
    """
    async with store.read() as conn:
        rows = await conn.execute(_query(campaign, version_id))
        return [Attempted(r[0], r[1], r[2], r[3], r[4], r[5], bool(r[6])) for r in rows]


def _query(campaign: CampaignView, version_id: str) -> Select[Any]:
    t, current = trajectories.c, groups.c.current_score_id
    of_run = (score_parts.c.score_id == current, score_parts.c.trajectory_id == t.id, score_parts.c.part == REWARD)
    columns = (scenarios.c.external_id, scenarios.c.split, calls.c.version_id, t.group_id, t.id)
    return (
        select(*columns, score_parts.c.value, scores.c.absolute)
        .select_from(trajectories)
        .join(calls, calls.c.id == t.leaf_call_id)
        .join(groups, groups.c.id == t.group_id)
        .join(scenarios, scenarios.c.id == groups.c.scenario_id)
        .outerjoin(scores, scores.c.id == current)
        .outerjoin(score_parts, and_(*of_run))
        .where(
            calls.c.version_id == version_id,
            t.state == TrajectoryState.COMPLETED,
            t.group_id.in_(groups_of(campaign)),
        )
        .order_by(t.id.desc())
        .limit(LOOKED_AT)
    )


def most_improved(before: Sequence[Attempted], after: Sequence[Attempted], most: int) -> list[Improved]:
    """Scenarios that both attempted: those whose reward rose first, held-out ones before those trained on, then by
    how much it rose; at last those that cannot be compared.
    """
    old, new = _by_scenario(before), _by_scenario(after)
    found = [_beside(old[key], new[key]) for key in old if key in new]
    return sorted(found, key=_order)[:most]


def _order(one: Improved) -> tuple[bool, bool, bool, float, str]:
    rise = one.rise if one.rise is not None else 0.0
    return one.rise is None, rise <= 0, one.split == _TRAINED_ON, -rise, one.scenario


def _by_scenario(runs: Iterable[Attempted]) -> Mapping[tuple[str, str], list[Attempted]]:
    found: defaultdict[tuple[str, str], list[Attempted]] = defaultdict(list)
    for run in runs:
        found[run.split, run.scenario].append(run)
    return found


def _beside(old: Sequence[Attempted], new: Sequence[Attempted]) -> Improved:
    together = {run.group for run in old} & {run.group for run in new}
    if together:
        old, new = ([run for run in side if run.group in together] for side in (old, new))
    comparable = bool(together) or all(run.absolute for run in (*old, *new) if run.reward is not None)
    was, now = _mean(old), _mean(new)
    rise = now - was if comparable and was is not None and now is not None else None
    before, after = _typical(old, was), _typical(new, now)
    return Improved(after.scenario, after.split, before, after, rise)


def _mean(runs: Iterable[Attempted]) -> float | None:
    rewards = [run.reward for run in runs if run.reward is not None]
    return statistics.fmean(rewards) if rewards else None


def _typical(runs: Sequence[Attempted], mean: float | None) -> Attempted:
    """The run nearest to the mean; the oldest of several."""

    def far(run: Attempted) -> tuple[bool, float, str]:
        return run.reward is None, abs((run.reward or 0.0) - (mean or 0.0)), run.run

    return min(runs, key=far)
