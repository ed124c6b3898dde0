"""A long run's measurements out of Hone's store, in which its campaigns write them.

Owns: what a validation says of each form, and which phases are over. Refuses: writing anything.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from examples.rlvr.forms import read as asked_for
from examples.rlvr.long_run.phases import Phase, form_name
from examples.rlvr.long_run.points import AlarmPoint, FormPoint, Point
from recorder.queue import campaigns
from recorder.queue.campaigns import CampaignView
from recorder.queue.groups.readiness import is_usable
from recorder.settings import RecorderSettings
from recorder.states import CampaignState, Purpose
from recorder.stats.means import share_interval
from recorder.store.bootstrap import open_store
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import StepDone
from recorder.views.campaigns.history import CampaignHistory, read_history
from recorder.views.trajectories.shapes import GroupView
from recorder.views.trajectories.transcripts import load_groups

PROJECT: Final = "default"
DRIFT: Final = "drift."
SHOWN: Final = ("kl_base", "kl_parent", "entropy", "trajectories", "tokens")
FIGURES: Final = 5  # decimal places


@dataclass(frozen=True, slots=True)
class PhaseNews:
    """What a phase's campaign has by now. `points`: those that were not known. `over`: it is finished."""

    points: Sequence[Point]
    alarms: Sequence[AlarmPoint]
    steps_done: int
    over: bool


async def read_phase(data: Path, recording: RecorderSettings, phase: Phase, known: Callable[[int], bool]) -> PhaseNews:
    """Read a phase's campaign. `known`: whether there is a measurement after so many steps of the run already."""
    store = await open_store(data, recording, migrate=False)
    try:
        campaign = await campaigns.find_campaign(Project(store, PROJECT), phase.name)
        if campaign is None:
            return PhaseNews((), (), 0, over=False)
        history = await read_history(store, campaign)
        return PhaseNews(
            [one async for one in _points(store, campaign, history, phase, known)],
            [AlarmPoint(step=phase.first + one.step, rule=one.rule, words=one.detail) for one in history.alarms],
            history.steps_done,
            over=campaign.state is CampaignState.FINISHED,
        )
    finally:
        await store.close()


async def _points(
    store: Store, campaign: CampaignView, history: CampaignHistory, phase: Phase, known: Callable[[int], bool]
) -> Any:
    earlier = 0
    for one in history.validations:
        at = phase.first + one.step
        if not known(at):  # the first one of a later phase measures the version that the phase before ended with
            of = await campaigns.group_states(store, campaign.id, one.step, Purpose.VAL)
            groups = await load_groups(store, [group.group_id for group in of], with_tokens=True)
            own = [step for step in history.steps if earlier < step.step <= one.step]
            yield Point(
                step=at,
                phase=phase.name,
                version=one.version,
                forms=form_points(groups),
                drift=newest_drift([step for step in history.steps if step.step <= one.step]),
                reward=_mean([step.reward for step in own if step.reward is not None]),
                own_success=_mean([step.success for step in own if step.success is not None]),
            )
        earlier = one.step


def newest_drift(steps: Sequence[StepDone]) -> dict[str, float]:
    """Return the figures of the newest step that was compared on the drift set; empty if there is none."""
    for step in reversed(steps):
        if f"{DRIFT}kl_base" in step.metrics:
            found = {name: step.metrics.get(f"{DRIFT}{name}") for name in SHOWN}
            return {name: round(value, 6) for name, value in found.items() if value is not None}
    return {}


@dataclass(frozen=True, slots=True)
class Answer:
    """One answer to a held-out prompt: whether it is right, its logprobs, and whether it was cut off."""

    right: bool
    logprobs: Sequence[float]
    cut_off: bool


def form_points(groups: Sequence[GroupView]) -> dict[str, FormPoint]:
    """Return the figures of each form. An attempt that failed is no answer."""
    of_form: defaultdict[str, list[Answer]] = defaultdict(list)
    for group in groups:
        assert group.scenario is not None
        form = asked_for(str(group.scenario.input))
        for member in group.members:
            if not is_usable(member.state, member.purpose, member.selection):
                continue
            choices = [choice for call in member.calls for choice in call.choices[:1] if choice.logprobs]
            if choices:
                last = choices[-1]
                right = form.fulfilled_by(member.answer or "")
                answer = Answer(right, list(last.logprobs or ()), last.finish_reason == "length")
                of_form[form_name(form)].append(answer)
    return {name: form_point(answers) for name, answers in of_form.items()}


def form_point(answers: Sequence[Answer]) -> FormPoint:
    """Return the figures of a form's answers, of which there is at least one."""
    success = statistics.fmean(one.right for one in answers)
    sure = share_interval(success, len(answers))
    assert sure is not None
    sampled = [logprob for one in answers for logprob in one.logprobs]
    return FormPoint(
        answers=len(answers),
        success=round(success, FIGURES),
        low=round(sure.low, FIGURES),
        high=round(sure.high, FIGURES),
        entropy=round(-statistics.fmean(sampled), FIGURES),
        tokens=round(len(sampled) / len(answers), 2),
        cut_off=round(statistics.fmean(one.cut_off for one in answers), FIGURES),
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(statistics.fmean(values), FIGURES) if values else None
