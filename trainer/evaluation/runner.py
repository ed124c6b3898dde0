"""Run an evaluation: one round of groups for each seed, in which every version attempts every scenario.

Owns: starting services and the agent, the order of rounds, and giving up when attempts do not reflect the versions.
Refuses: attempts and waiting for the judge (`trainer.campaign.sampling`), success (`trainer.campaign.measurement`),
figures (`trainer.evaluation.figures`), the row (`trainer.evaluation.request`).

Finished work is found by the names of groups and attempts, so a killed program resumes where it stopped.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field, replace
from typing import Final

from proxy.settings.hone import HoneSettings
from recorder.queue import leases
from recorder.queue.campaigns import CampaignView, GroupStatus, Scenario
from recorder.queue.training import budgets
from recorder.queue.training.budgets import CampaignJudgingCost
from recorder.registry import keys, replicas, versions
from recorder.registry.aliases import AliasView
from recorder.registry.versions import VersionView
from recorder.states import Purpose
from recorder.store.database import Project, Store
from trainer.agents.attempts import AttemptRunner
from trainer.campaign.measurement import RoundMeasurer
from trainer.campaign.record import hold_campaign, mark_ended_early, require_lease
from trainer.campaign.sampling import AttemptRound, RoundSampler, RoundTally, refuse_broken_agent
from trainer.errors import CampaignError
from trainer.evaluation import request
from trainer.evaluation.figures import EvaluatedAttempt, VersionFigures, attempt_outcomes
from trainer.evaluation.figures import version_figures as figures_of
from trainer.evaluation.request import (
    EvaluationMeasures,
    EvaluationRequest,
    begin_or_find_evaluation,
    choose_measures,
    evaluation_identity,
    has_success_function,
    resolve_names,
)
from trainer.measures.arms import Arm
from trainer.progress import Event, Notice, PhaseStatus, Progress
from trainer.runtime import measures
from trainer.runtime.services import RECENT_S, CampaignServices, ServiceRequest, endpoint_of, start_agents

_PAGE: Final = 32  # groups whose conversations are in memory at a time


@dataclass(frozen=True, slots=True)
class EvaluationResult:
    """The result. `unscored`: the number of `groups` without a score, where scores were needed."""

    id: str
    alias: str
    scenarios: int
    adversarial_scenarios: int  # how many of the scenarios are adversarial
    attempts: int
    seeds: int
    versions: Sequence[VersionFigures]
    groups: int
    unscored: int
    judging: CampaignJudgingCost | None  # None: no judge was needed
    seconds: float
    failed: Mapping[str, int] = field(default_factory=dict)  # failed attempts by reason
    first_error: str | None = None


class SeedProgress:
    """Progress with the seed in place of a campaign's step.

    The detail is the finished part, rounded down to tenths: a log then has one line for each tenth.
    """

    def __init__(self, progress: Progress, seeds: int) -> None:
        self._progress = progress
        self._seeds = seeds

    def tell(self, event: Event) -> None:
        """Pass the event on."""
        if isinstance(event, PhaseStatus) and event.step:
            phase = "attempting" if event.phase == "validating" else event.phase
            tenth = (
                f"{100 * (10 * event.done // event.total) // 10} %" if event.total and event.done is not None else ""
            )
            event = replace(event, step=0, phase=f"seed {event.step} of {self._seeds} · {phase}", detail=tenth)
        self._progress.tell(event)


class Evaluation:
    """One evaluation, from its current state to its end. `arms`: the arms of its versions, in order."""

    def __init__(
        self,
        store: Store,
        row: CampaignView,
        alias: str,
        asked: EvaluationRequest,
        arms: Sequence[Arm],
        wanted: EvaluationMeasures,
        *,
        sampler: RoundSampler,
        measurer: RoundMeasurer,
        still_ours: Callable[[], None],
    ) -> None:
        self._store = store
        self._row = row
        self._alias = alias
        self._asked = asked
        self._arms = arms
        self._wanted = wanted
        self._sampler = sampler
        self._measurer = measurer
        self._judged = measurer.needs_scores
        self._still_ours = still_ours  # raises CampaignBusy if the row's lease was lost

    async def run(self) -> EvaluationResult:
        """Run the missing attempts, wait for scores, and end the evaluation.

        Raises `CampaignError` if a version goes out of service, or no attempt of a round completed.
        """
        began = time.monotonic()
        tasks = await request.evaluation_tasks(self._store, self._row)
        rounds = [self._round(seed, tasks) for seed in range(1, self._asked.seeds + 1)]
        failed, first_error = Counter[str](), None
        for one in rounds:
            self._still_ours()
            tally = await self._sampler.sample(one)
            await self._require_sound(one, tally)
            failed += tally.failed
            first_error = first_error or tally.first_error
        groups = [group for one in rounds for group in await self._groups(one)]
        made = [outcome async for outcome in self._outcomes(groups)]
        found = EvaluationResult(
            self._row.id,
            self._alias,
            scenarios=len(tasks),
            adversarial_scenarios=sum(task.adversarial for task in tasks),
            attempts=self._asked.attempts,
            seeds=self._asked.seeds,
            versions=figures_of(self._arms, made, self._wanted),
            groups=len(groups),
            unscored=sum(group.current_score_id is None for group in groups) if self._judged else 0,
            judging=await budgets.campaign_judging_cost(self._store, self._row) if self._judged else None,
            seconds=time.monotonic() - began,
            failed=failed,
            first_error=first_error,
        )
        await request.end_evaluation(self._store, self._row, request.COMPARED)
        return found

    def _round(self, seed: int, tasks: Sequence[Scenario]) -> AttemptRound:
        numbers = [number for arm in self._arms for number in arm.numbers(self._asked.attempts)]
        return AttemptRound(seed, Purpose.EVAL, tasks, numbers, called="seed")

    async def _groups(self, of: AttemptRound) -> list[GroupStatus]:
        return await (self._sampler.scored(of) if self._judged else self._sampler.groups(of))

    async def _outcomes(self, groups: Sequence[GroupStatus]) -> AsyncIterator[EvaluatedAttempt]:
        for at in range(0, len(groups), _PAGE):
            page = groups[at : at + _PAGE]
            success: Mapping[str, bool] = {}
            if self._wanted.success:
                success = (await self._measurer.measure(page)).succeeded
            adversarial = [group.group_id for group in page if group.adversarial]
            for one in attempt_outcomes(await self._measurer.load(page), success, self._asked.attempts, adversarial):
                yield one

    async def _require_sound(self, of: AttemptRound, tally: RoundTally) -> None:
        """Give up for good if attempts failed without a version's fault: they are not repeated."""
        try:
            await require_in_service(Project(self._store, self._row.project_id), [arm.model for arm in self._arms])
            refuse_broken_agent(of, tally)
        except CampaignError:
            await request.end_evaluation(self._store, self._row, request.SPOILT)
            raise


async def require_in_service(project: Project, models: Sequence[str]) -> None:
    """Raise `CampaignError` if no engine holds a version any more: attempts could not request it."""
    compared = [one for one in await versions.get_versions(project) if one.name in models and one.number]
    up = [one for one in await replicas.list_replicas(project, RECENT_S) if one.state == "up"]
    if up and (gone := next((one for one in compared if not _is_held(one, up)), None)):
        raise CampaignError(
            f"no engine holds {gone.name} (it is {gone.state}): attempts cannot request it. Give it a share of "
            f"trajectories (`hone canary {gone.name} PERCENT`) or make it live (`hone promote {gone.name}`), or "
            "compare others."
        )


def _is_held(version: VersionView, up: Sequence[replicas.ReplicaView]) -> bool:
    return any(version.engine_name in replica.loaded for replica in up)


def evaluation_measures(asked: EvaluationRequest, everything: HoneSettings) -> EvaluationMeasures:
    """The measures that the settings allow. Raises `CampaignError` if there is none."""
    rewards = measures.recipe_of(asked.settings, everything).in_force()
    return choose_measures(asked.settings, rewards, len(asked.names))


async def run_evaluation(
    asked: EvaluationRequest, everything: HoneSettings, wanted: ServiceRequest, progress: Progress
) -> EvaluationResult:
    """Run an evaluation to its end, with all the services it needs.

    Raises the trainer's and recorder's errors; the evaluation is then marked failed, or stopped if cancelled, and the
    same command resumes it.
    """
    settings, progress = asked.settings, SeedProgress(progress, asked.seeds)
    found, recipe = evaluation_measures(asked, everything), measures.recipe_of(settings, everything)
    wanted = replace(wanted, judge=not has_success_function(settings))
    async with AsyncExitStack() as stack:
        services = await stack.enter_async_context(CampaignServices(wanted, lambda text: progress.tell(Notice(text))))
        agent, *others = agents = await start_agents(settings, everything.data, stack)
        progress.tell(PhaseStatus(0, "starting"))
        store = await services.store()
        alias = await services.alias(settings.alias)
        arms = await _arms(store, alias, asked, everything)
        url = await services.ready()
        await require_in_service(Project(store, alias.project_id), [arm.model for arm in arms])
        reward = recipe.model_dump(mode="json", include=measures.OF_THE_REWARD)
        row = await begin_or_find_evaluation(store, alias, asked, evaluation_identity(asked, arms, reward), progress)
        owner = leases.holder_name()
        keeper = await stack.enter_async_context(hold_campaign(store, row, owner, settings.lease_s))
        await stack.enter_async_context(mark_ended_early(store, row))
        for started in agents:
            await started.ready()
        scopes = [keys.Scope.INFER, keys.Scope.EVAL]  # it asks for versions by name
        endpoint = await endpoint_of(store, url, alias, row, scopes, stack)
        models = {number: arm.model for arm in arms for number in arm.numbers(asked.attempts)}
        runner = AttemptRunner(store, agent, replace(endpoint, models=models), settings, owner, services.ready)
        run = Evaluation(
            store,
            row,
            alias.name,
            asked,
            arms,
            found,
            sampler=RoundSampler(store, row, settings, runner, progress, services.judge_runs),
            measurer=RoundMeasurer(store, settings, others[0] if others else None, progress),
            still_ours=lambda: require_lease(keeper, row),
        )
        return await run.run()


async def _arms(store: Store, alias: AliasView, asked: EvaluationRequest, everything: HoneSettings) -> list[Arm]:
    there = {
        one.id: one.name
        for one in await versions.get_versions(Project(store, alias.project_id))
        if one.alias_id == alias.id
    }
    live = there[alias.live_version_id or ""]  # an alias is made with version 0 live
    return resolve_names(asked.names, alias.name, live, frozenset(there.values()), everything.providers())
