"""Progress of campaigns: steps, measures, and each stop rule with its current value.

Owns: this view. Refuses: ending a campaign (`trainer.campaign.stop_rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncConnection

from recorder.queue.campaign_requests import CampaignRequest, open_request
from recorder.queue.campaigns import TRAINS, campaign_view
from recorder.queue.training.budgets import MINUTE_S, CampaignJudgingCost, campaign_judging_cost
from recorder.states import CampaignState
from recorder.store.database import Project, Store
from recorder.store.schema import aliases, campaigns
from recorder.views.campaigns.events import BEGUN, StepDone, Validation, decode_fields
from recorder.views.campaigns.history import CampaignHistory, read_newest
from recorder.views.campaigns.measures import Measure, compute_measure

SHOWN: Final = 10  # the newest campaigns
_ROWS: Final = 400  # ledger rows of one campaign


@dataclass(frozen=True, slots=True)
class CampaignMeasurement:
    """A measure of a version after `step` steps."""

    step: int
    version: str
    measure: Measure


@dataclass(frozen=True, slots=True)
class StopRuleProgress:
    """A rule that may end a campaign, and its current value; both as text."""

    rule: str
    now: str


@dataclass(frozen=True, slots=True)
class CampaignProgress:
    """One campaign. `failed_steps` counts over the whole campaign; times are unix seconds.

    `asked`: that a person asked its process to pause or end it, after the step that runs.
    """

    id: str
    name: str
    alias: str
    state: CampaignState
    reason: str | None
    steps_done: int
    steps: int | None
    failed_steps: int
    measured: Sequence[CampaignMeasurement]
    rules: Sequence[StopRuleProgress]
    began_at: float
    ended_at: float | None
    asked: CampaignRequest | None = None


@dataclass(frozen=True, slots=True)
class _StopRules:
    """The stop rules of a campaign: its settings by the same names, completed by what its program recorded."""

    steps: int | None = None
    epochs: int | None = None
    epoch_steps: int = 1
    target: float | None = None
    target_steps: int = 1
    plateau_steps: int | None = None
    plateau_delta: float = 0.0
    val_every: int | None = None
    max_minutes: float | None = None
    max_judge_usd: float | None = None
    max_judge_tokens: int | None = None

    @property
    def has_judge_budget(self) -> bool:
        return self.max_judge_usd is not None or self.max_judge_tokens is not None


async def list_campaigns_progress(
    project: Project, alias: str | None = None, state: CampaignState | None = None
) -> list[CampaignProgress]:
    """Return the newest campaigns, newest first, optionally only of one alias or state."""
    query = (
        select(campaigns, aliases.c.name.label("alias"))
        .join(aliases, aliases.c.id == campaigns.c.alias_id)
        .where(campaigns.c.project_id == project.id, TRAINS)
        .order_by(campaigns.c.started_at.desc(), campaigns.c.id.desc())
        .limit(SHOWN)
    )
    if alias is not None:
        query = query.where(aliases.c.name == alias)
    if state is not None:
        query = query.where(campaigns.c.state == state)
    async with project.store.read() as conn:
        rows = list(await conn.execute(query))
        found = [(row, await read_newest(conn, row.id, _ROWS), await _asked(conn, row)) for row in rows]
    return [await _progress(project.store, *one) for one in found]


async def _asked(conn: AsyncConnection, row: Any) -> CampaignRequest | None:
    return await open_request(conn, row.id, BEGUN) if row.state == CampaignState.RUNNING else None


async def _progress(
    store: Store, row: Any, history: CampaignHistory, asked: CampaignRequest | None
) -> CampaignProgress:
    rules = _rules(row.settings, history)
    by = history.measure
    seen = _measurements(history, history.measured(by, regularly=bool(rules.val_every)))
    judged = await campaign_judging_cost(store, campaign_view(row)) if rules.has_judge_budget else None
    return CampaignProgress(
        id=row.id,
        name=row.name,
        alias=row.alias,
        state=CampaignState(row.state),
        reason=row.reason,
        steps_done=row.steps_done,
        steps=rules.steps,
        failed_steps=sum(step.failed for step in history.steps),
        measured=_measurements(history, history.validations) or seen,
        rules=[
            *_by_measure(rules, seen),
            *_by_steps(rules, row.steps_done),
            *_by_budget(rules, history.seconds / MINUTE_S, judged),
        ],
        began_at=row.started_at,
        ended_at=row.ended_at,
        asked=asked,
    )


def _rules(settings: Mapping[str, Any], history: CampaignHistory) -> _StopRules:
    rules = decode_fields(_StopRules, settings)
    if not history.begun:
        return rules
    begun = history.begun[-1]
    if begun.measure is None:  # an older program did not record what its rules use
        return rules
    return replace(rules, plateau_steps=begun.plateau_steps, epoch_steps=begun.epoch_steps or 1)


def _measurements(history: CampaignHistory, events: Iterable[StepDone | Validation]) -> list[CampaignMeasurement]:
    """Return the measures of events by the campaign's measure; events without one are omitted."""
    found = ((event, compute_measure(event, history.measure)) for event in events)
    return [
        CampaignMeasurement(event.step, event.sampled_by if isinstance(event, StepDone) else event.version, measure)
        for event, measure in found
        if measure is not None
    ]


# --- the active rules, as text


def _by_steps(rules: _StopRules, done: int) -> Iterable[StopRuleProgress]:
    if rules.steps is not None:
        yield StopRuleProgress(f"after {rules.steps} steps", f"{done} done, {max(0, rules.steps - done)} left")
    if rules.epochs is not None:
        plural, left = "s" * (rules.epochs != 1), max(0, rules.epochs * rules.epoch_steps - done)
        rule = f"after {rules.epochs} epoch{plural} of {rules.epoch_steps} steps"
        yield StopRuleProgress(rule, f"{done / rules.epoch_steps:.3g} done, {left} steps left")


def _by_measure(rules: _StopRules, seen: Sequence[CampaignMeasurement]) -> Iterable[StopRuleProgress]:
    """Describe the rules on the measure; `seen` has the measures that they use."""
    if rules.target is not None:
        last = f"newest {seen[-1].measure.value:.3g}" if seen else "nothing measured yet"
        often = f", {rules.target_steps} times in a row" if rules.target_steps > 1 else ""
        yield StopRuleProgress(f"at {rules.target:g}{often}", last)
    if rules.plateau_steps is not None:
        best = max(seen, key=lambda one: one.measure.value, default=None)
        best_text = f"best {best.measure.value:.3g} after step {best.step}" if best else "nothing measured yet"
        left = rules.plateau_steps - (seen[-1].step - seen[0].step if seen else 0)
        soonest = f"at the earliest in {left} steps" if left > 0 else "possible after each step"
        rule = f"no rise over {rules.plateau_delta:g} in {rules.plateau_steps} steps"
        yield StopRuleProgress(rule, f"{best_text}; {soonest}")


def _by_budget(rules: _StopRules, minutes: float, judged: CampaignJudgingCost | None) -> Iterable[StopRuleProgress]:
    """Describe the budget rules; `judged` is None if no rule needs it."""
    if rules.max_minutes is not None:
        now = f"{minutes:.3g} minutes spent on recorded steps and validations"
        yield StopRuleProgress(f"after {rules.max_minutes:g} minutes", now)
    if judged is None:
        return
    if rules.max_judge_usd is not None:
        yield StopRuleProgress(f"when judging has cost ${rules.max_judge_usd:g}", f"${judged.usd:.4g} until now")
    if rules.max_judge_tokens is not None:
        taken = judged.tokens_in + judged.tokens_out
        yield StopRuleProgress(f"when judging has taken {rules.max_judge_tokens:,} tokens", f"{taken:,} until now")
