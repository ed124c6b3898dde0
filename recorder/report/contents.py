"""Load a campaign's report from its recorded events and the store.

Owns: the points of its curve, the best version, goals, health figures, and its status as a code and a sentence.
Refuses: the measures (`recorder.views.campaigns.measures`), stop rules (`trainer.campaign.stop_rules`), and
presentation (`terminal`, `page`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from recorder import reasons
from recorder.errors import NotFound
from recorder.queue import campaigns
from recorder.queue.campaign_requests import ASKED_BY
from recorder.queue.campaigns import CampaignView
from recorder.queue.entered_steps import CAMPAIGN_ENDED
from recorder.queue.training.budgets import campaign_judging_cost
from recorder.queue.training.refusals import LOGPROB_GAP
from recorder.queue.training.steps import list_steps
from recorder.registry import tool_permissions, versions
from recorder.registry.aliases import AliasView, get_aliases
from recorder.registry.versions import VersionView
from recorder.report import conversations
from recorder.report.draws import load_draws
from recorder.report.shapes import (
    CampaignReport,
    CampaignStatus,
    ExcludedTrajectories,
    GoalResult,
    MeasuredPoint,
    ScenarioPair,
    WithheldTools,
)
from recorder.states import CampaignState, StepState
from recorder.store import sql
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import Alarm, CampaignEnded, CampaignMeasure, StepDone, Validation
from recorder.views.campaigns.history import CampaignHistory, read_history
from recorder.views.campaigns.lengths import read_lengths
from recorder.views.campaigns.measures import compute_measure, count_errored, count_measured, rank_versions
from recorder.views.campaigns.tokens import load_campaign_tokens

# Prefixes of a step's metrics (`trainer.campaign.measurement`), and the figures of its attempts and of the trainer.
_HEALTH: Final = "health."
_PARTS: Final = "part."
_FIGURES: Final = (
    "perfect", "zero_variance", "judge_agreement", "length", "turns", "tool_calls", "repetition", "seconds",
)  # fmt: skip
_TRAINERS: Final = (
    "entropy", "kl_engine", "kl_base", "clip_fraction", "drift.kl_base", "drift.kl_parent", "drift.kl_day",
    "drift.kl_week", "drift.entropy",
)  # fmt: skip


def validation_point(event: StepDone | Validation, kind: CampaignMeasure) -> MeasuredPoint:
    """The measure of a validation, or of a step's own attempts (which have no wins), as a point of the curve."""
    measure = compute_measure(event, kind)
    sure = measure.interval if measure is not None else None
    found = MeasuredPoint(
        step=event.step,
        version=event.sampled_by if isinstance(event, StepDone) else event.version,
        value=measure.value if measure is not None else None,
        attempts=count_measured(event),
        errored=count_errored(event, kind),
        low=sure.low if sure is not None else None,
        high=sure.high if sure is not None else None,
    )
    if isinstance(event, StepDone):
        return found
    return replace(
        found,
        figures=event.figures,
        adversarial=event.adversarial,
        adversarial_attempts=event.adversarial_attempts,
    )


def best_validation(validations: Sequence[Validation], kind: CampaignMeasure) -> Validation | None:
    """The newest validation of the campaign's best version."""
    placed = rank_versions(validations, kind)
    return next((one for one in reversed(validations) if placed and one.version == placed[0][0]), None)


def goal_results(wanted: Iterable[Mapping[str, Any]], of: MeasuredPoint | None) -> list[GoalResult]:
    """The goals beside the target, and whether a point meets each."""
    return [_goal(one, of.figures if of is not None else {}) for one in wanted]


def _goal(wanted: Mapping[str, Any], figures: Mapping[str, float]) -> GoalResult:
    most, least = wanted.get("at_most"), wanted.get("at_least")
    metric = str(wanted.get("metric"))
    value = figures.get(metric)
    words = " and ".join(
        f"{metric} at {word} {bound:g}" for word, bound in (("most", most), ("least", least)) if bound is not None
    )
    if value is None:
        return GoalResult(words, None, None)
    return GoalResult(words, value, (most is None or value <= most) and (least is None or value >= least))


def health_figures(steps: Sequence[StepDone]) -> dict[str, list[float | None]]:
    """The health figures of the steps, and those of the trainer beside them: figure → its value at each step.

    Figures without any value are absent.
    """
    parts = sorted({name for step in steps for name in step.metrics if name.startswith(_PARTS)})
    figures = {"reward": [step.reward for step in steps]}
    figures |= {name: [step.metrics.get(f"{_HEALTH}{name}") for step in steps] for name in _FIGURES}
    figures |= {name: [step.metrics.get(name) for step in steps] for name in (*parts, *_TRAINERS)}
    return {name: values for name, values in figures.items() if any(value is not None for value in values)}


PAUSED: Final = "paused"
INTERRUPTED: Final = "interrupted"
_ENDS: Final[Mapping[str, str]] = {
    "target": "the target was reached",
    "plateau": "the measure stopped rising",
    "budget": "its budget is spent",
    "steps": "all its steps are done",
    "epochs": "all its epochs are done",
    "converged": "the reward rises, but the measure no longer does",
    "schedule_ended": "no step can change anything",
    "ended": "a person ended it",
}


def campaign_status(
    campaign: CampaignView, ended: CampaignEnded | None, alarms: Sequence[Alarm], *, held: bool
) -> CampaignStatus:
    """The status of a campaign. `held`: a process runs it now."""
    again = f"`hone train --resume {campaign.name}`"
    if campaign.state is CampaignState.RUNNING:
        done = f"{campaign.steps_done} steps are done"
        if held:
            return CampaignStatus("running", f"it is running; {done}")
        return CampaignStatus("left", f"no process runs it: it was killed, or its machine went down; {done}", again)
    if campaign.state is CampaignState.FAILED:
        return CampaignStatus("failed", campaign.reason or "no reason was recorded", again)
    if campaign.state is CampaignState.STOPPED:
        return _stopped(campaign, ended, alarms, again)
    code = campaign.reason or "finished"
    detail = ended.detail if ended is not None and ended.reason == code else ""
    return CampaignStatus(code, ": ".join(part for part in (_ENDS.get(code, ""), detail) if part) or code)


def _stopped(
    campaign: CampaignView, ended: CampaignEnded | None, alarms: Sequence[Alarm], again: str
) -> CampaignStatus:
    if campaign.reason != PAUSED:
        by_signal = campaign.reason in (None, INTERRUPTED)
        return CampaignStatus(
            INTERRUPTED, "Ctrl-C or a signal stopped it" if by_signal else str(campaign.reason), again
        )
    if ended is not None and ended.detail.startswith(ASKED_BY):
        return CampaignStatus(PAUSED, f"a person paused it: {ended.detail}", again)
    why = next((alarm for alarm in reversed(alarms) if alarm.then == "pause"), None)
    if why is not None:
        words = f"{why.rule} after step {why.step}: {why.detail}"
    else:
        words = ended.detail if ended is not None and ended.detail else "a health rule raised an alarm"
    way = f"change the judge recipe, then `hone score --all --campaign {campaign.name}`, then {again}"
    if why is not None and why.rule == LOGPROB_GAP:
        way = f"correct the engine, or set trainer.max_logprob_gap, then {again}"
    return CampaignStatus(PAUSED, words, way)


async def find_campaign(project: Project, name: str | None) -> CampaignView:
    """A campaign by its name (the newest of that name) or id; without one the newest. Raises NotFound."""
    listed = await campaigns.list_campaigns(project)
    found = next((one for one in listed if name is None or name in (one.name, one.id)), None)
    if found is None:
        known = ", ".join(dict.fromkeys(one.name for one in listed)) or "none: `hone train` runs one"
        raise NotFound(f"no campaign {name[:200]!r}; there is {known}" if name else f"no campaign yet; {known}")
    return found


async def gather_report(store: Store, campaign: CampaignView) -> CampaignReport:
    """The whole report of a campaign."""
    history, settings = await read_history(store, campaign), campaign.settings
    alias = await _alias(store, campaign)
    held = any(one.id == campaign.id for one in await campaigns.list_running(store, alias.id))
    kind = history.measure
    seen = [validation_point(one, kind) for one in history.validations]
    chosen = best_validation(history.validations, kind)
    best = validation_point(chosen, kind) if chosen is not None else None
    ended = history.ended[-1] if history.ended and campaign.ended_at is not None else None
    first = _first(history)
    pairs, notes = await _pairs(store, campaign, first, best)
    async with store.read() as conn:
        made_at = await sql.current_time(conn)
    live = await versions.get_version(store, alias.live_version_id) if alias.live_version_id is not None else None
    return CampaignReport(
        id=campaign.id,
        name=campaign.name,
        alias=alias.name,
        state=campaign.state,
        made_at=made_at,
        began_at=campaign.started_at,
        ended_at=campaign.ended_at,
        status=campaign_status(campaign, ended, history.alarms, held=held),
        steps_done=len(history.steps),
        most_steps=settings.get("steps"),
        failed_steps=sum(step.failed for step in history.steps),
        kind=kind,
        target=settings.get("target"),
        beat=_beat(settings.get("beat")),
        own=[validation_point(step, kind) for step in history.steps],
        validations=seen,
        baselines=[validation_point(one, kind) for one in history.baselines],
        tests=[validation_point(one, kind) for one in history.tests],
        first=first,
        before=seen[0] if seen else None,
        best=best,
        served=ended.version if ended is not None else None,
        live=live.name if live is not None else None,
        goals=goal_results(settings.get("goals") or (), best),
        alarms=await conversations.alarm_evidence(store, history.alarms),
        changes=history.changes,
        judged=await campaign_judging_cost(store, campaign),
        attempts=sum(step.attempts for step in history.steps),
        errored=sum(step.errored for step in history.steps),
        trained=sum(step.trained for step in history.steps),
        excluded=excluded_trajectories(history.steps, ended),
        withheld=WithheldTools(
            await tool_permissions.list_withheld_tools(store, campaign.id),
            await tool_permissions.count_refused_calls(store, campaign.id),
        ),
        seconds=phase_seconds(history.steps),
        health=health_figures(history.steps),
        steps=history.steps,
        pairs=pairs,
        notes=notes,
        computed_on=await _computed_on(store, campaign),
        lengths=await read_lengths(store, campaign.id),
        draws=await load_draws(store, campaign),
        sampled=await load_campaign_tokens(store, campaign.id),
    )


async def _computed_on(store: Store, campaign: CampaignView) -> str | None:
    newest = await list_steps(store, campaign.alias_id, state=StepState.DONE, campaign_id=campaign.id, limit=1)
    return newest[0].computed_on if newest else None


async def _alias(store: Store, campaign: CampaignView) -> AliasView:
    return next(one for one in await get_aliases(Project(store, campaign.project_id)) if one.id == campaign.alias_id)


def _first(history: CampaignHistory) -> str | None:
    """The version that a campaign began with."""
    if history.validations and history.validations[0].step == 0:
        return history.validations[0].version
    return history.steps[0].sampled_by if history.steps else None


def _beat(wanted: Mapping[str, Any] | None) -> str | None:
    if not wanted:
        return None
    margin = wanted.get("margin") or 0.0
    return f"{wanted.get('baseline')}" + (f" by {margin:g}" if margin else "")


async def _pairs(
    store: Store, campaign: CampaignView, first: str | None, best: MeasuredPoint | None
) -> tuple[list[ScenarioPair], list[str]]:
    """Conversations before and after, or why there are none."""
    if first is None:
        return [], ["no conversations before and after: there are no attempts yet"]
    if best is None:
        return [], ["no conversations before and after: without a validation, the best version is unknown"]
    if best.version == first:
        return [], [f"no conversations before and after: no version measured better than {first}, the first"]
    old, new = [await _version(store, campaign, name) for name in (first, best.version)]
    if old is None or new is None:
        return [], [f"no conversations before and after: {first} or {best.version} is no longer in the store"]
    found = await conversations.improved_pairs(store, campaign, old, new)
    return found, [] if found else [f"no scenario has recorded attempts by both {first} and {best.version}"]


async def _version(store: Store, campaign: CampaignView, name: str) -> VersionView | None:
    try:
        return await versions.get_version_by_name(Project(store, campaign.project_id), name)
    except NotFound:
        return None


def excluded_trajectories(steps: Sequence[StepDone], ended: CampaignEnded | None = None) -> list[ExcludedTrajectories]:
    """Trajectories that steps excluded, and those that no step took, by reason, the most frequent first."""
    counted: Counter[str] = Counter()
    for step in steps:
        counted.update(step.left_out)
    if ended is not None:
        counted[CAMPAIGN_ENDED] += ended.left_out.get(CAMPAIGN_ENDED, 0)
    return [
        ExcludedTrajectories(code, runs, reasons.explain_reason(code) or "")
        for code, runs in counted.most_common()
        if runs
    ]


def phase_seconds(steps: Sequence[StepDone]) -> dict[str, float]:
    """The seconds of all steps, by phase."""
    total: Counter[str] = Counter()
    for step in steps:
        total.update(step.seconds)
    return dict(total)
