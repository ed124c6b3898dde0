"""The health rules of campaigns over the steps of `hone learn`.

Owns: which steps and which gates' attempts the rules see, reporting each signal once, and pausing learning for a rule
whose consequence is a pause. Refuses: the rules (`trainer.campaign.health`), their figures
(`trainer.measures.round_figures`), and the falls and drifts that a live version is looked at for
(`trainer.runtime.learner`).

A person's decision about a pause begins the history anew, as resuming does in a campaign: nothing is compared with
the cause of a pause. Attempts at a gate's held-out scenarios are the validations, of versions that the gate accepted.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from recorder.queue import gate_requests
from recorder.queue.judging import scores
from recorder.queue.training import steps
from recorder.queue.training.steps import StepView
from recorder.registry import aliases, learning_health, live_findings
from recorder.registry.aliases import AliasView
from recorder.registry.learning_health import LearningHealth, RuleSignal
from recorder.registry.live_findings import HEALTH, LiveFinding
from recorder.settings import ALWAYS_WATCHED, HealthSettings, RuleName
from recorder.states import StepState
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import Alarm, StepDone, Validation
from trainer.campaign.health import RULES, HealthInputs, HealthSignal, current_signals
from trainer.campaign.stop_evaluation import Evidence, most_gained_attempts
from trainer.progress import Progress

MOST_STEPS: Final = 1000  # the newest are read
_OFF: Final = {name: HealthSettings(then="off") for name in ALWAYS_WATCHED}  # the learner looks for these by itself


class HealthWatch:
    """Watches live learning of one alias."""

    def __init__(
        self, store: Store, alias: AliasView, settings: Mapping[RuleName, HealthSettings], progress: Progress
    ) -> None:
        self._store = store
        self._alias = alias
        self._project = Project(store, alias.project_id)
        self._settings = {**settings, **_OFF}
        self._progress = progress
        self._steps: list[StepDone] = []
        self._since: float | None = None  # the newest decision about a version, unix seconds; None: nothing is read yet

    async def note_step(self, done: StepDone) -> None:
        """Take a step that has just ended, also one that made no version, and report what the rules say now."""
        if not await self._read():
            last = self._steps[-1].step if self._steps else 0
            self._steps.append(_step(done.step or last, done.metrics))
        await self._report()

    async def pause(self) -> bool:
        """Whether a rule pauses learning now: written as a finding about the live version, with transcripts."""
        await self._read()
        signals = await self._report()
        found = next((one for one in signals if one.then == "pause"), None)
        alias = await aliases.get_alias(self._project, self._alias.name)
        live = alias.live_version_id
        if found is None or live is None or await live_findings.has_finding(self._store, live, HEALTH):
            return False
        evidence = await self._evidence()
        shown = ", ".join(f"`hone show {one['trajectory']}`" for one in evidence)
        read = f"; read what gained most: {shown}" if shown else ""
        figures = {**found.figures, "trajectories": [one["trajectory"] for one in evidence]}
        finding = LiveFinding(HEALTH, f"the health rule {found.rule} fired: {found.detail}{read}")
        await live_findings.write_finding(self._store, alias, live, finding, figures)
        return True

    async def _read(self) -> bool:
        """Read the steps since the newest decision, at first and after each decision. Return whether they were read."""
        since = await live_findings.decided_at(self._store, self._alias.id, HEALTH)
        if since == self._since:
            return False
        self._since = since
        found = await steps.list_steps(self._store, self._alias.id, limit=MOST_STEPS)
        own = [one for one in reversed(found) if one.campaign_id is None and one.started_at > since and _has_ended(one)]
        self._steps = [_step(one.number, one.figures) for one in own]
        return True

    async def _report(self) -> list[RuleSignal]:
        """Write and tell what changed. Return what the rules say now."""
        last = self._steps[-1].step if self._steps else 0
        seen = HealthInputs(self._steps, await self._validations())
        now = [_signal(rule, found, self._settings) for rule, found in current_signals(seen, self._settings).items()]
        async with self._store.read() as conn:
            before = await learning_health.load_health(conn, self._alias.project_id, self._alias.id)
        known = {one.rule for health in before for one in health.signals}
        if known == {one.rule for one in now}:
            return now
        await learning_health.write_health(self._store, self._alias, LearningHealth(self._alias.name, last, now))
        for one in now:
            if one.rule not in known:
                evidence = await self._evidence() if one.then == "pause" else ()
                self._progress.tell(Alarm(last, one.rule, one.then, one.detail, one.figures, evidence))
        return now

    async def _validations(self) -> list[Validation]:
        alias = await aliases.get_alias(self._project, self._alias.name)
        if alias.live_version_id is None:
            return []
        found = await gate_requests.list_accepted(self._store, alias.live_version_id, self._since or 0.0)
        return [
            Validation(one.step, f"{alias.name}@{one.number}", one.success, None, one.attempts, 0, 0.0) for one in found
        ]

    async def _evidence(self) -> list[Evidence]:
        newest = await steps.list_steps(self._store, self._alias.id, state=StepState.DONE, limit=1)
        if not newest:
            return []
        used = await steps.list_step_groups(self._store, newest[0].id)
        return most_gained_attempts((await scores.get_scores(self._store, used.values())).values())


def _has_ended(step: StepView) -> bool:
    return step.state is not StepState.RUNNING and bool(step.metrics)


def _step(number: int, metrics: Mapping[str, float]) -> StepDone:
    """A step as the rules read it. Its reward is comparable only if it is known of how many trajectories it is."""
    attempts = int(metrics.get("health.attempts", 0))
    reward = metrics.get("reward_mean") if attempts else None
    return StepDone(
        number, None, "", None, reward, None, None, None, attempts=attempts, errored=0, trained=0, metrics=dict(metrics)
    )


def _signal(rule: RuleName, found: HealthSignal, settings: Mapping[RuleName, HealthSettings]) -> RuleSignal:
    given = settings[rule].then if rule in settings else None
    then = "pause" if (given or RULES[rule].then) == "pause" else "note"  # learning has no end
    return RuleSignal(rule, then, found.detail, dict(found.figures))
