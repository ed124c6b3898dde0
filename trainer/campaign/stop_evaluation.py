"""Decide after each step whether a campaign stops, and describe a pause: its evidence, and how to resume.

Owns: gathering the input of the stop rules (measures, baselines, goals, cost, health signals of the newest step),
noticing a changed judge, and recording each signal once. For a pause: the attempts with the largest gain and the reward
part behind it, the text on how to resume, and the settings that changed before a resume. Refuses: the rules
(`trainer.campaign.stop_rules`, `trainer.campaign.health`), and which version stays in service
(`trainer.campaign.service`).
"""

from __future__ import annotations

import json
import statistics
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from recorder.queue.campaign_requests import open_request
from recorder.queue.campaigns import CampaignView, Scenario
from recorder.queue.judging.scores import REWARD, NewPart, StoredScore
from recorder.queue.judging.turn_values import turn_of
from recorder.queue.training import budgets
from recorder.queue.training.refusals import LOGPROB_GAP
from recorder.stats.means import PooledMeasure
from recorder.store.database import Store
from recorder.views.campaigns.events import (
    ALARM,
    BEGUN,
    JUDGE_CHANGED,
    JUDGED,
    Alarm,
    CampaignBegun,
    CampaignMeasure,
    SettingChanged,
    StepDone,
    Validation,
)
from recorder.views.campaigns.history import CampaignHistory
from recorder.views.campaigns.measures import count_measured, measure_spread, measure_value
from trainer.campaign.health import HealthFinding, list_findings
from trainer.campaign.record import write_event
from trainer.campaign.stop_rules import (
    BeatGoal,
    CampaignCost,
    StopCode,
    StopDecision,
    StopRules,
    asked_stop,
    decide_stop,
)
from trainer.campaign_settings import BASE, CampaignSettings
from trainer.measures import judges
from trainer.measures.campaign_measure import unmet_goals
from trainer.progress import Progress
from trainer.tasks.selection import steps_of_a_pass

Evidence = Mapping[str, Any]  # {"trajectory", "reward", "part"}
LoadScores = Callable[[int], Awaitable[Collection[StoredScore]]]  # by the number of a step
SHOWN: Final = 3
FALL: Final = "reward_fall"  # the rule whose evidence is the worst of the attempts
# Settings that decide where and how fast a campaign runs, and not its result.
_OF_THE_PLACE: Final = frozenset({"name", "alias", "python", "cwd", "agent_env", "concurrency", "lease_s"})
_LONGEST: Final = 500  # characters of a value

PLATEAU_STEPS: Final = 10  # the default, with validations
_EXACT: Final = 10**9  # comparisons of version 0 with itself, of which half are won by definition: no uncertainty


class StopEvaluator:
    """Decides after each step whether the campaign stops; its minutes count from its creation."""

    def __init__(
        self,
        store: Store,
        campaign: CampaignView,
        settings: CampaignSettings,
        measure: CampaignMeasure,
        train: Sequence[Scenario],
        load_scores: LoadScores,
        progress: Progress,
        schedule_ended: Callable[[], Awaitable[str | None]],
    ) -> None:
        self._store = store
        self._campaign = campaign
        self._settings = settings
        self._measure = measure
        self._epoch_steps = steps_of_a_pass(train, settings.scenarios_per_step, settings.adversarial_share)
        self._load_scores = load_scores
        self._progress = progress
        self._schedule_ended = schedule_ended  # returns why no step may begin, if so
        self._began = time.monotonic()
        self._minutes_before: float | None = None

    def begun(self, step: int, recipe: Mapping[str, Any], *, paused: bool) -> CampaignBegun:
        """The event that a process runs the campaign from here, after `step` steps.

        It holds the parameters of the rules that are no settings: the measure, the plateau, the length of an epoch.
        """
        return CampaignBegun(step, paused, recipe, self._measure, self._plateau_steps, self._epoch_steps)

    @property
    def last_step(self) -> int:
        """The last step that the campaign can come to."""
        epochs = self._settings.epochs
        return self._settings.steps if epochs is None else min(self._settings.steps, epochs * self._epoch_steps)

    @property
    def _plateau_steps(self) -> int | None:
        return self._settings.plateau_steps or (PLATEAU_STEPS if self._settings.val_every is not None else None)

    async def stop(self, history: CampaignHistory) -> StopDecision | None:
        """Whether the campaign ends now, and why."""
        if history.tests:  # an earlier process was killed during the tests: nothing is trained after them
            return StopDecision(StopCode.STEPS, f"{history.steps_done} steps done, and the test part is measured")
        async with self._store.read() as conn:
            asked = await open_request(conn, self._campaign.id, BEGUN)
        if asked is not None:
            return asked_stop(asked)
        last = history.steps[-1] if history.steps else None
        if last is not None and last.undecided and last.step > history.answered_until:
            return StopDecision(StopCode.PAUSED, last.undecided)
        await self._judges(history)
        s = self._settings
        seen = history.measured(self._measure, regularly=s.val_every is not None)
        newest = history.validations[-1] if history.validations else None
        missing = unmet_goals(s.goals, newest) if s.goals else []
        beat = self._beat(history)
        if s.beat is not None and beat is None:
            missing.append(f"{s.beat.baseline} was not measured by the current judge")
        found = await self._look(history)
        measures = [one for event in seen if (one := self._pooled_measure(event)) is not None]
        rules = self._rules(beat, await self._schedule_ended())
        return decide_stop(measures, history.steps_done, rules, await self._spent(history), missing, found)

    async def _judges(self, history: CampaignHistory) -> None:
        """Record which judges scored the newest step, and report a new judge."""
        step = history.steps_done
        by = await judges.step_judges(self._store, self._campaign, step)
        found = judges.judge_change(
            history.judged, step, by, await judges.current_switch(self._store, self._campaign.id)
        )
        if found is None:
            return
        row, change = found
        if change is not None:  # reported first: a process that is killed in between reports it again when it resumes
            history.changes.append(change)
            await write_event(self._store, self._campaign, JUDGE_CHANGED, change)
            self._progress.tell(change)
        history.judged.append(row)
        await write_event(self._store, self._campaign, JUDGED, row)

    def _pooled_measure(self, event: StepDone | Validation) -> PooledMeasure | None:
        value = measure_value(event, self._measure)
        if value is None:
            return None
        return PooledMeasure(event.step, value, count_measured(event), measure_spread(event, self._measure))

    def _rules(self, beat: BeatGoal | None, schedule_ended: str | None) -> StopRules:
        s = self._settings
        return StopRules(
            steps=s.steps,
            target=s.target,
            target_steps=s.target_steps,
            beat=beat,
            plateau_steps=self._plateau_steps,
            plateau_delta=s.plateau_delta,
            epochs=s.epochs,
            epoch_steps=self._epoch_steps,
            max_minutes=s.max_minutes,
            max_judge_usd=s.max_judge_usd,
            max_judge_tokens=s.max_judge_tokens,
            schedule_ended=schedule_ended,
        )

    def _beat(self, history: CampaignHistory) -> BeatGoal | None:
        if (wanted := self._settings.beat) is None:
            return None
        if wanted.baseline == BASE and self._measure is CampaignMeasure.WINS:  # a win rate already compares with it
            return BeatGoal(BASE, PooledMeasure(0, 0.5, _EXACT), wanted.margin)
        against = history.baseline(wanted.baseline, self._measure)
        measure = self._pooled_measure(against) if against is not None else None
        return BeatGoal(wanted.baseline, measure, wanted.margin) if measure is not None else None

    async def _spent(self, history: CampaignHistory) -> CampaignCost:
        s = self._settings
        if self._minutes_before is None:
            self._minutes_before = history.seconds / 60
        minutes = self._minutes_before + (time.monotonic() - self._began) / 60
        if s.max_judge_usd is None and s.max_judge_tokens is None:
            return CampaignCost(minutes)
        judged = await budgets.campaign_judging_cost(self._store, self._campaign)
        return CampaignCost(minutes, judged.usd, judged.tokens_in + judged.tokens_out)

    async def _look(self, history: CampaignHistory) -> list[HealthFinding]:
        """The health findings of the newest step, since the last resume after a pause and by one judge."""
        since = max(history.answered_until, history.one_judge_from - 1)
        steps = [step for step in history.steps if step.step > since]
        validations = [one for one in history.validations if one.step > since]
        found = list_findings(steps, validations, self._settings.health)
        for one in found:
            if not any((alarm.step, alarm.rule) == (one.step, one.rule) for alarm in history.alarms):
                await self._record_alarm(history, one)
        return found

    async def _record_alarm(self, history: CampaignHistory, one: HealthFinding) -> None:
        shows_attempts = one.then == "pause" and one.rule != LOGPROB_GAP  # that one is about the engine
        scores = await self._load_scores(one.step) if shows_attempts else ()
        evidence = lowest_attempts(scores) if one.rule == FALL else most_gained_attempts(scores)
        alarm = Alarm(one.step, one.rule, one.then, one.detail, one.figures, evidence)
        history.alarms.append(alarm)
        await write_event(self._store, self._campaign, ALARM, alarm)
        self._progress.tell(alarm)


def most_gained_attempts(scores: Iterable[StoredScore]) -> list[Evidence]:
    """The attempts with the highest rewards above their group's mean, and the part behind most of it."""
    found = [one for score in scores for one in _gains(score)]
    found.sort(key=lambda one: one[0], reverse=True)
    return [evidence for _, evidence in found[:SHOWN]]


def lowest_attempts(scores: Iterable[StoredScore]) -> list[Evidence]:
    """The attempts with the lowest rewards."""
    found: list[Evidence] = [evidence | {"part": None} for score in scores for _, evidence in _gains(score)]
    return sorted(found, key=lambda evidence: evidence["reward"])[:SHOWN]


def _gains(score: StoredScore) -> Iterator[tuple[float, dict[str, Any]]]:
    rewards = {p.trajectory_id: p.value for p in score.parts if p.part == REWARD and p.value is not None}
    if not rewards:
        return
    mean, paid = statistics.fmean(rewards.values()), _paid_by(score.parts)
    for id_, reward in rewards.items():
        yield reward - mean, {"trajectory": id_, "reward": reward, "part": paid.get(id_)}


def _paid_by(parts: Sequence[NewPart]) -> dict[str, str]:
    """For each attempt, the part that is highest above its group's mean, by weight."""
    by_part: defaultdict[str, dict[str, float]] = defaultdict(dict)
    for part in parts:
        if part.part != REWARD and part.value is not None and part.weight and turn_of(part.part) is None:
            by_part[part.part][part.trajectory_id] = part.value * part.weight
    best: dict[str, tuple[float, str]] = {}
    for name, values in by_part.items():
        mean = statistics.fmean(values.values())
        for id_, value in values.items():
            best[id_] = max(best.get(id_, (float("-inf"), "")), (value - mean, name))
    return {id_: name for id_, (_, name) in best.items()}


def mend_engine(campaign: str) -> str:
    """What to do about an engine whose logprobs are not the trainer's."""
    return (
        "Correct the engine, or set trainer.max_logprob_gap if it computes what it should, and resume with `hone train "
        f"--resume {campaign}`"
    )


def how_to_resume(campaign: str, live: str, history: CampaignHistory) -> str:
    """The text on how to react to a pause of a campaign with this history."""
    newest = history.steps[-1] if history.steps else None
    paused_by = {one.rule for one in history.alarms if newest and one.step == newest.step and one.then == "pause"}
    if paused_by == {FALL}:
        return (
            f"paused: {live} is in service, and nothing is lost. Look at the attempts above (`hone show ID`). If the "
            "policy got worse, make the version before live again (`hone promote NAME@N`), lower trainer.lr, and "
            f"resume with `hone train --resume {campaign}`. To ignore the rule, set it to "
            'then = "note" (docs/health.md).'
        )
    if paused_by == {LOGPROB_GAP}:
        return f"paused: {live} is in service, and nothing is lost. {mend_engine(campaign)}."
    if newest is not None and newest.undecided:
        return (
            f"paused: {live} is in service, and nothing is lost. Mend the check, judge the excluded groups with `hone "
            f"score --all --campaign {campaign}`, and resume with `hone train --resume {campaign}`."
        )
    return (
        f"paused: {live} is in service, and nothing is lost. Look at the attempts above (`hone show ID`). If they "
        "cheat, add a rule or change the judge recipe, rescore the groups with `hone score --all`, and resume with "
        f"`hone train --resume {campaign}`. To ignore a rule of [campaign.health] that is wrong here, set its "
        '`then` to "note" (docs/health.md).'
    )


def changed_settings(step: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[SettingChanged]:
    """The campaign's settings that changed."""
    names = [name for name in now if name not in _OF_THE_PLACE and was.get(name) != now[name]]
    return [SettingChanged(step, f"campaign.{name}", _shown(was.get(name)), _shown(now[name])) for name in names]


def changed_recipe(step: int, was: Mapping[str, Any], now: Mapping[str, Any]) -> list[SettingChanged]:
    """The parts of the judge recipe that changed."""
    names = [name for name in now if was.get(name) != now[name]]
    return [SettingChanged(step, f"judge.{name}", _shown(was.get(name)), _shown(now[name])) for name in names]


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"
