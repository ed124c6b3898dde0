"""`hone train`: start services, agent and trainer, run a new or resumed campaign, and write its report.

Owns: what starts concurrently (engine, agent and torch all take seconds), where the report is written, that a failed
report never hides how the campaign ended, and reporting tools that the proxy withholds from attempts because they may
write. Refuses: the steps (`trainer.campaign.loop`), the campaign's row (`trainer.campaign.record`), the report's
contents (`recorder.report`), and withholding tools (`proxy.mcp_gateway.write_protection`).
"""

from __future__ import annotations

import asyncio
import importlib
import os
import time
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final, Protocol, TypeVar

from proxy.settings.hone import HoneSettings
from recorder.base.findings import Finding
from recorder.errors import RecorderError, StoreError
from recorder.models.engine_parsers import EngineParsers, choose_engine_parsers
from recorder.processes import file_modes
from recorder.queue import campaigns, leases
from recorder.queue.campaigns import CampaignView
from recorder.registry import tool_permissions
from recorder.registry.aliases import AliasView
from recorder.report import page, terminal
from recorder.report.contents import gather_report
from recorder.store.database import Project, Store
from recorder.views.campaigns.events import CampaignEnded, CampaignMeasure
from recorder.views.campaigns.history import read_history
from trainer.agents.attempts import AttemptRunner
from trainer.campaign.loop import Campaign, VersionComparison
from trainer.campaign.measurement import RoundMeasurer
from trainer.campaign.record import CampaignPlan, begin_or_find, hold_campaign, mark_ended_early, require_lease
from trainer.campaign.sampling import RoundSampler
from trainer.errors import AliasBusy, TrainerError
from trainer.measures import arms
from trainer.progress import CompositeProgress, JsonProgress, Notice, PhaseStatus, Progress
from trainer.runtime import measures
from trainer.runtime.rank_program import require_undivided_gpus
from trainer.runtime.resolved_settings import trainer_settings
from trainer.runtime.service_price import explain_campaign_price
from trainer.runtime.services import CampaignServices, ServiceRequest, endpoint_of, start_agents
from trainer.step.fits.report import FitReport
from trainer.step.fits.source import FitSource
from trainer.step.summary import StepTrainer
from trainer.trackers import base
from trainer.trackers.delivery import track_events
from trainer.trackers.event_figures import TranscriptSamples

YIELD_TIMEOUT_S = 1800.0  # the learner's step on a large model may take minutes, and is not interrupted


R = TypeVar("R")


class Trainer(StepTrainer, Protocol):
    """An open trainer."""

    async def close(self) -> None:
        """Release the alias."""


class FitTrainer(Trainer, Protocol):
    """An open trainer that also trains on demonstrations or on pairs alone."""

    async def fit_once(self, source: FitSource[R]) -> FitReport[R]:
        """Train on a source alone, and publish a version."""


OpenTrainer = Callable[[Store, AliasView, HoneSettings], Coroutine[Any, Any, Trainer]]


async def train(
    plan: CampaignPlan,
    everything: HoneSettings,
    wanted: ServiceRequest,
    progress: Progress,
    open_with: OpenTrainer | None = None,
) -> CampaignEnded:
    """Run a campaign to its end, with all the services it needs. `open_with` replaces the real trainer.

    Events are also appended to `campaigns/<name>/events.jsonl` in the data folder, whatever `progress` is; at the end
    the campaign's report is written beside it.

    Raises the trainer's and recorder's errors; the campaign is then marked failed, or stopped if cancelled, and can be
    resumed.
    """
    settings = plan.settings
    async with AsyncExitStack() as stack:
        progress = CompositeProgress(progress, stack.enter_context(event_log(everything.data, plan.name)))
        if (price := await explain_campaign_price(plan, everything)) is not None:
            progress.tell(Notice(f"{price[0].upper()}{price[1:]}."))  # before anything is sampled
        planned = measures.measure_of(plan, everything)
        _warn_of_blind_validation(plan, planned.measure, progress)
        services = await stack.enter_async_context(CampaignServices(wanted, lambda text: progress.tell(Notice(text))))
        agent, *others = agents = await start_agents(settings, everything.data, stack)
        progress.tell(PhaseStatus(0, "starting"))
        if open_with is None:
            warm = asyncio.create_task(asyncio.to_thread(_import_trainer), name="import torch")
            stack.push_async_callback(asyncio.gather, warm, return_exceptions=True)
        store = await services.store()
        alias = await services.alias(settings.alias)
        campaign = await begin_or_find(store, alias, plan, progress)
        owner = leases.holder_name()
        keeper = await stack.enter_async_context(hold_campaign(store, campaign, owner, settings.lease_s))
        kept = base.campaign_run(campaign, settings, everything.trainer, everything.data)
        tracking = await stack.enter_async_context(
            track_events(everything.track, kept, progress, TranscriptSamples(store, campaign.id))
        )
        tracking.again((await read_history(store, campaign)).events)
        with_trackers = CompositeProgress(progress, tracking)
        await stack.enter_async_context(report_on_failure(store, campaign, everything.data, progress))
        await stack.enter_async_context(mark_ended_early(store, campaign))
        await stack.enter_async_context(notify_withheld(store, campaign.id, progress))
        open_with = partial(open_when_free, open_with or open_trainer, campaign, progress)
        trainer = await stack.enter_async_context(open_in_background(store, alias, everything, open_with, progress))
        for started in agents:
            await started.ready()
        compared = VersionComparison(
            planned.measure, planned.averaged, arms.campaign_arms(settings, alias.name), planned.recipe
        )
        scopes = measures.scopes_of(plan, planned.measure)
        endpoint = await endpoint_of(store, await services.ready(), alias, campaign, scopes, stack)
        endpoint = replace(endpoint, models=compared.arms.models(settings.val_attempts))
        runner = AttemptRunner(store, agent, endpoint, settings, owner, services.ready)
        run = Campaign(
            store,
            campaign,
            alias,
            settings,
            compared,
            sampler=RoundSampler(store, campaign, settings, runner, with_trackers, services.judge_runs),
            measurer=RoundMeasurer(store, settings, others[0] if others else None, with_trackers),
            trainer=trainer,
            training=everything.trainer,
            progress=with_trackers,
            still_ours=lambda: require_lease(keeper, campaign),
            leave_report=lambda as_ended: leave_report(store, as_ended, everything.data, with_trackers),
        )
        ended = await run.run()
        with_trackers.tell(ended)  # last, because scripts wait for it
        return ended


def _warn_of_blind_validation(plan: CampaignPlan, measure: CampaignMeasure, progress: Progress) -> None:
    if measure is CampaignMeasure.NOTHING and (plan.validates or plan.settings.plateau_steps is not None):
        text = (
            "nothing can be measured, so neither a target nor a plateau ends this campaign: RULER's scores compare "
            "trajectories of one group. Set campaign.success, or give validation scenarios where RULER is "
            "the only reward"
        )
        progress.tell(Notice(text, warning=True))


@contextmanager
def event_log(data: Path, name: str) -> Iterator[JsonProgress]:
    """The file of a campaign's events; a resumed campaign appends to it."""
    path = data / "campaigns" / name / "events.jsonl"
    file_modes.make_folder(path.parent)
    with open(path, "a", encoding="utf-8", opener=file_modes.private_opener) as file:
        yield JsonProgress(file)


@asynccontextmanager
async def open_in_background(
    store: Store, alias: AliasView, everything: HoneSettings, open_with: OpenTrainer, progress: Progress
) -> AsyncIterator[asyncio.Task[Trainer]]:
    """The trainer of an alias, as a task that may still be loading; closed at the end. Once open, it says what it
    adapts.
    """

    async def open_and_tell() -> Trainer:
        opened = await open_with(store, alias, everything)
        if opened.target_note is not None:
            progress.tell(Notice(opened.target_note))
        return opened

    task = asyncio.create_task(open_and_tell(), name="open the trainer")
    try:
        yield task
    finally:
        task.cancel()
        (opened,) = await asyncio.gather(task, return_exceptions=True)
        if not isinstance(opened, BaseException):
            await opened.close()


async def open_trainer(store: Store, alias: AliasView, everything: HoneSettings) -> FitTrainer:
    """Load the base that the engine serves, and take the alias's lease."""
    require_undivided_gpus(everything.trainer, everything.engine.share)
    module = await asyncio.to_thread(_import_trainer)
    await leases.release_dead(Project(store, alias.project_id), leases.trainer_lease(alias.name))
    engine, settings = everything.engine, trainer_settings(everything)
    opened: FitTrainer = await module.AliasTrainer.open(
        store,
        alias,
        settings,
        everything.data,
        module.EngineFacts(
            choose_parsers(everything).names, engine.args, engine.share, engine.chat_template, everything.adapters.url
        ),
    )
    return opened


def choose_parsers(everything: HoneSettings) -> EngineParsers:
    """The parsers of the engine."""
    engine, base = everything.engine, trainer_settings(everything).base
    return choose_engine_parsers(base, engine.tool_call_parser, engine.reasoning_parser, engine.chat_template)


async def open_when_free(
    open_with: OpenTrainer,
    campaign: CampaignView,
    progress: Progress,
    store: Store,
    alias: AliasView,
    everything: HoneSettings,
) -> Trainer:
    """Open a campaign's trainer once the learner has released the alias, which it does between two steps.

    Raises `AliasBusy` if another campaign runs on the alias, or it is not released in time.
    """
    waits = 0.0
    while True:
        try:
            return await open_with(store, alias, everything)
        except AliasBusy as e:
            others = [one for one in await campaigns.list_running(store, alias.id) if one.id != campaign.id]
            if others:
                raise AliasBusy(f"campaign {others[0].name!r} trains the alias {alias.name!r} now. {e}") from e
            if waits >= YIELD_TIMEOUT_S:
                raise
            progress.tell(
                PhaseStatus(0, "starting", detail="waiting for the learner to finish its step and release the alias")
            )
            began = time.monotonic()
            await _until_released(store, alias, YIELD_TIMEOUT_S - waits)
            waits += time.monotonic() - began


async def _until_released(store: Store, alias: AliasView, patience_s: float) -> None:
    with suppress(TimeoutError):  # the caller tries once more, and reports the holder
        async with asyncio.timeout(patience_s):
            await leases.wait_until_free(Project(store, alias.project_id), leases.trainer_lease(alias.name))


def compare_with_engines(everything: HoneSettings, answers: Sequence[Mapping[str, Any]]) -> list[Finding]:
    """Whether engines computed the trainer's logprobs in their `answers` (`trainer.step.engine_check`)."""
    module = importlib.import_module("trainer.step.engine_check")
    parsed = module.parse_answers(answers)
    found: list[Finding] = module.check_engine_logprobs(trainer_settings(everything), everything.engine.args, parsed)
    return found


def explain_target(everything: HoneSettings) -> list[Finding]:
    """Which share of the base's weights `trainer.target` adapts (`trainer.step.state.target_check`), and what a
    training service would compute (`trainer.step.tinker.service_check`).
    """
    module = importlib.import_module("trainer.step.state.target_check")
    settings = trainer_settings(everything)
    found: list[Finding] = module.check_target(settings)
    if settings.backend == "tinker":
        service = importlib.import_module("trainer.step.tinker.service_check")
        found += service.check_service(settings, everything.engine.share)
    return found


def _import_trainer() -> Any:
    # Threads that wait for work by spinning would take the cores that the engine on this machine needs.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    return importlib.import_module("trainer.step.alias_trainer")


PAGE = "report.html"  # beside the campaign's events


@asynccontextmanager
async def report_on_failure(
    store: Store, campaign: CampaignView, data: Path, progress: Progress
) -> AsyncIterator[None]:
    """Write the report of a campaign that fails in the block, if it has results. An interruption is not a failure."""
    try:
        yield
    except (TrainerError, RecorderError):
        await leave_report(store, await campaigns.get_campaign(store, campaign.id), data, progress)
        raise


async def leave_report(store: Store, campaign: CampaignView, data: Path, progress: Progress) -> None:
    """Write a campaign's report page at its end, and show a summary; nothing if it has no results."""
    path = data / "campaigns" / campaign.name / PAGE
    try:
        report = await gather_report(store, campaign)
        if not report.steps and not report.validations:
            return
        await asyncio.to_thread(page.write_page, report, path)
    except (OSError, RecorderError) as e:
        text = f"no report was written to {path}: {e}. `hone report {campaign.name}` shows it"
        progress.tell(Notice(text, warning=True))
        return
    progress.tell(Notice(f"{terminal.report_summary(report)}\nreport: {path}"))


LOOK_S: Final = 5.0


@asynccontextmanager
async def notify_withheld(store: Store, campaign_id: str, progress: Progress) -> AsyncIterator[None]:
    """Report withheld tools while the campaign runs, and at its end how many calls were refused."""
    notifier = WithheldToolsNotifier(store, campaign_id, progress)
    looking = asyncio.create_task(_keep_looking(notifier), name="withheld tools")
    try:
        yield
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
        with suppress(StoreError):  # the campaign's own end reports the store's error
            await notifier.end()


async def _keep_looking(notifier: WithheldToolsNotifier) -> None:
    while True:
        await asyncio.sleep(LOOK_S)
        with suppress(StoreError):  # the next look may succeed
            await notifier.look()


class WithheldToolsNotifier:
    """Reports the withheld tools of one campaign, each once."""

    def __init__(self, store: Store, campaign_id: str, progress: Progress) -> None:
        self._store = store
        self._campaign_id = campaign_id
        self._progress = progress
        self._reported: set[str] = set()

    async def look(self) -> None:
        """Report tools that were not reported yet."""
        new = [
            tool
            for tool in await tool_permissions.list_withheld_tools(self._store, self._campaign_id)
            if tool not in self._reported
        ]
        self._reported.update(new)
        if new:
            text = (
                f"not offered to attempts, because their MCP server does not mark them read-only: {', '.join(new)}. "
                "If attempts may change things there, start with --allow-writes (campaign.allow_writes). If these "
                "tools are read-only, let the server set readOnlyHint"
            )
            self._progress.tell(Notice(text, warning=True))

    async def end(self) -> None:
        """Report the rest, and how many calls were refused."""
        await self.look()
        if refused := await tool_permissions.count_refused_calls(self._store, self._campaign_id):
            calls = "1 call of such a tool was" if refused == 1 else f"{refused} calls of such tools were"
            self._progress.tell(Notice(f"{calls} refused in this campaign's attempts", warning=True))
