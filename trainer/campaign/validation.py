"""A campaign's measurements beside its steps: validations, baselines before the first step, the final test.

Owns: these rounds, which arm attempts each scenario, and recording each result once. Refuses: when one is due
(`trainer.campaign.loop`), and training: none of these attempts is trained on.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from recorder.queue.attempts import record_successes
from recorder.queue.campaigns import CampaignView, Scenario
from recorder.queue.judging.scores import REWARD
from recorder.registry.versions import VersionView
from recorder.states import Purpose
from recorder.store.database import Store
from recorder.views.campaigns.events import BASELINE, TEST, VALIDATION, CampaignMeasure, Validation
from recorder.views.campaigns.history import CampaignHistory
from recorder.views.campaigns.measures import SPREAD
from recorder.views.trajectories.shapes import GroupView
from trainer.campaign.measurement import (
    LoadedRound,
    RoundMeasurer,
    attempt_rewards,
    attempt_values,
    is_all_judged,
    is_spoilt,
)
from trainer.campaign.record import write_event
from trainer.campaign.sampling import AttemptRound, RoundSampler, attempt_number, refuse_broken_agent
from trainer.campaign_settings import BASE, CampaignSettings
from trainer.measures.arms import Arm, Arms, baseline_arms
from trainer.measures.campaign_measure import AttemptValue, WinRate, count_wins
from trainer.measures.round_figures import round_figures
from trainer.progress import Progress

_NAMED: Final = {"turns": "health.turns", "tokens": "health.length", "seconds": "health.seconds"}


class CampaignValidator:
    """Measures for one campaign."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        settings: CampaignSettings,
        *,
        arms: Arms,
        measure: CampaignMeasure,
        averaged: bool,
        sampler: RoundSampler,
        measurer: RoundMeasurer,
        progress: Progress,
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._settings = settings
        self._arms = arms
        self._measure = measure
        self._averaged = averaged  # whether the mean of the rewards is a measure (not of RULER's)
        self._sampler = sampler
        self._measurer = measurer
        self._progress = progress

    async def validate(self, history: CampaignHistory, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure the version in service after the finished steps."""
        of = self._round(history.steps_done, Purpose.VAL, tasks, self._arms.live)
        done = await self._measure_round(of, self._arms.live, live.name)
        history.validations.append(done)
        await self._write(VALIDATION, done)

    async def baselines(self, history: CampaignHistory, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure each baseline before the first step, and the one to beat again after a change of judge.

        Version 0 itself is not measured twice.
        """
        step, beat = history.steps_done, self._settings.beat
        for name in baseline_arms(self._settings):
            again = beat is not None and name == beat.baseline and history.baseline(name, self._measure) is None
            if not again and (step or any(one.version == name for one in history.baselines)):
                continue
            own = next((v for v in history.validations if v.step == step), None) if live.number == 0 else None
            if name == BASE and own is not None:
                done = replace(own, version=BASE, baseline=True)
            else:
                arm = self._arms.of(name)
                of = self._round(step, Purpose.EVAL, tasks, arm)
                done = replace(await self._measure_round(of, arm, name), baseline=True)
            history.baselines.append(done)
            await self._write(BASELINE, done)

    async def test(self, history: CampaignHistory, tasks: Sequence[Scenario], live: VersionView) -> None:
        """Measure the final version, version 0 and the baselines with the test scenarios."""
        rivals = [self._arms.of(name) for name in dict.fromkeys([BASE, *baseline_arms(self._settings)])]
        for arm in (self._arms.live, *rivals):
            name = live.name if arm is self._arms.live else arm.name
            if any(one.version == name for one in history.tests):
                continue
            of = self._round(history.steps_done, Purpose.EVAL, tasks, arm, key="test")
            done = replace(await self._measure_round(of, arm, name), part="test", baseline=arm is not self._arms.live)
            history.tests.append(done)
            await self._write(TEST, done)

    def _round(self, step: int, purpose: Purpose, tasks: Sequence[Scenario], arm: Arm, key: str = "") -> AttemptRound:
        numbers = arm.numbers(self._settings.val_attempts)
        if self._measure is CampaignMeasure.WINS:
            numbers.append(self._arms.beside(arm))  # the last of each group is version 0's
        keys = [key, f"side{arm.place}" if purpose is Purpose.EVAL else ""]
        return AttemptRound(step, purpose, tasks, numbers, "-".join(one for one in keys if one))

    async def _measure_round(self, of: AttemptRound, arm: Arm, name: str) -> Validation:
        began = time.monotonic()
        tally = await self._sampler.sample(of)
        refuse_broken_agent(of, tally)
        groups = await (self._sampler.scored(of) if self._needs_scores else self._sampler.groups(of))
        measured = await self._measurer.measure(groups)
        if of.purpose is Purpose.VAL:  # so that the page of a version shows at which scenarios it did better
            await record_successes(self._store, self._campaign.id, of.step, of.purpose, measured.succeeded)
        ordinary = await self._measurer.load([group for group in groups if not group.adversarial])
        adversarial = await self._measurer.load([group for group in groups if group.adversarial])
        done = Validation(
            step=of.step,
            version=name,
            success=measured.success,
            reward=measured.reward if self._averaged else None,
            attempts=measured.attempts,
            errored=sum(tally.failed.values()),
            seconds=time.monotonic() - began,
            figures=self._figures(ordinary),
            agent_failures=measured.agent_failures,
        )
        if self._measure is CampaignMeasure.NOTHING:  # RULER's mean is no measure of adversarial scenarios either
            return done
        if self._measure is not CampaignMeasure.WINS:
            apart_of = measured.adversarial_attempts
            return replace(done, adversarial=measured.adversarial, adversarial_attempts=apart_of)
        won, apart = self._wins(ordinary), self._wins(adversarial)
        return replace(
            done,
            win_rate=won.share,
            attempts=won.compared,
            adversarial=apart.share,
            adversarial_attempts=apart.compared,
            agent_failures=sum(
                map(is_spoilt, (m for loaded in (ordinary, adversarial) for v in loaded.views for m in v.members))
            ),
        )

    @property
    def _needs_scores(self) -> bool:
        return self._measurer.needs_scores or any(goal.metric.startswith("part.") for goal in self._settings.goals)

    def _figures(self, loaded: LoadedRound) -> dict[str, float]:
        """The figures of the attempts without version 0's, which take part for comparison only."""
        ours = range(self._settings.val_attempts)
        views = [replace(view, members=[m for m in view.members if attempt_number(m) in ours]) for view in loaded.views]
        own = {member.id for view in views for member in view.members}
        scored = {
            id_: replace(score, parts=tuple(part for part in score.parts if part.trajectory_id in own))
            for id_, score in loaded.scores.items()
        }
        found = round_figures(views, scored)
        figures = {name: found[of] for name, of in _NAMED.items() if of in found}
        # A mean over the attempts judged so far would favour those that are judged fast.
        if self._needs_scores or is_all_judged(views, scored):
            figures |= {name: value for name, value in found.items() if name.startswith("part.")}
        rewards = [p.value for score in scored.values() for p in score.parts if p.part == REWARD and not p.unasked]
        known = [value for value in rewards if value is not None]
        if self._measure is CampaignMeasure.REWARD and len(known) > 1:
            figures[SPREAD] = statistics.stdev(known)
        return figures

    def _wins(self, loaded: LoadedRound) -> WinRate:
        rewards = attempt_rewards(loaded)
        return count_wins(pair for view in loaded.views if (pair := self._pair(view, rewards)) is not None)

    def _pair(
        self, view: GroupView, rewards: Mapping[str, float | None]
    ) -> tuple[list[AttemptValue], AttemptValue] | None:
        """The values of a group's attempts, and version 0's."""
        each = self._settings.val_attempts
        worth = attempt_values(view, rewards)
        return ([one for place, one in worth.items() if 0 <= place < each], worth[each]) if each in worth else None

    async def _write(self, code: str, done: Validation) -> None:
        await write_event(self._store, self._campaign, code, done)
        self._progress.tell(done)
