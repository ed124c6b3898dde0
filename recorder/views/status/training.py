"""Overview of training: what it waits for, its recent cost, its steps and campaigns, and training outcomes.

Owns: combining these in bounded reads. Refuses: each of them (the other modules of `recorder.views`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from recorder.queue import leases
from recorder.queue.training.budgets import DAY_S, HOUR_S
from recorder.store import sql
from recorder.store.database import Project
from recorder.views.campaigns.progress import CampaignProgress, list_campaigns_progress
from recorder.views.status.figures import JudgeSpending, judge_spending, total_spending
from recorder.views.status.stage_facts import forecast_groups, read_stages
from recorder.views.status.stages import LoopSettings, StageStatus
from recorder.views.versions.steps import OutcomeCounts, StepSummary, count_done_steps, list_steps, training_outcomes

STEPS: Final = 50
TRAINER: Final = "trainer:"  # the prefix of a lease on training an alias


@dataclass(frozen=True, slots=True)
class RecentSpending:
    """The recent cost: judging within 24 hours, and the steps that ended within one hour with a version, by alias.

    Both include campaigns, which `[learn]` does not limit.
    """

    judge_tokens: int
    judge_usd: float
    judge_by_purpose: Mapping[str, JudgeSpending]  # learning, shadow, gate, evaluation
    steps_last_hour: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class TrainingOverview:
    """The overview at a time (unix seconds).

    `waits_for`: groups by state, as text; `stages`: what each stage waits for. `trainers`: the aliases that a process
    trains now. `outcomes`: oldest first.
    """

    at: float
    waits_for: str
    stages: Sequence[StageStatus]
    groups: Mapping[str, int]
    trainers: Sequence[str]
    budgets: RecentSpending
    steps: Sequence[StepSummary]
    campaigns: Sequence[CampaignProgress]
    outcomes: Sequence[OutcomeCounts]


async def training_overview(project: Project, settings: LoopSettings, alias: str | None = None) -> TrainingOverview:
    """Return the overview; with an alias, only its learning stage, steps and campaigns."""
    there = await forecast_groups(project, settings.recorder, settings.learn)
    held = await leases.list_holders(project, TRAINER)
    return TrainingOverview(
        at=there.at,
        waits_for=there.sentence(),
        stages=[
            one for one in await read_stages(project, settings, there) if alias is None or one.alias in (None, alias)
        ],
        groups=there.groups,
        trainers=sorted(one.name.removeprefix(TRAINER) for one in held),
        budgets=await _budgets(project),
        steps=await list_steps(project, alias=alias, limit=STEPS),
        campaigns=await list_campaigns_progress(project, alias),
        outcomes=await training_outcomes(project),
    )


async def _budgets(project: Project) -> RecentSpending:
    async with project.store.read() as conn:
        at = await sql.current_time(conn)
        spent = await judge_spending(conn, project.id, at - DAY_S)
    total = total_spending(spent.values())
    return RecentSpending(
        judge_tokens=total.tokens,
        judge_usd=total.cost_usd or 0.0,
        judge_by_purpose=spent,
        steps_last_hour=await count_done_steps(project, at - HOUR_S),
    )
