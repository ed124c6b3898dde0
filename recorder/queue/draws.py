"""The scenarios that were drawn for a campaign's steps, with the estimates they were drawn by; and what came of them.

Owns: the rows of draws, which are written before attempts start and never change, so that a resumed campaign attempts
the same; and the rewards of a campaign's groups by scenario and step. Refuses: drawing (`trainer.campaign.draw`), and
attempts (`recorder.queue.attempts`).

A campaign that draws uniformly and replaces nothing has no rows: its seed determines what each step draws.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum

from sqlalchemy import select

from recorder.queue.judging.scores import REWARD
from recorder.states import Purpose
from recorder.stats.advantages import ZERO_VARIANCE
from recorder.store import sql
from recorder.store.database import Store
from recorder.store.schema import attempts, draws, groups, score_parts


class DrawReason(StrEnum):
    """Why a scenario was drawn."""

    UNIFORM = "uniform"  # in its turn
    CHOSEN = "chosen"  # its attempts were expected to differ
    EXPLORED = "explored"  # uniformly among those that were not chosen
    REFILL = "refill"  # in the place of a group whose rewards were equal


@dataclass(frozen=True, slots=True)
class Draw:
    """A scenario in a step, at a `place` from 0. `refill`: 0 for those that began the step, then the number of times.

    `reward` and `differ`: the estimated mean reward, and the estimated chance that its attempts' rewards differ, when
    it was drawn. `seed`: of the random numbers that drew it.
    """

    step_number: int
    place: int
    scenario_id: str
    refill: int
    reason: DrawReason
    reward: float
    differ: float
    seed: str


@dataclass(frozen=True, slots=True)
class GroupOutcome:
    """The rewards of a scored group: one attempt each, of one scenario, in a step (counted from 1)."""

    scenario_id: str
    step: int
    rewards: Sequence[float]

    @property
    def comparable(self) -> bool:
        """Whether its attempts can be compared: at least two have a reward."""
        return len(self.rewards) > 1

    @property
    def equal(self) -> bool:
        """Whether it teaches nothing, because all its rewards are equal."""
        return self.comparable and max(self.rewards) - min(self.rewards) <= ZERO_VARIANCE


async def write_draws(store: Store, campaign_id: str, drawn: Sequence[Draw]) -> None:
    """Write what was drawn, in one transaction; places of a step that are written already do not change."""
    rows = [{"campaign_id": campaign_id, **asdict(one)} for one in drawn]
    if rows:
        async with store.write() as conn:
            await conn.execute(sql.insert_ignore(conn, draws), rows)


async def list_draws(store: Store, campaign_id: str, step_number: int | None = None) -> list[Draw]:
    """Return what was drawn for a campaign, or for one of its steps, by step and place."""
    query = select(draws).where(draws.c.campaign_id == campaign_id)
    if step_number is not None:
        query = query.where(draws.c.step_number == step_number)
    async with store.read() as conn:
        rows = await conn.execute(query.order_by(draws.c.step_number, draws.c.place))
        return [sql.as_view(Draw, row, reason=DrawReason(row.reason)) for row in rows]


async def list_outcomes(store: Store, campaign_id: str) -> list[GroupOutcome]:
    """Return the rewards of a campaign's scored training groups, by step and name of the group."""
    named = (
        select(attempts.c.group_external_id, attempts.c.step_number)
        .where(attempts.c.campaign_id == campaign_id, attempts.c.purpose == Purpose.TRAIN)
        .distinct()
        .subquery()
    )
    query = (
        select(named.c.step_number, named.c.group_external_id, groups.c.scenario_id, score_parts.c.value)
        .join(groups, groups.c.external_id == named.c.group_external_id)
        .join(score_parts, score_parts.c.score_id == groups.c.current_score_id)
        .where(
            groups.c.campaign_id == campaign_id,
            score_parts.c.part == REWARD,
            score_parts.c.value.is_not(None),
        )
        .order_by(named.c.step_number, named.c.group_external_id, score_parts.c.trajectory_id)
    )
    found: defaultdict[tuple[int, str, str], list[float]] = defaultdict(list)
    async with store.read() as conn:
        for row in await conn.execute(query):
            found[row.step_number, row.group_external_id, row.scenario_id].append(row.value)
    return [GroupOutcome(scenario_id, step, rewards) for (step, _, scenario_id), rewards in found.items()]
